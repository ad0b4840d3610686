//! Recordings built byte by byte: TLS flights, IP packets, frames, capture files.
#![allow(dead_code)] // each test uses its part

pub(crate) mod file;
pub(crate) mod ip;
pub(crate) mod tls;

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use headstart_pageload::sharing::{Audit, Report};
use serde_json::Value;

use self::file::{Link, pcap};
use self::ip::Talk;

/// A recorded TLS connection: who, where, when, how.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// Its source port, which tells connections apart.
    pub(crate) port: u16,
    pub(crate) server: SocketAddr,
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) up: Vec<u8>,
    pub(crate) down: Vec<u8>,
}

/// Beginning of all test captures: 2026-11-21.
pub(crate) const EPOCH_MS: u64 = 1_795_000_000_000;

impl Visit {
    pub(crate) fn new(port: u16, server: &str, second: u64, up: Vec<u8>, down: Vec<u8>) -> Self {
        let server = SocketAddr::new(server.parse().unwrap(), 443);
        Self { port, server, at: EPOCH_MS + second * 1000, up, down }
    }

    /// A full handshake of TLS 1.3.
    pub(crate) fn full(port: u16, server: &str, second: u64, name: &str) -> Self {
        Self::new(port, server, second, tls::hello(name).stream(), tls::answer13(false))
    }

    /// A resumed one.
    pub(crate) fn resumed(port: u16, server: &str, second: u64, name: &str) -> Self {
        let hello = tls::hello(name).ticket(&[9; 188]).stream();
        Self::new(port, server, second, hello, tls::answer13(true))
    }

    pub(crate) fn talk(&self) -> Talk {
        let client: IpAddr = match self.server.ip() {
            IpAddr::V4(_) => "192.0.2.7".parse().unwrap(),
            IpAddr::V6(_) => "2001:db8::7".parse().unwrap(),
        };
        Talk::new(SocketAddr::new(client, self.port), self.server)
    }

    /// Its packets with their times in milliseconds: the answer comes 20 ms after the ClientHello.
    pub(crate) fn packets(&self) -> Vec<(u64, Vec<u8>)> {
        let mut talk = self.talk();
        let mut packets: Vec<(u64, Vec<u8>)> =
            talk.open().into_iter().map(|packet| (self.at, packet)).collect();
        packets.extend(talk.up(&self.up).into_iter().map(|packet| (self.at, packet)));
        packets.extend(talk.down(&self.down).into_iter().map(|packet| (self.at + 20, packet)));
        packets
    }
}

/// The packets of all visits in the order of their times, in a pcap file of raw IP.
pub(crate) fn capture(visits: &[Visit]) -> Vec<u8> {
    let mut packets: Vec<(u64, Vec<u8>)> = visits.iter().flat_map(Visit::packets).collect();
    packets.sort_by_key(|(at, _)| *at);
    pcap(Link::Raw, packets.iter().map(|(at, packet)| (*at, packet.as_slice())))
}

/// Returns the JSON with this value at this place.
pub(crate) fn with(mut json: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    json.pointer_mut(parent).unwrap()[key] = value;
    json
}

/// A piece of input that comes `left` times, made while it is read.
pub(crate) struct Repeated<'p> {
    piece: &'p [u8],
    given: usize,
    left: usize,
}

impl<'p> Repeated<'p> {
    pub(crate) fn new(piece: &'p [u8], times: usize) -> Self {
        Self { piece, given: piece.len(), left: times }
    }
}

impl Read for Repeated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.piece.len() && self.left > 0 {
            (self.given, self.left) = (0, self.left - 1);
        }
        let count = (&self.piece[self.given..]).read(buffer)?;
        self.given += count;
        Ok(count)
    }
}

/// Returns an audit's report of one file.
pub(crate) fn audited(file: &[u8]) -> Report {
    let mut audit = Audit::new();
    audit.read("test", file).unwrap();
    audit.report(None)
}
