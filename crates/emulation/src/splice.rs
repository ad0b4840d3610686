//! TCP connections through a balancer that goes by server name; [`Balance`](crate::Balance) says
//! what is modelled.

use crate::Packet;
use crate::element::FlowTable;
use crate::ip::{ACK, ACKNOWLEDGED, Flow, Headers, RST, SEQ, SYN, Segment, TcpFields, tcp};
use crate::tls::{Side, Stream};

/// Packets that a client may send before there is a server for them; what comes then is lost.
const KEPT_MAX: usize = 64;

/// Window in the SYNs of the balancer's own: the largest without scaling.
const WINDOW: u16 = u16::MAX;

/// Length of the option for the segment size, which systems put first (RFC 9293 section 3.7.1).
const SEGMENT_SIZE: usize = 4;

/// The connections to one address.
#[derive(Debug, Default)]
pub(crate) struct Splices {
    connections: FlowTable<Splice>,
}

/// A packet that goes on, to a server of the address or to where its destination is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Onward {
    pub(crate) to: Option<usize>,
    pub(crate) packet: Packet,
}

#[derive(Debug)]
struct Splice {
    /// Sequence number of the client's SYN. That of the answer has all bits the other way.
    seq: u32,
    /// The client's segment size, as an option; empty if it named none.
    segment_size: Vec<u8>,
    stream: Stream,
    server: Server,
}

#[derive(Debug)]
enum Server {
    /// The ClientHello is not whole, or the server has not answered: what the client sent.
    Wanted { port: Option<usize>, kept: Vec<Packet> },
    /// From this port; its sequence numbers are higher by `ahead` than those the client sees.
    Joined { port: usize, ahead: u32 },
}

impl Splices {
    /// Takes a packet to the address; `choose` knows the server for a name, the empty one if a
    /// ClientHello shows none.
    pub(crate) fn handle_client(
        &mut self,
        packet: Packet,
        choose: impl FnOnce(&str) -> Option<usize>,
    ) -> Vec<Onward> {
        let Some((flow, segment)) = parts(&packet) else { return Vec::new() };
        if segment.flags & (SYN | ACK) == SYN {
            if self.connections.get_mut(&flow).is_none_or(|known| known.seq != segment.seq) {
                self.connections.insert(flow, Splice::new(&segment, &packet));
            }
            let answer = self.connections.get_mut(&flow).and_then(|splice| splice.accept(flow));
            return onward(None, answer);
        }
        match self.connections.get_mut(&flow) {
            Some(splice) => splice.handle_client(flow, &segment, packet, choose),
            None => Vec::new(),
        }
    }

    /// Takes a packet from the address.
    pub(crate) fn handle_server(&mut self, packet: Packet) -> Vec<Onward> {
        let parts = parts(&packet);
        let known = parts.and_then(|(flow, segment)| {
            Some((flow, segment, self.connections.get_mut(&flow.back())?))
        });
        match known {
            Some((flow, segment, splice)) => splice.handle_server(flow, &segment, packet),
            None => vec![Onward { to: None, packet }],
        }
    }
}

impl Splice {
    /// A connection that begins with this SYN. Data in it count as lost.
    fn new(segment: &Segment, packet: &Packet) -> Splice {
        let options = packet.bytes.get(segment.options.clone()).unwrap_or_default();
        let first = options.get(..SEGMENT_SIZE).filter(|option| option.starts_with(&[2, 4]));
        let mut stream = Stream::new(Side::Client);
        stream.take(segment, &[]);
        Splice {
            seq: segment.seq,
            segment_size: first.unwrap_or_default().to_vec(),
            stream,
            server: Server::Wanted { port: None, kept: Vec::new() },
        }
    }

    /// The SYN-ACK for the client.
    fn accept(&self, flow: Flow) -> Option<Packet> {
        let (seq, ack) = (!self.seq, self.seq.wrapping_add(1));
        tcp(flow.destination, flow.source, self.opening(seq, ack, SYN | ACK))
    }

    fn opening(&self, seq: u32, ack: u32, flags: u8) -> TcpFields<'_> {
        TcpFields { seq, ack, flags, window: WINDOW, options: &self.segment_size, payload: &[] }
    }

    fn handle_client(
        &mut self,
        flow: Flow,
        segment: &Segment,
        packet: Packet,
        choose: impl FnOnce(&str) -> Option<usize>,
    ) -> Vec<Onward> {
        let (port, kept) = match &mut self.server {
            Server::Joined { port, ahead } => {
                return onward(Some(*port), shifted(packet, ACKNOWLEDGED, *ahead));
            }
            Server::Wanted { port, kept } => (port, kept),
        };
        let payload = packet.bytes.get(segment.payload.clone()).unwrap_or_default();
        let begins = !payload.is_empty() && segment.seq == self.seq.wrapping_add(1);
        let was_asked = port.is_some();
        let is_read = was_asked || self.stream.take(segment, payload);
        if !is_read && self.stream.hello().is_none() {
            return onward(None, reset(flow, segment.ack));
        }
        if kept.len() < KEPT_MAX {
            kept.push(packet);
        }
        if let Some(hello) = self.stream.hello().filter(|_| !was_asked) {
            *port = choose(hello.name.as_deref().unwrap_or_default());
        } else if !begins {
            return Vec::new();
        }
        // Again with what the client repeats, as the SYN or its answer may have been lost.
        let to = *port;
        let syn = tcp(flow.source, flow.destination, self.opening(self.seq, 0, SYN));
        onward(to, syn.filter(|_| to.is_some()))
    }

    fn handle_server(&mut self, flow: Flow, segment: &Segment, packet: Packet) -> Vec<Onward> {
        let begins = segment.flags & (SYN | ACK) == SYN | ACK;
        match &mut self.server {
            Server::Joined { ahead, .. } if !begins => {
                onward(None, shifted(packet, SEQ, ahead.wrapping_neg()))
            }
            Server::Wanted { port: Some(port), kept } if begins => {
                let (port, ahead) = (*port, segment.seq.wrapping_sub(!self.seq));
                let kept = std::mem::take(kept);
                self.server = Server::Joined { port, ahead };
                let each = kept.into_iter().filter_map(|kept| shifted(kept, ACKNOWLEDGED, ahead));
                each.map(|packet| Onward { to: Some(port), packet }).collect()
            }
            Server::Wanted { port: Some(_), .. } if segment.flags & RST != 0 => {
                onward(None, reset(flow.back(), (!self.seq).wrapping_add(1)))
            }
            // The client repeats what the server did not get.
            _ => Vec::new(),
        }
    }
}

fn parts(packet: &Packet) -> Option<(Flow, Segment)> {
    let headers = Headers::read(&packet.bytes)?;
    headers.flow(&packet.bytes).zip(headers.segment(&packet.bytes))
}

fn onward(to: Option<usize>, packet: Option<Packet>) -> Vec<Onward> {
    packet.map(|packet| Onward { to, packet }).into_iter().collect()
}

fn shifted(mut packet: Packet, place: usize, by: u32) -> Option<Packet> {
    Headers::read(&packet.bytes)?.shift(&mut packet.bytes, place, by);
    Some(packet)
}

/// The reset that a client takes, which expects this sequence number next (RFC 5961 section 3.2).
fn reset(flow: Flow, seq: u32) -> Option<Packet> {
    let fields = TcpFields { seq, flags: RST, ..TcpFields::default() };
    tcp(flow.destination, flow.source, fields)
}

#[cfg(test)]
mod tests;
