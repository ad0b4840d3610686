//! The memory that a capture larger than it takes: the only test of its process, so that the peak
//! is its own.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod support;

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headstart_pageload::sharing::{Audit, limits};
use support::EPOCH_MS;
use support::file::{Link, pcap_header, pcap_packet};
use support::ip::{Tcp, tcp};
use support::tls::hello;

/// Connections of the capture: more than may be open at the same time.
const CONNECTIONS: u32 = 4 * 65_536;

/// Bytes that each leaves waiting: together more than may be kept.
const AHEAD: usize = 1000;

/// A capture that is made while it is read: each connection opens, sends half a ClientHello, and a
/// segment behind one that is missing; none ever ends.
struct Endless {
    next: u32,
    ready: Vec<u8>,
    given: usize,
    bytes: u64,
}

impl Endless {
    fn refill(&mut self) {
        let at = self.next;
        self.next += 1;
        let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + at)), 40_000);
        let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 443);
        let hello = hello(&format!("n{at}.example")).bytes();
        let half = &hello[..hello.len() / 2];
        let behind = 1 + u32::try_from(hello.len()).unwrap();
        let segments = [
            Tcp { seq: 0, ack: None, syn: true, payload: &[] },
            Tcp { seq: 1, ack: Some(1), syn: false, payload: half },
            Tcp { seq: behind, ack: Some(1), syn: false, payload: &[0; AHEAD] },
        ];
        self.given = 0;
        self.ready.clear();
        for segment in segments {
            let packet = tcp(client, server, segment);
            self.ready
                .extend(pcap_packet(EPOCH_MS + u64::from(at), &Link::Ethernet.frame(&packet)));
        }
        self.bytes += self.ready.len() as u64;
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() && self.next < CONNECTIONS {
            self.refill();
        }
        let count = self.ready[self.given..].as_ref().read(buffer)?;
        self.given += count;
        Ok(count)
    }
}

/// The most memory that this process has had, in bytes (Linux).
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

#[test]
fn a_capture_larger_than_its_memory() {
    let header = pcap_header(Link::Ethernet);
    let mut input = Endless { next: 0, ready: header, given: 0, bytes: 0 };
    let before = peak();
    let mut audit = Audit::new();
    audit.read("endless", &mut input).unwrap();
    let (before, after) = match (before, peak()) {
        (Some(before), Some(after)) => (before, after),
        _ => {
            println!("skipped: the system does not say how much memory a process has");
            return;
        }
    };
    let report = audit.report(None);
    assert_eq!(report.seen.tcp_connections, u64::from(CONNECTIONS));
    assert!(report.seen.displaced > u64::from(CONNECTIONS / 2));
    assert!(input.bytes > 300 << 20, "{}", input.bytes);
    // What is kept, one block buffer, and for each open connection its entry with a table that
    // grows by doubling.
    let kept = (limits::FLOW_BYTES + limits::CAPTURE_BLOCK) as u64;
    let entries = 2 * 1024 * limits::FLOWS as u64;
    let used = after - before;
    assert!(used < kept + entries, "{} MiB for {} MiB", used >> 20, input.bytes >> 20);
}
