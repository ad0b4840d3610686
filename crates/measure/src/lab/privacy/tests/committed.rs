//! Committed captures, decided again.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use headstart_emulation::{UdpDatagram, read_packets};
use headstart_proto::wire::VERSION;

use super::*;
use crate::lab::raw;

/// One cell as it is kept beside a capture.
#[derive(Deserialize)]
struct Decided {
    cell: String,
    servers: Vec<IpAddr>,
    cases: Vec<Case>,
    finding: Finding,
}

/// Every stage of committed results with captures: what was decided of it, and its capture.
fn committed() -> Vec<(Vec<Decided>, PathBuf)> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results");
    let folders = files(&results).into_iter().map(|folder| folder.join("captures"));
    let mut all = Vec::new();
    for file in folders.flat_map(|folder| files(&folder)) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stage) = name.strip_suffix("-cases.json") else { continue };
        let capture = file.with_file_name(format!("{stage}-client-1.pcapng"));
        let decided = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        all.push((decided, capture));
    }
    all
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A capture as it would be in this version of the wire: of datagrams of version 1, which differ in
/// the second byte alone.
fn in_this_version(mut packets: Vec<CapturedPacket>) -> Vec<CapturedPacket> {
    for packet in &mut packets {
        let payload = UdpDatagram::read(&packet.bytes).map_or(0, |it| it.payload.len());
        let at = packet.bytes.len() - payload;
        if let Some([8 | 9, version @ 0x10]) = packet.bytes.get_mut(at..at + 2) {
            *version = VERSION;
        }
    }
    packets
}

/// The same capture as if the servers gave one and the same private cookie to everybody.
fn with_one_cookie(packets: &[CapturedPacket], servers: &[IpAddr]) -> Vec<CapturedPacket> {
    let mut packets = packets.to_vec();
    for packet in &mut packets {
        if let Some(place) = private_cookie(packet, servers) {
            packet.bytes[place].fill(0x5a);
        }
    }
    packets
}

/// Returns the position at which a packet shows a private cookie to one of the servers.
fn private_cookie(packet: &CapturedPacket, servers: &[IpAddr]) -> Option<Range<usize>> {
    let segment = TcpSegment::read(&packet.bytes)?;
    let shown = packet.from_node && segment.syn && servers.contains(&segment.destination.ip());
    let cookie = segment.fast_open().into_iter().find(|cookie| cookie.len() == 16)?.to_vec();
    let at = packet.bytes.windows(16).position(|window| window == cookie)?;
    shown.then_some(at..at + 16)
}

/// Verdicts that are committed come from the captures beside them; and from the same captures with
/// a cookie that does not change comes another verdict, for every row and arm of private cookies.
#[test]
fn committed_captures_are_decided_again_and_would_show_a_static_cookie() {
    let mut changed = 0;
    for (decided, capture) in committed() {
        let packets = in_this_version(read_packets(raw::open(&capture).unwrap()).unwrap());
        let seen = connections(&packets);
        for Decided { cell, servers, cases, finding } in decided {
            let place = format!("{cell}: {}", capture.display());
            let boundary = finding.boundary;
            let again = decide(boundary, &servers, &cases, &seen);
            assert_eq!(again.linkable, finding.linkable, "{place}: {again:?}");
            let [again, decided] =
                [again, finding].map(|it| [it.viable, it.bounded, it.blocked, it.undecided]);
            assert_eq!(again, decided, "{place}");
            if cell.starts_with("fop") {
                let changed_packets = with_one_cookie(&packets, &servers);
                assert_ne!(changed_packets, packets, "{place} has no private cookie");
                let found = decide(boundary, &servers, &cases, &connections(&changed_packets));
                assert_eq!(found.linkable, Some(Linkable::Viable), "{place}: {found:?}");
                changed += 1;
            }
        }
    }
    eprintln!("{changed} committed verdicts about private cookies were decided again");
}
