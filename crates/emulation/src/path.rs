use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::Link;
use crate::link::Placed;
use crate::parse::{Parsed, element, element_forms, read};
use crate::words::{Direction, ParseError, Words};

/// Both directions between a node and the network's core, and the boxes that see both.
///
/// As text, elements are listed from the node to the core: what the node sends meets them in this
/// order, what it gets in the reverse one. `up(...)` and `down(...)` hold elements for packets from
/// the node, and to it; others exist separately in each direction, with draws of their own. A seed
/// that is not given is the element's place in the text.
///
/// A `nat` that is to change its address does so after each batch of packets or each interval;
/// after the last address comes the first again. Loss in `bursts` ends in 100 ms of
/// silence.
///
/// ```
/// use headstart_emulation::Path;
///
/// let text =
///     "delay 25ms jitter 5ms, loss 5% seed 7, down(rate 10Mbit queue 64kB), nat 203.0.113.1";
/// let path: Path = text.parse()?;
/// assert_eq!(path.public_addresses(), ["203.0.113.1".parse::<std::net::IpAddr>().unwrap()]);
/// # Ok::<(), headstart_emulation::ParseError>(())
/// ```
#[derive(Debug, Default)]
pub struct Path {
    /// From the node into the network.
    pub outbound: Link,
    /// From the network to the node.
    pub inbound: Link,
    public: Vec<IpAddr>,
    text: String,
}

impl Path {
    /// Addresses under which boxes on the path show the node to others.
    pub fn public_addresses(&self) -> &[IpAddr] {
        &self.public
    }

    /// The sum of the constant delays of both directions: what the path adds to a round trip.
    ///
    /// `None` if there is no such sum: with jitter, or if a delay is for one protocol. Time that
    /// packets take at a limited rate, or are held back by, is not in it.
    pub fn nominal_delay(&self) -> Option<Duration> {
        Some(self.outbound.nominal_delay()?.saturating_add(self.inbound.nominal_delay()?))
    }
}

/// The text it was read from, blanks made even.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the forms that the text of a path can have, for help texts.
pub fn path_forms() -> impl Iterator<Item = &'static str> {
    ["up(ELEMENTS)", "down(ELEMENTS)", "preset NAME"].into_iter().chain(element_forms())
}

/// Reads [`path_forms`], in any number; empty text passes everything.
impl FromStr for Path {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Path, ParseError> {
        let mut parts = Parts::default();
        let mut words = Words::new(text);
        while !words.at_end() {
            parts.read(&mut words)?;
        }
        parts.inbound.reverse();
        Ok(Path {
            outbound: Link::placed(parts.outbound),
            inbound: Link::placed(parts.inbound),
            public: parts.public,
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

/// The elements of a path in the order of the text.
#[derive(Default)]
struct Parts {
    outbound: Vec<Placed>,
    inbound: Vec<Placed>,
    public: Vec<IpAddr>,
}

impl Parts {
    fn read(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        if words.take_word("up") {
            self.outbound.extend(group(words, Direction::Outbound)?);
        } else if words.take_word("down") {
            self.inbound.extend(group(words, Direction::Inbound)?);
        } else if words.take_word("preset") {
            words.expand_preset()?;
        } else {
            self.read_element(words)?;
        }
        Ok(())
    }

    fn read_element(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        let mut again = words.clone();
        let (outbound, inbound) = match read(words)? {
            Parsed::OneWay(outbound) => {
                again.direction = Direction::Inbound;
                (outbound, element(&mut again)?)
            }
            Parsed::TwoWay(both) => {
                self.public.extend(both.public);
                (both.outbound, both.inbound)
            }
        };
        let place = words.place();
        self.outbound.push(Placed { place, element: outbound });
        self.inbound.push(Placed { place, element: inbound });
        Ok(())
    }
}

/// Reads the elements in brackets behind `up` or `down`.
fn group(words: &mut Words<'_>, direction: Direction) -> Result<Vec<Placed>, ParseError> {
    let mut elements = Vec::new();
    words.expect("(")?;
    words.direction = direction;
    while !words.take_word(")") {
        let element = element(words)?;
        elements.push(Placed { place: words.place(), element });
    }
    words.direction = Direction::Outbound;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        text.parse::<Path>().unwrap_err().to_string()
    }

    /// Returns the time at which a packet sent at 0 comes out each way, in ms.
    fn delays(text: &str) -> (u128, u128) {
        let mut path = path(text);
        (delay(&mut path.outbound), delay(&mut path.inbound))
    }

    fn delay(link: &mut Link) -> u128 {
        link.send(Duration::ZERO, Packet::udp([1; 1000]));
        let mut last = Duration::ZERO;
        while let Some(due) = link.next_due() {
            link.poll(due);
            last = due;
        }
        last.as_millis()
    }

    #[test]
    fn directions() {
        assert_eq!(delays(""), (0, 0));
        assert_eq!(delays("delay 5ms, delay 1ms"), (6, 6));
        assert_eq!(delays("delay 5ms, up(delay 1ms delay 2ms), down ( delay 7ms )"), (8, 12));
        assert_eq!(delays("up(),down(rate 8kbit queue 1kB)"), (0, 1000));
    }

    /// The one nearest to the node is the first on the way out and the last on the way in.
    #[test]
    fn inbound_packets_meet_the_elements_in_reverse() {
        let text = "delay 1ms, reorder packets 1 by 2ms, down(delay 3ms)";
        let (outbound, inbound) = (path(text).outbound, path(text).inbound);
        for (link, names) in [
            (&outbound, ["Delay(1ms)", "Reorder"]),
            (&inbound, ["Delay(3ms)", "Reorder"]),
            (&inbound, ["Reorder", "Delay(1ms)"]),
        ] {
            let shown = format!("{link:?}");
            assert!(names.map(|name| shown.find(name).unwrap()).is_sorted(), "{shown}");
        }
    }

    /// Tells of each of 200 packets whether it was lost.
    fn lost(link: &mut Link) -> Vec<bool> {
        let each = (0..200).map(|_| {
            link.send(Duration::ZERO, Packet::udp([]));
            link.poll(Duration::ZERO).is_none()
        });
        each.collect()
    }

    /// Else a packet would be lost on the way out just when its answer is lost on the way in.
    #[test]
    fn directions_and_elements_draw_on_their_own() {
        let mut named = path("loss 50% seed 7");
        let mut again = path("up(loss 50% seed 7)");
        let out = lost(&mut named.outbound);
        assert_ne!(out, lost(&mut named.inbound));
        assert_eq!(out, lost(&mut again.outbound));
        let mut second = path("delay 0ms, loss 50%");
        let mut first = path("loss 50%");
        let first = lost(&mut first.outbound);
        assert_ne!(first, lost(&mut second.outbound));
        assert_eq!(first, lost(&mut path("loss 50% seed 1").outbound));
    }

    #[test]
    fn the_nominal_delay_is_of_both_directions() {
        for (text, millis) in [
            ("", Some(0)),
            ("delay 5ms, delay 1ms", Some(12)),
            ("delay 5ms, up(delay 1ms), down(delay 7ms), nat 192.0.2.1, mtu 1300", Some(18)),
            ("preset satellite", Some(600)),
            ("delay 5ms, loss 5%, rate 1Mbit queue 64kB, reorder 1% by 9ms", Some(10)),
            ("delay 5ms jitter 0ms, udp loss 5%", Some(10)),
            ("delay 5ms jitter 1ms", None),
            ("delay 5ms, down(udp delay 1ms)", None),
        ] {
            let nominal = path(text).nominal_delay();
            assert_eq!(nominal, millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn text_is_kept() {
        assert_eq!(path(" delay 5ms,\n  nat 192.0.2.1 ").to_string(), "delay 5ms, nat 192.0.2.1");
        assert_eq!(path("preset lte").to_string(), "preset lte");
    }

    #[test]
    fn errors() {
        assert!(refused("up(delay 5ms").starts_with("expected an element ("));
        assert!(refused("up(delay 5ms").ends_with("found the end"));
        assert_eq!(refused("up delay 5ms"), "expected `(`, found `delay`");
        assert_eq!(
            refused("down(nat 192.0.2.1)"),
            "expected an element for one direction, found `nat`"
        );
        assert_eq!(
            refused("preset wlan"),
            "expected a preset (satellite, lte, transatlantic, wifi), found `wlan`"
        );
        assert!(refused("delay 5ms)").ends_with("found `)`"));
        assert_eq!(refused("nat"), "expected an IP address, found the end");
        assert_eq!(refused("nat 192.0.2.1 change after 5"), "expected `packets`, found the end");
        assert_eq!(
            refused("rate 10 queue 1kB"),
            "expected a rate such as 10Mbit, 512kbit or 1Gbit, found `10`"
        );
        assert_eq!(
            refused("rate 1Gbit queue 0B"),
            "expected a size such as 64kB, 1MB or 1500B, found `0B`"
        );
        assert_eq!(refused("mtu 67"), "expected a length of packets, 68 to 65535, found `67`");
        assert_eq!(
            refused("bursts 80% mean-length 2"),
            "expected a mean length of at least 4.00, found `2`"
        );
        assert_eq!(refused("dpi"), "expected `tls-only`, found the end");
    }
}
