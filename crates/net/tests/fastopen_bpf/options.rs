//! Fast Open options of every form are removed from the SYN, and nothing else is.

use crate::frame::{Frame, USUAL, option};
use crate::program::{LIFE, Loaded, NOW, TAKEN};
use crate::support::{key, mint};

/// Number of the experimental option in RFC 7413 appendix A.
const MAGIC: [u8; 2] = [0xf9, 0x89];

fn client() -> std::net::IpAddr {
    [198, 51, 100, 7].into()
}

fn cookie() -> [u8; 16] {
    *mint(&key(1), NOW + LIFE, client()).as_bytes()
}

/// Checks that all these options of a SYN are removed; returns what the program counted.
fn stripped(loaded: &mut Loaded, options: &[u8]) -> Vec<&'static str> {
    let frame = Frame::syn(client()).options(options);
    let (packet, counted) = loaded.pass(&frame);
    assert_eq!(packet, frame.stripped().bytes(), "{options:?}");
    counted
}

/// Checks that the SYN stays unchanged.
fn untouched(loaded: &mut Loaded, options: &[u8]) {
    let frame = Frame::syn(client()).options(options);
    let (packet, counted) = loaded.pass(&frame);
    assert_eq!(packet, frame.bytes(), "{options:?}");
    assert_eq!(counted, ["syns"], "{options:?}");
}

// F-SERVER-1
pub(crate) fn fast_open_forms() {
    let mut loaded = Loaded::new();
    assert_eq!(stripped(&mut loaded, &option(34, &cookie())), ["syns", TAKEN]);
    // A request, the kernel's cookies, one byte less and more than ours.
    for length in [0, 1, 4, 8, 15, 17, 30] {
        let content = vec![7; length];
        assert_eq!(stripped(&mut loaded, &option(34, &content)), ["syns", "stripped"], "{length}");
    }
    // The experimental form, with or without a cookie, even with one of ours.
    for content in [&[][..], &[7; 8], &cookie()] {
        let content = [&MAGIC, content].concat();
        assert_eq!(stripped(&mut loaded, &option(254, &content)), ["syns", "stripped"]);
    }
    assert_eq!(loaded.maps().spent().unwrap(), 1);
}

/// Several cookies are all rejected, so it does not matter which one the kernel would read.
pub(crate) fn several() {
    let mut loaded = Loaded::new();
    let ours = option(34, &cookie());
    // Two do not fit beside the usual options.
    let mut frame = Frame::syn(client());
    frame.options = [&ours[..], &option(34, &cookie()), &[1; 4]].concat();
    let (packet, counted) = loaded.pass(&frame);
    frame.options = vec![1; 40];
    assert_eq!((packet, counted), (frame.bytes(), vec!["syns", "stripped"]));
    for other in [option(34, &[]), option(34, &[7; 8]), option(254, &MAGIC)] {
        for both in [[&ours[..], &other].concat(), [&other[..], &ours].concat()] {
            assert_eq!(stripped(&mut loaded, &both), ["syns", "stripped"]);
        }
    }
    assert_eq!(stripped(&mut loaded, &[34, 2, 34, 2, 254, 4, 0xf9, 0x89]), ["syns", "stripped"]);
    assert_eq!(loaded.maps().spent().unwrap(), 0);
}

pub(crate) fn odd_offsets() {
    let mut loaded = Loaded::new();
    for before in 0..8 {
        let options = [vec![1; before], option(34, &cookie())].concat();
        assert_eq!(stripped(&mut loaded, &options), ["syns", TAKEN], "{before}");
        let options = [vec![1; before], option(34, &[1, 2, 3])].concat();
        assert_eq!(stripped(&mut loaded, &options), ["syns", "stripped"], "{before}");
    }
}

/// Bytes behind the end of the list are not options, for the kernel as well.
pub(crate) fn end_of_list() {
    let mut loaded = Loaded::new();
    untouched(&mut loaded, &[&[0][..], &option(34, &cookie())].concat());
    untouched(&mut loaded, &[1, 1, 0, 34, 2]);
    let frame = Frame::syn(client()).options(&[34, 2, 0, 34, 2, 1, 1, 1]);
    let (packet, counted) = loaded.pass(&frame);
    let kept = Frame { options: [&USUAL[..], &[1, 1, 0, 34, 2, 1, 1, 1]].concat(), ..frame };
    assert_eq!((packet, counted), (kept.bytes(), vec!["syns", "stripped"]));
}

/// The kernel stops at such an option, and so does the program.
pub(crate) fn bad_lengths() {
    let mut loaded = Loaded::new();
    for length in [0, 1, 19, 40, 41, 255] {
        untouched(&mut loaded, &[&[34, length][..], &cookie()[..14]].concat());
    }
    // Another option with such a length hides what follows.
    for length in [0, 1, 30, 255] {
        untouched(&mut loaded, &[&[30, length][..], &option(34, &[7; 8])].concat());
    }
    // A kind alone in the last byte.
    untouched(&mut loaded, &[1, 1, 1, 34]);
    // Options before it are read as usual.
    let frame = Frame::syn(client()).options(&[34, 3, 9, 34, 1, 1, 1, 1]);
    let (packet, counted) = loaded.pass(&frame);
    let kept = Frame { options: [&USUAL[..], &[1, 1, 1, 34, 1, 1, 1, 1]].concat(), ..frame };
    assert_eq!((packet, counted), (kept.bytes(), vec!["syns", "stripped"]));
}

/// Takes as many rounds of the parser as possible.
pub(crate) fn all_no_operations() {
    let mut loaded = Loaded::new();
    let mut frame = Frame::syn(client());
    frame.options = [&[1; 38][..], &[34, 2]].concat();
    let (packet, counted) = loaded.pass(&frame);
    frame.options = vec![1; 40];
    assert_eq!((packet, counted), (frame.bytes(), vec!["syns", "stripped"]));
    assert_eq!(loaded.pass(&frame), (frame.bytes(), vec!["syns"]));
    // A cookie at the very end.
    let mut frame = Frame::syn(client());
    frame.options = [&[1; 22][..], &option(34, &cookie())].concat();
    let (packet, counted) = loaded.pass(&frame);
    frame.options = vec![1; 40];
    assert_eq!((packet, counted), (frame.bytes(), vec!["syns", TAKEN]));
}

/// Options with other meanings, and other experiments.
pub(crate) fn others() {
    let mut loaded = Loaded::new();
    for options in [
        // Timestamps and window scale, as Linux sends them.
        &[8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 10][..],
        &[253, 4, 0xf9, 0x89],
        &[254, 4, 0xf9, 0x88],
        &[254, 4, 0x89, 0xf9],
        &[254, 3, 0xf9, 0x89],
        &[254, 2, 0xf9, 0x89],
        // Multipath TCP.
        &[30, 4, 0, 0x81],
        // Our option inside another one.
        &[77, 6, 34, 4, 1, 2],
    ] {
        untouched(&mut loaded, options);
    }
    let usual = [8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 10];
    let frame = Frame::syn(client());
    let options = [&[2, 4, 5, 0xb4, 4, 2][..], &usual, &option(34, &cookie()), &[1, 1]].concat();
    let frame = Frame { options, ..frame };
    let (packet, counted) = loaded.pass(&frame);
    let kept = [&[2, 4, 5, 0xb4, 4, 2][..], &usual, &[1; 20]].concat();
    assert_eq!(packet, Frame { options: kept, ..frame }.bytes());
    assert_eq!(counted, ["syns", TAKEN]);
}
