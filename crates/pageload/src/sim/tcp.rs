//! Loads over TCP and TLS as they are: openings of the round-trip ledger, slow start, one shared
//! link, servers that think.
//!
//! The link is one bottleneck with a queue in each direction. Each connection has Linux's window:
//! ten segments at first (RFC 6928), doubled in each round trip until the queue is seen to grow
//! (HyStart) or a segment is lost, then CUBIC's beta (RFC 9438); back to ten after a pause.
//! Segments that overtake a lost one wait for it.
//!
//! The client's processor is not here but in recordings: [`in_browser`](super::browser::in_browser)
//! tells it.
//!
//! Not here: contention for it between requests that did not meet when recorded, delayed
//! acknowledgements, the spread of round-trip times between servers, slow start of what the client
//! sends. HTTP/3 is an opening only: what follows it is as over TCP.

mod ahead;
mod client;
mod connect;
mod link;
mod others;
mod overhead;
mod scheduler;
mod sender;
mod techniques;
mod transfer;

use std::time::Duration;

pub use overhead::Overhead;
pub use techniques::{Technique, Techniques};

use super::Load;
use crate::page::Page;

/// Settings of a simulated load.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The network.
    pub link: Link,
    /// Techniques that save time.
    pub techniques: Techniques,
    /// The client's state for each server at the start.
    pub revisit: Revisit,
    /// Probability that databases know the page.
    pub hit_rate: f64,
    /// Time at which databases of servers and of resources to prefetch take effect.
    pub delivery: Delivery,
    /// Limits on connections and the requests on them.
    pub pools: Pools,
    /// Time of the first lookup of a name; zero if addresses are known.
    pub dns: Duration,
    /// Costs of a handshake besides round trips.
    pub tls: Handshake,
    /// Timeouts of both ends.
    pub timers: Timers,
    /// Time that the means themselves take.
    pub overhead: Overhead,
}

impl Default for Settings {
    /// Returns a first visit by TCP and full TLS 1.3 over an unlimited link of 50 ms. Databases,
    /// where they are used, know the page.
    fn default() -> Self {
        Self {
            link: Link::default(),
            techniques: Techniques::default(),
            revisit: Revisit::default(),
            hit_rate: 1.0,
            delivery: Delivery::default(),
            pools: Pools::default(),
            dns: Duration::ZERO,
            tls: Handshake::default(),
            timers: Timers::default(),
            overhead: Overhead::default(),
        }
    }
}

/// When databases of servers and of what to prefetch speak, and how much of what they have they can
/// say.
///
/// Redirects and HTTP/2 are known at the start in either case: an extension can say the first, and
/// nobody yet the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// At the start, all that they have: to a browser that was changed, as BLAST has it. What it
    /// asked for ahead has its effect as soon as it is there.
    #[default]
    Start,
    /// When the head of the document's answer comes, or Early Hints do: to browsers as they are, by
    /// `Link` fields or an extension.
    ///
    /// * What is preloaded is of [`Resource::in_links`](crate::page::Resource::in_links). It is
    ///   used when the page comes to it, and not before: a script that is there does not run until
    ///   something asks for it.
    /// * It is the page's: what a frame of another site needs of it is asked for again
    ///   ([`Resource::in_foreign_frame`](crate::page::Resource::in_foreign_frame)).
    /// * One connection is opened to each server, and it is the page's, not that of such frames.
    Document,
}

/// The network between the client and all servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Round-trip time of an idle link.
    pub rtt: Duration,
    /// Bytes a second to the client, at least 1,000; `None` for no limit.
    pub down: Option<u64>,
    /// Bytes a second to the servers, at least 1,000; `None` for no limit.
    pub up: Option<u64>,
    /// Bytes of the queue to the client; what exceeds it is dropped.
    pub queue: u64,
    /// Share of packets lost in each direction, at most 0.9.
    pub loss: f64,
}

impl Default for Link {
    fn default() -> Self {
        Self { rtt: Duration::from_millis(50), down: None, up: None, queue: 256_000, loss: 0.0 }
    }
}

/// Shares of servers for which the client has kept something, each drawn independently.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Revisit {
    /// A Fast Open cookie.
    pub cookies: f64,
    /// A changed address since the cookie was issued. Cookies of RFC 7413 are kept by address and
    /// then miss; private ones are kept by name and do not (Sy et al. 2019, section 5.3).
    pub moved: f64,
    /// A TLS session.
    pub sessions: f64,
    /// A TLS session, if the machine's applications share theirs (Hiller et al. 2019).
    pub shared_sessions: f64,
    /// The address.
    pub addresses: f64,
    /// An idle connection.
    pub connections: f64,
}

impl Revisit {
    /// Returns the state of a client that keeps everything after its connections are closed.
    pub fn again() -> Self {
        Self {
            cookies: 1.0,
            sessions: 1.0,
            shared_sessions: 1.0,
            addresses: 1.0,
            ..Self::default()
        }
    }
}

/// Limits on HTTP/1.1 connections to one server, and the requests on each. HTTP/2 has one
/// connection without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    /// Maximum simultaneous connections.
    pub connections: usize,
    /// Maximum outstanding requests, where the server allows pipelining; 1 means none.
    pub depth: usize,
}

impl Default for Pools {
    /// Returns the limits of browsers.
    fn default() -> Self {
        Self { connections: 6, depth: 1 }
    }
}

/// Costs of a TLS 1.3 handshake besides round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Bytes of the ClientHello. If it does not fit a SYN, Fast Open gains nothing.
    pub client_hello: u64,
    /// Bytes of the ClientHello with a session, including the ticket.
    pub resumed_hello: u64,
    /// Bytes of the server's flight, with certificates.
    pub full_flight: u64,
    /// Bytes of the server's flight when it resumes.
    pub resumed_flight: u64,
    /// Processor time of both ends, with certificates.
    pub full: Duration,
    /// Processor time of both ends when resumed.
    pub resumed: Duration,
}

impl Default for Handshake {
    /// X25519, tickets as headstart's, and a chain of two ECDSA P-256 certificates. Processor time
    /// as of OpenSSL 3 on one core of a current processor: half a millisecond, and a third of that.
    fn default() -> Self {
        Self {
            client_hello: 517,
            resumed_hello: 895,
            full_flight: 3_500,
            resumed_flight: 300,
            full: Duration::from_micros(500),
            resumed: Duration::from_micros(170),
        }
    }
}

/// Timeouts of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Timeout of a SYN.
    pub syn: Duration,
    /// Minimum timeout of a SYN with a private cookie, before one without follows.
    pub fallback: Duration,
    /// Time in addition to two round trips for the acknowledgement of a single packet.
    pub probe: Duration,
    /// Idle time in addition to a round trip, after which the window starts anew.
    pub idle: Duration,
}

impl Default for Timers {
    /// Linux: 1 s (RFC 6298) and 200 ms (`TCP_RTO_MIN`, of RFC 8985 section 7.2 and RFC 5681
    /// section 4.1). The fallback of headstart's Fast Open is 300 ms.
    fn default() -> Self {
        Self {
            syn: Duration::from_secs(1),
            fallback: Duration::from_millis(300),
            probe: Duration::from_millis(200),
            idle: Duration::from_millis(200),
        }
    }
}

/// Simulates one load of a page, all of whose servers take part. The same `seed` gives the same
/// result.
pub fn load(page: &Page, settings: &Settings, seed: u64) -> Load {
    load_with(page, settings, |_| true, seed)
}

/// Simulates one load of a page. The same `seed` gives the same result.
///
/// `takes_part` says of each of [`Page::servers`] whether Fast Open, TurboTLS, early data and
/// shared sessions may be used with it: whether it has an edge.
pub fn load_with(
    page: &Page,
    settings: &Settings,
    takes_part: impl Fn(usize) -> bool,
    seed: u64,
) -> Load {
    client::load(page, settings, &takes_part, seed)
}
