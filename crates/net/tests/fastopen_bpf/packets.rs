//! Tests which packets the program inspects, and which it leaves alone.

use std::net::IpAddr;

use crate::frame::{ACK, FIN, Frame, Link, PORT, RST, SYN};
use crate::program::{LIFE, Loaded, NOW, TAKEN};
use crate::support::{key, mint};

fn client4() -> IpAddr {
    [198, 51, 100, 7].into()
}

fn client6() -> IpAddr {
    "2001:db8:1:2::7".parse().unwrap()
}

/// Returns a SYN with a valid cookie.
fn valid(from: IpAddr) -> Frame {
    Frame::syn(from).fast_open(mint(&key(1), NOW + LIFE, from).as_bytes())
}

fn left_alone(loaded: &mut Loaded, frame: &Frame) {
    let (packet, counted) = loaded.pass(frame);
    assert_eq!(packet, frame.bytes(), "{frame:?}");
    assert!(counted.is_empty(), "{counted:?}: {frame:?}");
}

pub(crate) fn not_looked_at() {
    let mut loaded = Loaded::new();
    for from in [client4(), client6()] {
        for flags in [0, ACK, SYN | ACK, SYN | RST, SYN | FIN, FIN | ACK, RST] {
            left_alone(&mut loaded, &Frame { flags, ..valid(from) });
        }
        left_alone(&mut loaded, &Frame { port: PORT + 1, ..valid(from) });
        // UDP, to the same port.
        left_alone(&mut loaded, &Frame { protocol: 17, ..valid(from) });
        // An ECN-setup SYN is a SYN too (RFC 3168), and urgent or reserved bits change nothing.
        let (_, counted) = loaded.pass(&Frame { flags: SYN | 0xc0, ..valid(from) });
        assert_eq!(counted, ["syns", TAKEN]);
    }
    assert_eq!(loaded.maps().spent().unwrap(), 2);
}

/// An interface may receive packets for other hosts, for example as a bridge's port; packets of a
/// VLAN reach that VLAN's interface.
pub(crate) fn for_others() {
    let mut loaded = Loaded::new();
    for from in [client4(), client6()] {
        for station in [[2, 0, 0, 0, 0, 9], [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
            left_alone(&mut loaded, &Frame { station, ..valid(from) });
        }
        for vlan in [0, 1, 0x2064] {
            left_alone(&mut loaded, &Frame { vlan: Some(vlan), ..valid(from) });
        }
    }
}

/// The public listener gets them, with Fast Open off.
pub(crate) fn fragments() {
    const MORE: u16 = 0x2000;
    let mut loaded = Loaded::new();
    for fragment in [MORE, 1, MORE | 1, 0x1fff, 0x4000 | MORE] {
        left_alone(&mut loaded, &Frame { fragment, ..valid(client4()) });
    }
    let (_, counted) = loaded.pass(&Frame { fragment: 0, ..valid(client4()) });
    assert_eq!(counted, ["syns", TAKEN]);
}

pub(crate) fn ipv6_extension_headers() {
    let mut loaded = Loaded::new();
    // Hop-by-hop, routing, fragment, authentication, destination options.
    for extension in [0, 43, 44, 51, 60] {
        left_alone(&mut loaded, &Frame { extension: Some(extension), ..valid(client6()) });
    }
}

pub(crate) fn ipv4_options() {
    let mut loaded = Loaded::new();
    for words in [1, 5, 10] {
        let mut ip_options = vec![1; 4 * words];
        *ip_options.last_mut().unwrap() = 0;
        let frame = Frame { ip_options, ..valid(client4()) };
        let (packet, counted) = loaded.pass(&frame);
        assert_eq!((packet, counted), (frame.stripped().bytes(), vec!["syns", TAKEN]), "{words}");
    }
}

/// Headers that end too early, or claim to.
pub(crate) fn short() {
    let mut loaded = Loaded::new();
    for words in [0, 4, 5] {
        let frame = Frame { words: Some(words), ..valid(client4()) };
        let (packet, counted) = loaded.pass(&frame);
        assert_eq!((packet, counted), (frame.bytes(), vec!["syns"]), "{words}");
    }
    // More options than there are bytes.
    let mut frame = Frame { words: Some(15), ..Frame::syn(client4()) };
    frame.data.clear();
    let (packet, counted) = loaded.pass(&frame);
    assert_eq!((packet, counted), (frame.bytes(), vec!["syns"]));
}

/// Packets without an Ethernet header. Their sources have the type of one where a test run expects
/// it.
pub(crate) fn bare() {
    let mut loaded = Loaded::new();
    for from in [[8, 0, 2, 1].into(), "2001:db8:86dd:2::7".parse().unwrap()] {
        let frame = Frame { link: Link::Bare, ..valid(from) };
        let (packet, counted) = loaded.pass(&frame);
        assert_eq!((packet, counted), (frame.stripped().bytes(), vec!["syns", TAKEN]), "{from}");
        let (_, counted) = loaded.pass(&frame);
        assert_eq!(counted, ["syns", "replayed"], "{from}");
        left_alone(&mut loaded, &Frame { flags: ACK, ..frame });
    }
}
