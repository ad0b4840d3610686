use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_proto::{ClientEvent, PlainReason, ResetReason};

use crate::path::PathReason;

/// Moments kept of one connection: three flights, all slots and answers, and some attempts.
const MOMENTS_MAX: usize = 96;

/// How a connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenedBy {
    /// TLS over TCP.
    Plain,
    /// The first flights over UDP.
    TurboTls,
    /// TLS over TCP, the first flight in the SYN.
    FastOpen,
}

impl OpenedBy {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TurboTls => "turbo",
            Self::FastOpen => "fop",
        }
    }
}

/// Why TurboTLS was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsed {
    /// Switched off.
    Policy,
    /// Only the HTTPS port can be advertised; others have to be configured.
    Port,
    /// An address was given, and no name.
    Literal,
    /// The name does not advertise.
    NotAdvertised,
    /// The advertisement was not there in time.
    AdvertLate,
    /// The offer does not hold for the address that TCP tries first.
    OtherAddress,
    /// The path is known not to bear it.
    Path(PathReason),
    /// Too many openings on this path at the same time.
    PathBusy,
    /// The system refused the UDP socket.
    Socket,
    /// It was tried, and fell back.
    Fallback(PlainReason),
}

impl NotUsed {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Port => "port",
            Self::Literal => "address_literal",
            Self::NotAdvertised => "not_advertised",
            Self::AdvertLate => "advert_late",
            Self::OtherAddress => "other_address",
            Self::Path(_) => "path_memory",
            Self::PathBusy => "path_busy",
            Self::Socket => "socket",
            Self::Fallback(reason) => reason.name(),
        }
    }
}

impl fmt::Display for NotUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Policy => "switched off (opening plain)",
            Self::Port => "only port 443 can be advertised; configure an edge for other ports",
            Self::Literal => "the target is an address, and no name is known for it",
            Self::NotAdvertised => "the name's HTTPS record does not advertise it",
            Self::AdvertLate => "the HTTPS record was not there before TCP connected",
            Self::OtherAddress => "not offered at the address that TCP tried first",
            Self::Path(reason) => return write!(f, "remembered of this path: {reason}"),
            Self::PathBusy => "too many openings on this path at the same time",
            Self::Socket => "no UDP socket to that address could be had",
            Self::Fallback(reason) => return reason.fmt(f),
        };
        f.write_str(text)
    }
}

/// What happened at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// So many addresses were found.
    Resolved(usize),
    /// An offer of TurboTLS became known.
    Offered,
    /// A SYN went to this address.
    Syn(SocketAddr),
    /// TurboTLS is out of the question.
    NotUsed(NotUsed),
    /// The transport's own account.
    Transport(ClientEvent),
}

/// An entry of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the connection was asked for.
    pub at: Duration,
    /// What happened.
    pub what: What,
}

/// An account of one opening: what it took, and why not less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the connection was opened; plain until it is known better.
    pub opened_by: OpenedBy,
    /// Why TurboTLS was not used, where that is so and known.
    pub not_used: Option<NotUsed>,
    /// Why the application saw a reset, if it was the opening's doing.
    pub reset: Option<ResetReason>,
    /// The server's address, once connected.
    pub address: Option<SocketAddr>,
    /// What TCP took to connect.
    pub rtt: Option<Duration>,
    /// Everything in order; the first 96 entries.
    pub timeline: Vec<Moment>,
}

impl Report {
    pub(super) const fn new() -> Self {
        let timeline = Vec::new();
        Self {
            opened_by: OpenedBy::Plain,
            not_used: None,
            reset: None,
            address: None,
            rtt: None,
            timeline,
        }
    }

    pub(super) fn note(&mut self, at: Duration, what: What) {
        if self.timeline.len() < MOMENTS_MAX {
            self.timeline.push(Moment { at, what });
        }
    }
}
