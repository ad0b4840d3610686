use std::time::Duration;

use super::{Element, Kind, Outputs, Parse};
use crate::Packet;
use crate::ip::{Headers, fragments, too_big};

/// Passes only packets up to a maximum length.
///
/// Fragments longer IPv4 packets without Don't Fragment. Drops others, and reports them to their
/// sender by ICMP (RFC 1191, RFC 8201), unless the element is silent, as if behind a firewall that
/// drops all ICMP. Drops longer packets that are not IP without a report.
#[derive(Debug)]
pub struct Mtu {
    limit: u16,
    is_silent: bool,
}

impl Mtu {
    /// Creates an element that sends ICMP errors; `limit` counts the bytes of the whole IP packet.
    pub fn new(limit: u16) -> Mtu {
        Mtu { limit, is_silent: false }
    }

    /// Disables ICMP errors: packets that must not be fragmented vanish in a black hole.
    #[must_use]
    pub fn silent(self) -> Mtu {
        Mtu { is_silent: true, ..self }
    }

    fn handle_too_long(&self, packet: Packet, out: &mut Outputs) {
        let bytes = &packet.bytes;
        if Headers::read(bytes).is_some_and(|headers| headers.is_splittable(bytes)) {
            for bytes in fragments(bytes, self.limit) {
                out.pass(Packet { protocol: packet.protocol, bytes });
            }
        } else if !self.is_silent
            && let Some(error) = too_big(bytes, self.limit)
        {
            out.reply(error);
        }
    }
}

impl Element for Mtu {
    fn handle(&mut self, _now: Duration, packet: Packet, out: &mut Outputs) {
        if packet.bytes.len() <= self.limit.into() {
            out.pass(packet);
        } else {
            self.handle_too_long(packet, out);
        }
    }
}

pub(super) const KIND: Kind = Kind {
    name: "mtu",
    form: "[udp|tcp] mtu NUMBER [silent]",
    parse: Parse::OneWay(|words| {
        let mtu = Mtu::new(words.mtu()?);
        Ok(Box::new(if words.take_word("silent") { mtu.silent() } else { mtu }))
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use crate::ip::{has_right_checksums, udp};

    const NOW: Duration = Duration::from_millis(3);

    /// Sends `packet`; returns the number of packets that pass, and the ICMP error.
    fn send_through(mtu: Mtu, packet: Packet) -> (usize, Option<Packet>) {
        let mut link = Link::default().with(mtu);
        link.send(NOW, packet);
        let passed = std::iter::from_fn(|| link.poll(NOW)).count();
        (passed, link.take_reply().map(|(at, packet)| (at == NOW).then_some(packet).unwrap()))
    }

    fn datagram(from: &str, to: &str, length: usize) -> Packet {
        udp(from.parse().unwrap(), to.parse().unwrap(), &vec![7; length]).unwrap()
    }

    #[test]
    fn a_packet_that_is_too_long_gets_an_icmp_error_unless_silent() {
        for (from, to, headers) in
            [("10.77.1.1:5000", "10.77.2.1:443", 28), ("[fd77::1:1]:5000", "[fd77::2:1]:443", 48)]
        {
            let fits = datagram(from, to, 1280 - headers);
            assert_eq!(send_through(Mtu::new(1280), fits), (1, None));
            let long = datagram(from, to, 1281 - headers);
            let (passed, error) = send_through(Mtu::new(1280), long.clone());
            let error = error.unwrap();
            assert_eq!((passed, error.destination()), (0, long.source()));
            assert!(has_right_checksums(&error));
            assert_eq!(send_through(Mtu::new(1280).silent(), long), (0, None));
            // An ICMP error never causes another.
            assert_eq!(send_through(Mtu::new(68), error), (0, None));
        }
    }

    #[test]
    fn packets_without_dont_fragment_are_fragmented() {
        let mut packet = datagram("10.77.1.1:5000", "10.77.2.1:443", 2020);
        // Clears Don't Fragment.
        packet.bytes[6] = 0;
        assert_eq!(send_through(Mtu::new(1028), packet.clone()), (3, None));
        assert_eq!(send_through(Mtu::new(1028).silent(), packet), (3, None));
        // Not an IP packet.
        assert_eq!(send_through(Mtu::new(3), Packet::udp([1; 4])), (0, None));
    }
}
