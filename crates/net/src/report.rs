//! The report on an opening: its events and times, and why it was not faster.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headstart_proto::Carrier;
use headstart_proto::fastopen::{FastOpenEvent, NotFast};
use headstart_proto::{ClientEvent, PlainReason, ResetReason};
use headstart_sessions::{Network, Unspendable};

use crate::path::PathReason;

/// Entries kept for one connection: three flights, all slots and answers, and some attempts.
pub(crate) const TIMELINE_MAX: usize = 96;

/// Reason why TurboTLS was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsed {
    /// Switched off.
    Policy,
    /// Only the HTTPS port can be advertised; other ports must be configured.
    Port,
    /// The target was an address, without a name.
    Literal,
    /// The name does not advertise.
    NotAdvertised,
    /// The advertisement was not there in time.
    AdvertLate,
    /// The offer does not cover the address that TCP tries first.
    OtherAddress,
    /// The path is known not to support it.
    Path(PathReason),
    /// Too many simultaneous openings on this path.
    PathBusy,
    /// The system refused the UDP socket.
    Socket,
    /// It was tried, and fell back to TCP.
    Fallback(PlainReason),
    /// The first flight left in the SYN instead.
    FastOpen,
    /// A proxy carries no datagrams, and sends its own SYN.
    Upstream,
}

impl NotUsed {
    /// Returns a short stable name, for counters and scripts.
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
            Self::FastOpen => "fast_open",
            Self::Upstream => "upstream",
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
            Self::AdvertLate => "the HTTPS record did not arrive before TCP connected",
            Self::OtherAddress => "not offered at the address that TCP tried first",
            Self::Path(reason) => return write!(f, "earlier connections on this path: {reason}"),
            Self::PathBusy => "too many simultaneous openings on this path",
            Self::Socket => "no UDP socket to that address could be opened",
            Self::Fallback(reason) => return reason.fmt(f),
            Self::FastOpen => "the first flight left with the SYN instead",
            Self::Upstream => "a proxy carries no datagrams, and sends its own SYN",
        };
        f.write_str(text)
    }
}

/// Reason why data in the SYN did not open the connection, if the server accepts cookies or the
/// caller asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenNotUsed {
    /// The server does not advertise that it accepts cookies.
    NotOffered,
    /// The offer came too late: the SYN had left.
    OfferLate,
    /// TCP has to be connected before the application writes.
    ConnectFirst,
    /// This machine cannot send cookies.
    Unavailable,
    /// The route to the server could not be determined, so cookies cannot be matched to the
    /// network.
    NoRoute,
    /// The path is known not to support it.
    Path(PathReason),
    /// The first flight does not fit the SYN.
    Flight(NotFast),
    /// There is no cookie for this host and context.
    NoCookie,
    /// The client's ticket is from another network, and so is the cookie in it.
    OtherNetwork,
    /// The client's ticket is older than the cookie in it lives.
    TicketOld,
    /// The cookie in the client's ticket may not be spent.
    Unspendable(Unspendable),
    /// The kernel refused.
    System,
    /// The SYN was answered, but its data were not accepted.
    Refused,
    /// The SYN was not answered in time, or its connection failed; a bare SYN was answered.
    Lost,
    /// Another connection was established first; this one proved nothing.
    Overtaken,
}

impl FastOpenNotUsed {
    /// Returns a short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::OfferLate | Self::Flight(NotFast::OfferLate) => "offer_late",
            Self::ConnectFirst => "connect_first",
            Self::Unavailable => "unavailable",
            Self::NoRoute => "no_route",
            Self::Path(_) => "path_memory",
            Self::Flight(reason) => reason.name(),
            Self::NoCookie => "no_cookie",
            Self::OtherNetwork => "other_network",
            Self::TicketOld => "ticket_old",
            Self::Unspendable(Unspendable::Spent) => "cookie_spent",
            Self::Unspendable(Unspendable::Full) => "too_many_spent",
            Self::System => "system",
            Self::Refused => "syn_data_refused",
            Self::Lost => "syn_lost",
            Self::Overtaken => "overtaken",
        }
    }
}

impl fmt::Display for FastOpenNotUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotOffered => "the server does not offer it",
            Self::OfferLate => "the HTTPS record did not arrive before the SYN left",
            Self::ConnectFirst => "the application waits for TCP before it writes",
            Self::Unavailable => "this machine cannot send cookies (see headstart fastopen status)",
            Self::NoRoute => "the route to the server could not be determined",
            Self::Path(reason) => return write!(f, "earlier connections on this path: {reason}"),
            Self::Flight(reason) => return reason.fmt(f),
            Self::NoCookie => "no cookie for this host and context",
            Self::OtherNetwork => "the ticket and its cookie are from another network",
            Self::TicketOld => "the ticket is older than the cookie in it lives",
            Self::Unspendable(reason) => return reason.fmt(f),
            Self::System => "the kernel refused to send it",
            Self::Refused => "the SYN was answered, but its data were not accepted",
            Self::Lost => "the SYN with data was not answered, but a bare one was",
            Self::Overtaken => "a connection to another address was established first",
        };
        f.write_str(text)
    }
}

/// Event of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningEvent {
    /// This many addresses were found.
    Resolved(usize),
    /// An offer of TurboTLS became known.
    Offered,
    /// A SYN went to this address.
    Syn(SocketAddr),
    /// A second SYN went to this address, as the first was not answered in time.
    SecondSyn(SocketAddr),
    /// The ClientHello went over a spare connection to this address.
    Spare(SocketAddr),
    /// The spare was dead before the server got a byte: the ClientHello goes over another
    /// connection.
    SpareDead,
    /// TurboTLS is ruled out.
    NotUsed(NotUsed),
    /// Event of a SYN and its data.
    FastOpen(FastOpenEvent),
    /// Data in the SYN are ruled out, or did not help.
    FastOpenNotUsed(FastOpenNotUsed),
    /// Event of the transport.
    Transport(ClientEvent),
    /// Event of a connection through a proxy.
    Upstream(UpstreamEvent),
    /// TCP alone carries the stream.
    HandedOver,
}

/// Event while a connection through a proxy opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// The connection to the proxy is open.
    Connected,
    /// This many of the application's bytes were sent before the proxy reported that it has
    /// connected.
    SentEarly(usize),
    /// The proxy has connected to the target.
    Granted,
    /// The target has answered what was sent early.
    Answered,
    /// A second connection goes step by step.
    FellBack(Objection),
}

/// Reason for starting again step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The proxy closed or reset the connection.
    Closed,
    /// The proxy sent something that is no reply.
    Garbage,
    /// The proxy refused something that it may accept from a client that waits.
    Refused,
    /// The proxy went silent.
    Silence,
}

impl Objection {
    /// Returns a short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Garbage => "garbage",
            Self::Refused => "refused",
            Self::Silence => "silence",
        }
    }
}

/// Entry of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Time since the connection was requested.
    pub at: Duration,
    /// The event.
    pub event: OpeningEvent,
}

/// Report on one opening: its times, and why it was not faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When the connection was requested; the timeline counts from then.
    pub begun: Instant,
    /// Carrier that opened the connection; TCP until another has.
    pub opened_by: Carrier,
    /// Reason why TurboTLS was not used, if it was not and the reason is known.
    pub not_used: Option<NotUsed>,
    /// Reason why data in the SYN did not open it, if the server accepts cookies or the caller
    /// asked for them.
    pub fast_open_not_used: Option<FastOpenNotUsed>,
    /// Reason why the application saw a reset, if the opening caused it.
    pub reset: Option<ResetReason>,
    /// The server's address once connected; with an upstream, the proxy's.
    pub address: Option<SocketAddr>,
    /// Time that TCP took to connect.
    pub rtt: Option<Duration>,
    /// Network through which the server is reached, if it accepts cookies.
    pub network: Option<Network>,
    /// Events in order; the first 96.
    pub timeline: Vec<TimelineEntry>,
}

impl Default for Report {
    /// Returns the report on an opening that begins now.
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            opened_by: Carrier::Tcp,
            not_used: None,
            fast_open_not_used: None,
            reset: None,
            address: None,
            rtt: None,
            network: None,
            timeline: Vec::new(),
        }
    }
}

impl Report {
    /// Returns true if datagrams went out and nothing came back, or what is behind was wrong.
    pub(crate) fn was_unanswered(&self) -> bool {
        let silent = [PlainReason::Silence, PlainReason::Unreachable].map(NotUsed::Fallback);
        self.reset.is_some() || self.not_used.is_some_and(|reason| silent.contains(&reason))
    }

    pub(crate) fn note(&mut self, at: Duration, event: OpeningEvent) {
        if self.timeline.len() < TIMELINE_MAX {
            self.timeline.push(TimelineEntry { at, event });
        }
    }
}
