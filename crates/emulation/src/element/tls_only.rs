use std::time::Duration;

use super::flow_table::FlowTable;
use super::two_way::{Middlebox, TwoWay};
use super::{Kind, Outputs, Parse};
use crate::Packet;
use crate::ip::{ACK, Flow, Headers, RST, SYN, Segment, TcpFields, tcp};
use crate::tls::{Side, Stream};

/// The port that is inspected when the text names none.
const HTTPS: u16 = 443;

/// Ends TCP connections to one port that are not TLS, as deep packet inspection does: it reads both
/// directions record by record, from a ClientHello and a ServerHello on.
///
/// Connections are known by their SYN; of others it has not seen the beginning and lets them pass.
#[derive(Debug)]
struct TlsOnly {
    port: u16,
    /// Server names that pass; all if there is none.
    names: Vec<String>,
    /// Reads what the server says, and not the client.
    server_side: bool,
    /// Drops what is not TLS, and all that follows, instead of resetting the connection.
    swallows: bool,
    flows: FlowTable<State>,
}

/// State of a connection, by the flow of the client's packets.
#[derive(Debug)]
enum State {
    /// The client's stream and the server's.
    Open(Box<[Stream; 2]>),
    Ended,
}

impl TlsOnly {
    fn handle(&mut self, packet: Packet, out: &mut Outputs) {
        let headers = Headers::read(&packet.bytes);
        let parts = headers
            .and_then(|headers| headers.flow(&packet.bytes).zip(headers.segment(&packet.bytes)));
        match parts {
            Some((flow, segment)) if flow.destination.port() == self.port => {
                if segment.flags & SYN != 0 {
                    self.flows.insert(flow, State::new());
                }
                self.inspect(flow, Side::Client, &segment, packet, out);
            }
            Some((flow, segment)) if flow.source.port() == self.port => {
                self.inspect(flow, Side::Server, &segment, packet, out);
            }
            _ => out.pass(packet),
        }
    }

    /// Passes the packet if both ends of its connection have spoken TLS so far. On one that has
    /// ended only resets pass, such as this box's own on their way back.
    fn inspect(
        &mut self,
        flow: Flow,
        side: Side,
        segment: &Segment,
        packet: Packet,
        out: &mut Outputs,
    ) {
        let of_client = if side == Side::Client { flow } else { flow.back() };
        let Some(state) = self.flows.get_mut(&of_client) else { return out.pass(packet) };
        if segment.flags & RST != 0 {
            return out.pass(packet);
        }
        let State::Open(streams) = state else { return };
        let [client, server] = streams.as_mut();
        let stream = if side == Side::Client { client } else { server };
        let payload = packet.bytes.get(segment.payload.clone()).unwrap_or_default();
        let is_read = side == Side::Server || !self.server_side;
        if !is_read || stream.take(segment, payload) && passes(&self.names, side, stream) {
            return out.pass(packet);
        }
        *state = State::Ended;
        if !self.swallows {
            reset(flow, segment, out);
        }
    }
}

impl State {
    fn new() -> Self {
        State::Open(Box::new([Side::Client, Side::Server].map(Stream::new)))
    }
}

/// Returns true unless a ClientHello shows none of the names, if there are any.
fn passes(names: &[String], side: Side, stream: &Stream) -> bool {
    let Some(hello) = stream.hello().filter(|_| side == Side::Client && !names.is_empty()) else {
        return true;
    };
    hello.name.as_ref().is_some_and(|name| names.contains(name))
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
    form: "dpi tls-only [port NUMBER] [names NAME,...] [server-side] [swallow]",
    parse: Parse::TwoWay(|words| {
        words.expect("tls-only")?;
        let port = if words.take_word("port") { words.port()? } else { HTTPS };
        let names = if words.take_word("names") { words.names()? } else { Vec::new() };
        let server_side = words.take_word("server-side");
        let swallows = words.take_word("swallow");
        let flows = FlowTable::default();
        Ok(TwoWay::new(TlsOnly { port, names, server_side, swallows, flows }, Vec::new()))
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;
    use crate::ip::has_right_checksums;
    use crate::tls::made::{client_hello, record, server_hello};

    const NOW: Duration = Duration::from_millis(1);
    const CLIENT: &str = "10.77.1.1:5000";
    const SERVER: &str = "10.77.2.1:443";

    fn segment(from: &str, to: &str, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Packet {
        let fields = TcpFields { seq, ack, flags, payload, ..TcpFields::default() };
        tcp(from.parse().unwrap(), to.parse().unwrap(), fields).unwrap()
    }

    /// A connection over a path whose handshake has passed; the client's first byte is 101, the
    /// server's 501.
    fn connected(path: &str) -> Path {
        let mut path: Path = path.parse().unwrap();
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

    /// Returns true if a segment of the client passes unchanged.
    fn passes(path: &mut Path, seq: usize, payload: &[u8]) -> bool {
        let packet = segment(CLIENT, SERVER, u32::try_from(seq).unwrap(), 501, ACK, payload);
        path.outbound.send(NOW, packet.clone());
        path.outbound.poll(NOW) == Some(packet) && path.outbound.take_reply().is_none()
    }

    /// Returns true if a segment of the server passes unchanged.
    fn answer_passes(path: &mut Path, seq: usize, payload: &[u8]) -> bool {
        let packet = segment(SERVER, CLIENT, u32::try_from(seq).unwrap(), 101, ACK, payload);
        path.inbound.send(NOW, packet.clone());
        path.inbound.poll(NOW) == Some(packet) && path.inbound.take_reply().is_none()
    }

    #[test]
    fn tls_passes_however_it_is_cut_and_in_whatever_order_it_comes() {
        let stream = [client_hello("www.example.com"), record(23, b"request")].concat();
        for cut in 1..stream.len() {
            let (head, tail) = stream.split_at(cut);
            let mut path = connected("dpi tls-only");
            assert!(passes(&mut path, 101, head) && passes(&mut path, 101 + cut, tail), "{cut}");
            assert!(answer_passes(&mut path, 501, &server_hello()), "{cut}");
            let mut path = connected("dpi tls-only");
            assert!(passes(&mut path, 101 + cut, tail) && passes(&mut path, 101, head), "{cut}");
            assert!(passes(&mut path, 101, &stream), "sent again");
            assert!(!passes(&mut path, 101 + stream.len(), b"GET"), "{cut}");
        }
    }

    #[test]
    fn other_bytes_reset_both_ends_where_each_expects_it() {
        let hello = client_hello("www.example.com");
        for right in [&[][..], &[0x16], &hello] {
            let mut path = connected("dpi tls-only");
            assert!(right.is_empty() || passes(&mut path, 101, right));
            let seq = 101 + u32::try_from(right.len()).unwrap();
            let (onward, back) = send(&mut path, seq, b"\x0ano TLS");
            let back = back.unwrap();
            assert_eq!(onward, segment(CLIENT, SERVER, seq, 501, RST | ACK, b""));
            assert_eq!(back, segment(SERVER, CLIENT, 501, seq + 7, RST | ACK, b""));
            assert!(has_right_checksums(&onward) && has_right_checksums(&back));
            assert!(!answer_passes(&mut path, 501, b"late"));
            path.inbound.send(NOW, back.clone());
            assert_eq!(path.inbound.poll(NOW), Some(back));
        }
    }

    #[test]
    fn a_server_that_does_not_answer_in_tls_is_cut_off() {
        let hello = client_hello("www.example.com");
        let mut path = connected("dpi tls-only");
        assert!(passes(&mut path, 101, &hello));
        assert!(!answer_passes(&mut path, 501, b"\x0b\0\0\0\0"));

        let mut path = connected("dpi tls-only server-side");
        assert!(passes(&mut path, 101, b"GET"), "nobody reads the client");
        assert!(!answer_passes(&mut path, 501, b"HTTP/1.1 400"));
    }

    #[test]
    fn a_swallowed_segment_takes_all_later_ones_with_it() {
        let mut path = connected("dpi tls-only swallow");
        for seq in [101, 104] {
            path.outbound.send(NOW, segment(CLIENT, SERVER, seq, 501, ACK, b"GET"));
            assert!(path.outbound.poll(NOW).is_none() && path.outbound.take_reply().is_none());
        }
        assert!(!answer_passes(&mut path, 501, b""));
    }

    #[test]
    fn only_listed_names_pass() {
        let path = "dpi tls-only names www.example.com example.net";
        for (name, expected) in [("example.net", true), ("www.example.org", false)] {
            assert_eq!(passes(&mut connected(path), 101, &client_hello(name)), expected, "{name}");
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
        path.outbound.send(NOW, segment(CLIENT, SERVER, 900, 0, SYN, &client_hello("a.test")));
        assert!(path.outbound.poll(NOW).is_some() && path.outbound.take_reply().is_none());
    }

    #[test]
    fn other_ports_and_connections_that_it_has_not_seen_begin_pass() {
        let mut path = connected("dpi tls-only");
        for port in ["10.77.2.1:80", "10.77.2.1:443"] {
            path.outbound.send(NOW, segment("10.77.1.1:5001", port, 1, 1, ACK, b"GET"));
            assert!(path.outbound.poll(NOW).is_some() && path.outbound.take_reply().is_none());
        }
    }
}
