//! Loads over TCP and TLS as they are: openings of the round-trip ledger, slow start, one shared link, servers that think.
//!
//! The link is one bottleneck with a queue in each direction. Each connection has Linux's window: ten segments at first
//! (RFC 6928), doubled in each round trip until the queue is seen to grow (HyStart) or a segment is lost, then CUBIC's
//! beta (RFC 9438); back to ten after a pause. Segments that overtake a lost one wait for it.
//!
//! Not here: contention for the client's processor, delayed acknowledgements, the spread of round-trip times.

mod client;
mod link;
mod opening;
mod sender;

use std::time::Duration;

pub use client::Simulator;
pub use opening::{Opening, Session};

use super::events::Instant;

/// What a load is simulated with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The network.
    pub link: Link,
    /// How connections are opened to servers that take part, where their state allows.
    pub opening: Opening,
    /// What the client has of each server at the start.
    pub revisit: Revisit,
    /// Whether the first request may leave before the handshake has ended (RFC 8446 section 2.3).
    pub early_data: bool,
    /// What databases and hints the client has.
    pub hints: Hints,
    /// HTTP/1.1 connections to one server.
    pub connections: usize,
    /// From a name to an address, the first time; zero where that is known.
    pub dns: Duration,
    /// What TLS costs the processors of both ends, full and resumed.
    pub crypto: Crypto,
}

impl Default for Settings {
    /// A first visit by plain TLS 1.3 over an unlimited link of 50 ms.
    fn default() -> Self {
        Self {
            link: Link::default(),
            opening: Opening::Plain,
            revisit: Revisit::default(),
            early_data: false,
            hints: Hints::default(),
            connections: 6,
            dns: Duration::ZERO,
            crypto: Crypto::default(),
        }
    }
}

/// The network between the client and all servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Round-trip time without load.
    pub rtt: Duration,
    /// Bytes a second to the client; none for no limit.
    pub down: Option<u64>,
    /// Bytes a second to the servers; none for no limit.
    pub up: Option<u64>,
    /// Bytes that wait for the link, each way; what is more is dropped.
    pub queue: u64,
    /// Share of packets lost, each way.
    pub loss: f64,
}

impl Default for Link {
    fn default() -> Self {
        Self { rtt: Duration::from_millis(50), down: None, up: None, queue: 256_000, loss: 0.0 }
    }
}

/// Shares of servers of which the client has something from before, each drawn for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Revisit {
    /// A Fast Open cookie that fits.
    pub cookies: f64,
    /// A TLS session.
    pub sessions: f64,
    /// The address.
    pub addresses: f64,
}

/// What is known of a page before it is loaded (BLAST, chapter 5), for the share of pages or servers that is hit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// Where the page's redirects lead.
    pub redirects: bool,
    /// The servers: connections to them are opened at the start.
    pub servers: bool,
    /// Which servers speak HTTP/2: one connection to them is enough from the start.
    pub http2: bool,
    /// The resources: they are asked for at the start.
    pub prefetch: bool,
    /// The document's own server says what the document will need before it has made it (RFC 8297).
    pub early_hints: bool,
    /// The proxy is given data before it has said that it is connected: the round trip of TCP behind it is none.
    pub optimistic_data: bool,
}

/// Processor time of a handshake, both ends together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crypto {
    /// With certificates.
    pub full: Duration,
    /// Without.
    pub resumed: Duration,
}

impl Default for Crypto {
    /// ECDSA P-256 and X25519 by OpenSSL 3 on one core of a current processor: half a millisecond, and a third of that.
    fn default() -> Self {
        Self { full: Duration::from_micros(500), resumed: Duration::from_micros(170) }
    }
}

/// Nanoseconds of a duration; a load longer than an hour is none.
fn nanos(duration: Duration) -> Instant {
    const MAX: Instant = 3_600_000_000_000;
    u64::try_from(duration.as_nanos()).unwrap_or(MAX).min(MAX)
}
