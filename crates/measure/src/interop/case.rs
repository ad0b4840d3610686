//! The cases: a network, what the two ends of TLS do over it, and what a capture has to show.

use headstart_emulation::Balance;

/// A network and what happens on it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What is between the client and the network. For each path a new client is started.
    pub(super) paths: &'static [&'static str],
    /// Connections that each client opens one after the other.
    pub(super) openings: u8,
    pub(super) servers: Servers,
    pub(super) tls: Tls,
    pub(super) exchange: Exchange,
    pub(super) expected: Expected,
}

/// Servers that have the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Servers {
    One,
    /// Ended and started again after each connection.
    Restarted,
    /// Two with one address.
    Two(Balance),
    /// Two whose client's TCP meets the one and whose UDP meets the other, and which forward joins.
    Fleet,
    /// One, while a third party sends forged datagrams.
    Attacked,
}

/// Properties of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tls {
    Usual,
    LargeHello,
    LargeFlight,
    Tls12,
    HelloRetry,
    EarlyData,
}

/// Bytes that follow the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// The client asks, the server answers and ends.
    Download(u32),
    /// The server answers with the checksum of what it got.
    Upload(u32),
    /// The server answers once the client has ended its direction.
    HalfClose(u32),
    /// The server breaks the connection off in the midst of its answer.
    Reset(u32),
}

/// Ways in which a connection may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// ClientHello and server bytes over UDP, then a join that is accepted.
    Joined,
    /// ClientHello over UDP; whatever came of it.
    Attempted,
    /// No session is joined.
    Plain,
    /// A session may be joined, or refused once: then the connection breaks, and later ones are
    /// plain.
    RefusedOnce,
}

/// UDP comes through well before TCP: on a busy machine, too, an answer is there before its grace
/// ends.
const USUAL: &str = "delay 20ms, tcp delay 100ms";

macro_rules! usual {
    ($more:literal) => {
        concat!("delay 20ms, tcp delay 100ms, ", $more)
    };
}

const DOWNLOAD: Exchange = Exchange::Download(100_000);

const OPENING: Case = Case {
    name: "opening",
    paths: &[USUAL],
    openings: 1,
    servers: Servers::One,
    tls: Tls::Usual,
    exchange: DOWNLOAD,
    expected: Expected::Joined,
};

/// All cases, in the order of the matrix.
pub(super) const CASES: &[Case] = &[
    OPENING,
    Case {
        name: "request-lost",
        paths: &[
            usual!("up(udp loss packets 1)"),
            usual!("up(udp loss packets 2)"),
            usual!("up(udp loss packets 3)"),
            usual!("up(udp loss packets 4)"),
            usual!("up(udp loss packets 5)"),
            usual!("up(udp loss packets 6)"),
        ],
        tls: Tls::LargeHello,
        expected: Expected::Attempted,
        ..OPENING
    },
    Case {
        name: "response-lost",
        paths: &[
            usual!("down(udp loss packets 1)"),
            usual!("down(udp loss packets 2)"),
            usual!("down(udp loss packets 3)"),
            usual!("down(udp loss packets 4)"),
            usual!("down(udp loss packets 5)"),
            usual!("down(udp loss packets 6)"),
        ],
        tls: Tls::LargeFlight,
        expected: Expected::Attempted,
        ..OPENING
    },
    Case {
        name: "reordered",
        paths: &[usual!("udp reorder packets 1,3 by 10ms")],
        tls: Tls::LargeHello,
        ..OPENING
    },
    Case { name: "duplicated", paths: &[usual!("udp duplicate 100%")], ..OPENING },
    Case { name: "large-hello", tls: Tls::LargeHello, ..OPENING },
    Case { name: "large-flight", tls: Tls::LargeFlight, ..OPENING },
    Case { name: "tls12", tls: Tls::Tls12, ..OPENING },
    Case { name: "hello-retry", tls: Tls::HelloRetry, ..OPENING },
    Case { name: "early-data", tls: Tls::EarlyData, openings: 2, ..OPENING },
    Case { name: "upload", exchange: Exchange::Upload(1_000_000), ..OPENING },
    Case { name: "half-close", exchange: Exchange::HalfClose(100_000), ..OPENING },
    Case { name: "reset", exchange: Exchange::Reset(100_000), ..OPENING },
    Case { name: "edge-restarted", servers: Servers::Restarted, openings: 2, ..OPENING },
    Case { name: "forwarded-join", servers: Servers::Fleet, ..OPENING },
    Case {
        name: "udp-blocked",
        paths: &[usual!("drop udp"), usual!("up(drop udp)"), usual!("down(drop udp)")],
        openings: 2,
        expected: Expected::Plain,
        ..OPENING
    },
    Case { name: "tls-only-firewall", paths: &[usual!("dpi tls-only")], ..OPENING },
    Case { name: "nat", paths: &[usual!("nat 203.0.113.1")], ..OPENING },
    Case { name: "balancer-by-source", servers: Servers::Two(Balance::Source), ..OPENING },
    Case {
        name: "balancer-by-flow",
        servers: Servers::Two(Balance::Flow),
        openings: 6,
        expected: Expected::RefusedOnce,
        ..OPENING
    },
    Case { name: "spoofed-datagrams", servers: Servers::Attacked, ..OPENING },
];
