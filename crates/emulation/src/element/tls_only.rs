use std::time::Duration;

use super::flow_table::FlowTable;
use super::two_way::{Middlebox, TwoWay};
use super::{Kind, Outputs, Parse};
use crate::Packet;
use crate::ip::{ACK, Flow, Headers, RST, SYN, Segment, TcpFields, tcp};

/// The port that is inspected when the text names none.
const HTTPS: u16 = 443;

/// First bytes of a TLS connection: a handshake record of version 3.x (RFC 8446 section 5.1).
const TLS_BEGINS: [u8; 2] = [0x16, 0x03];

/// Resets TCP connections to one port whose client does not begin with a TLS record, as deep packet
/// inspection does.
///
/// Connections are known by their SYN; of others it has not seen the beginning and lets them pass.
#[derive(Debug)]
struct TlsOnly {
    port: u16,
    flows: FlowTable<Verdict>,
}

/// State of a connection, by the flow of the client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The sequence number of the first byte of the client, and how many bytes were right so far.
    Open {
        first: u32,
        right: usize,
    },
    Tls,
    Reset,
}

impl TlsOnly {
    fn handle(&mut self, packet: Packet, out: &mut Outputs) {
        let headers = Headers::read(&packet.bytes);
        let parts = headers
            .and_then(|headers| headers.flow(&packet.bytes).zip(headers.segment(&packet.bytes)));
        match parts {
            Some((flow, segment)) if flow.destination.port() == self.port => {
                self.on_client(flow, &segment, packet, out);
            }
            Some((flow, segment)) if flow.source.port() == self.port => {
                self.on_server(flow, &segment, packet, out);
            }
            _ => out.pass(packet),
        }
    }

    fn on_client(&mut self, flow: Flow, segment: &Segment, packet: Packet, out: &mut Outputs) {
        if segment.flags & SYN != 0 {
            let first = segment.seq.wrapping_add(1);
            self.flows.insert(flow, Verdict::Open { first, right: 0 });
        }
        let payload = packet.bytes.get(segment.payload.clone()).unwrap_or_default();
        let Some(verdict) = self.flows.get_mut(&flow) else {
            out.pass(packet);
            return;
        };
        *verdict = verdict.after(segment, payload);
        if *verdict != Verdict::Reset || segment.flags & RST != 0 {
            out.pass(packet);
            return;
        }
        reset(flow, segment, out);
    }

    /// Passes packets of the server. On a connection that was reset only resets pass, such as this
    /// box's own on their way back.
    fn on_server(&mut self, flow: Flow, segment: &Segment, packet: Packet, out: &mut Outputs) {
        let is_reset = self.flows.get_mut(&flow.back()) == Some(&mut Verdict::Reset);
        if !is_reset || segment.flags & RST != 0 {
            out.pass(packet);
        }
    }
}

impl Verdict {
    /// The verdict after the client's next bytes.
    fn after(self, segment: &Segment, payload: &[u8]) -> Verdict {
        let Verdict::Open { first, right } = self else {
            return self;
        };
        let data_at = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
        let due = first.wrapping_add(u32::try_from(right).unwrap_or_default());
        // The place in this segment of the first byte not yet looked at; what is ahead of it is
        // looked at later.
        let at = usize::try_from(due.wrapping_sub(data_at)).unwrap_or(usize::MAX);
        let new = payload.get(at..).unwrap_or_default();
        let expected = TLS_BEGINS.get(right..).unwrap_or_default();
        let looked_at = new.len().min(expected.len());
        match right + looked_at {
            _ if new.get(..looked_at) != expected.get(..looked_at) => Verdict::Reset,
            right if right == TLS_BEGINS.len() => Verdict::Tls,
            right => Verdict::Open { first, right },
        }
    }
}

/// Ends the connection at both sides, in the name of the other one.
///
/// Sequence numbers are exactly what each side expects next, since a receiver takes no other reset
/// (RFC 5961 section 3.2). The one to the server goes on in place of the packet, behind what the
/// client sent before.
fn reset(flow: Flow, segment: &Segment, out: &mut Outputs) {
    let has_ack = segment.flags & ACK != 0;
    let length = u32::try_from(segment.payload.len()).unwrap_or_default()
        + u32::from(segment.flags & SYN != 0);
    let to_server = TcpFields {
        seq: segment.seq,
        ack: segment.ack,
        flags: if has_ack { RST | ACK } else { RST },
        ..TcpFields::default()
    };
    let to_client = TcpFields {
        seq: if has_ack { segment.ack } else { 0 },
        ack: segment.seq.wrapping_add(length),
        flags: RST | ACK,
        ..TcpFields::default()
    };
    if let Some(packet) = tcp(flow.source, flow.destination, to_server) {
        out.pass(packet);
    }
    if let Some(packet) = tcp(flow.destination, flow.source, to_client) {
        out.reply(packet);
    }
}

/// Client and server may be on either side.
impl Middlebox for TlsOnly {
    fn outbound(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        self.handle(packet, out);
    }

    fn inbound(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        self.handle(packet, out);
    }
}

pub(super) const KIND: Kind = Kind {
    name: "dpi",
    form: "dpi tls-only [port NUMBER]",
    parse: Parse::TwoWay(|words| {
        words.expect("tls-only")?;
        let port = if words.take_word("port") { words.port()? } else { HTTPS };
        Ok(TwoWay::new(TlsOnly { port, flows: FlowTable::default() }, Vec::new()))
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;
    use crate::ip::has_right_checksums;

    const NOW: Duration = Duration::from_millis(1);
    const CLIENT: &str = "10.77.1.1:5000";
    const SERVER: &str = "10.77.2.1:443";

    fn segment(from: &str, to: &str, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
        let fields = TcpFields { seq, ack, flags, options: &[], payload };
        tcp(from.parse().unwrap(), to.parse().unwrap(), fields).unwrap()
    }

    /// A connection whose handshake has passed; the client's first byte is 101, the server's 501.
    fn connected() -> Path {
        let mut path: Path = "dpi tls-only".parse().unwrap();
        path.outbound.send(NOW, segment(CLIENT, SERVER, 100, 0, SYN, b""));
        path.inbound.send(NOW, segment(SERVER, CLIENT, 500, 101, SYN | ACK, b""));
        path.outbound.send(NOW, segment(CLIENT, SERVER, 101, 501, ACK, b""));
        assert_eq!((path.outbound.counts().dropped, path.inbound.counts().dropped), (0, 0));
        while path.outbound.poll(NOW).or_else(|| path.inbound.poll(NOW)).is_some() {}
        path
    }

    fn send(path: &mut Path, seq: u32, payload: &[u8]) -> (Packet, Option<Packet>) {
        path.outbound.send(NOW, segment(CLIENT, SERVER, seq, 501, ACK, payload));
        (path.outbound.poll(NOW).unwrap(), path.outbound.take_reply().map(|(_, reply)| reply))
    }

    #[test]
    fn tls_passes_in_one_piece_or_two() {
        for pieces in [&[&[0x16, 0x03, 0x01][..]][..], &[&[0x16], &[0x03, 0x00]]] {
            let (mut path, mut seq) = (connected(), 101);
            for piece in pieces {
                let expected = segment(CLIENT, SERVER, seq, 501, ACK, piece);
                assert_eq!(send(&mut path, seq, piece), (expected, None));
                seq += u32::try_from(piece.len()).unwrap();
            }
            // Everything after it is data.
            assert_eq!(send(&mut path, seq, b"GET /").1, None);
        }
    }

    #[test]
    fn other_bytes_reset_both_ends_where_each_expects_it() {
        for right in [&[][..], &[0x16]] {
            let mut path = connected();
            let mut seq = 101;
            if !right.is_empty() {
                assert_eq!(send(&mut path, seq, right).1, None);
                seq += 1;
            }
            let (onward, back) = send(&mut path, seq, b"\x0ano TLS");
            let back = back.unwrap();
            assert_eq!(onward, segment(CLIENT, SERVER, seq, 501, RST | ACK, b""));
            assert_eq!(back, segment(SERVER, CLIENT, 501, seq + 7, RST | ACK, b""));
            assert!(has_right_checksums(&onward) && has_right_checksums(&back));
            path.inbound.send(NOW, segment(SERVER, CLIENT, 501, 101, ACK, b"late"));
            assert_eq!(path.inbound.poll(NOW), None);
            path.inbound.send(NOW, back.clone());
            assert_eq!(path.inbound.poll(NOW), Some(back));
        }
    }

    #[test]
    fn data_in_the_syn_are_looked_at_and_a_new_syn_begins_anew() {
        let mut path: Path = "dpi tls-only".parse().unwrap();
        path.outbound.send(NOW, segment(CLIENT, SERVER, 100, 0, SYN, b"GET"));
        let onward = path.outbound.poll(NOW).unwrap();
        let (_, back) = path.outbound.take_reply().unwrap();
        assert_eq!(onward, segment(CLIENT, SERVER, 100, 0, RST, b""));
        assert_eq!(back, segment(SERVER, CLIENT, 0, 104, RST | ACK, b""));
        path.outbound.send(NOW, segment(CLIENT, SERVER, 900, 0, SYN, &TLS_BEGINS));
        assert!(path.outbound.poll(NOW).is_some() && path.outbound.take_reply().is_none());
    }

    #[test]
    fn bytes_out_of_order_and_other_ports_and_unseen_beginnings_pass() {
        let mut path = connected();
        assert_eq!(send(&mut path, 103, b"GET").1, None);
        assert_eq!(send(&mut path, 101, &TLS_BEGINS).1, None);
        for port in ["10.77.2.1:80", "10.77.2.1:443"] {
            path.outbound.send(NOW, segment("10.77.1.1:5001", port, 1, 1, ACK, b"GET"));
            assert!(path.outbound.poll(NOW).is_some() && path.outbound.take_reply().is_none());
        }
    }
}
