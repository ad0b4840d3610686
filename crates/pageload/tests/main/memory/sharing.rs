//! A capture that is larger than the memory it may take.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headstart_pageload::sharing::{Audit, limits};

use super::{is_alone, peak};
use crate::support::EPOCH_MS;
use crate::support::file::{Link, pcap_header, pcap_packet};
use crate::support::ip::{Tcp, tcp};
use crate::support::tls::hello;

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
        let hello = hello(&format!("n{at}.example")).stream();
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
        let count = (&self.ready[self.given..]).read(buffer)?;
        self.given += count;
        Ok(count)
    }
}

#[test]
fn a_capture_larger_than_its_memory() {
    if !is_alone("memory::sharing::a_capture_larger_than_its_memory") {
        return;
    }
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
