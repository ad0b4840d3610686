//! Decides if the first flight leaves with the SYN (Sy et al. 2019; docs/fop.md).
//!
//! The SYN of a connection to a server that takes cookies waits a moment for the ClientHello. If
//! that comes in time and fits, the SYN carries it, with a cookie; otherwise the SYN leaves bare,
//! and the client uses whatever else the server offers. If a SYN with data goes unanswered, plain
//! TCP starts beside it.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use core::fmt;
use core::time::Duration;

use crate::cookie::Cookie;
use crate::hello::{self, ClientHello, Progress};
use crate::limits::{SYN_DATA_WAIT, SYN_SILENCE};
use crate::time::Instant;

/// Type of a record with application data (RFC 8446 section 5.1); before the handshake it is early
/// data.
const APPLICATION_DATA: u8 = 23;

/// Decides for one connection if its SYN carries data, and which.
///
/// Report what is known of the server with [`expect`](Self::expect), [`offer`](Self::offer) or
/// [`give_up`](Self::give_up), and what the application writes with
/// [`handle_app_data`](Self::handle_app_data), in any order. While
/// [`is_waiting`](Self::is_waiting), hold the SYN back. [`poll_flight`](Self::poll_flight) returns
/// the flight once; answer it immediately with [`handle_sent`](Self::handle_sent) or `give_up`.
/// After that, start plain TCP beside the SYN when [`poll_beside`](Self::poll_beside) returns true;
/// [`handle_connected`](Self::handle_connected) ends the decision.
///
/// If two connections race, write the client stream to the second only after closing the first:
/// then the server acts at most once on the SYN's data, early data included.
#[derive(Debug)]
pub struct FastOpen {
    /// Bytes that a SYN may carry.
    room: usize,
    state: State,
    start: Start,
    beside: bool,
    events: VecDeque<FastOpenEvent>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing is known of the server. A SYN that leaves now leaves bare.
    Idle,
    /// The SYN waits until `until` at the latest. `silence` is how long its answer may take; `None`
    /// while the server is only expected to take cookies.
    Waiting { until: Instant, silence: Option<Duration> },
    /// The flight is complete.
    Ready { flight: Flight, silence: Duration },
    /// The caller has the flight.
    Taken { flight: Flight, silence: Duration },
    /// The SYN left with data.
    Sent { left: Instant, silence: Duration, doubt: Doubt },
    /// The decision was made, or TCP is connected.
    Over,
}

/// Evidence against the SYN with data while nothing is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    Nothing,
    Silent,
    Failed,
}

/// The start of the client stream, as far as it was read.
#[derive(Debug, Default)]
struct Start {
    length: usize,
    hello: Option<Result<ClientHello, NotFast>>,
    /// True if `stream` holds a whole record of early data.
    early_data: bool,
}

/// The data a SYN can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Number of bytes, from the start of the client stream.
    pub bytes: usize,
    /// Length of the ClientHello in these bytes; early data follows it.
    pub hello: usize,
    /// The cookie in the client's own ticket, if it presents one.
    pub ticket_cookie: Option<Cookie>,
}

/// Reason why the ClientHello does not leave with the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotFast {
    /// The client did not learn in time whether the server takes cookies.
    OfferLate,
    /// The application does not speak TLS.
    NotTls,
    /// The ClientHello cannot be read.
    Hello,
    /// The ClientHello was not ready in time.
    HelloLate,
    /// The ClientHello is larger than a SYN can carry, as with a post-quantum key share.
    TooLarge,
}

impl NotFast {
    /// Short stable name for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OfferLate => "offer_late",
            Self::NotTls => "not_tls",
            Self::Hello => "client_hello",
            Self::HelloLate => "client_hello_late",
            Self::TooLarge => "client_hello_too_large",
        }
    }
}

impl fmt::Display for NotFast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfferLate => "it was not known in time whether the server takes cookies",
            Self::NotTls => "the application does not speak TLS",
            Self::Hello => "the ClientHello cannot be read",
            Self::HelloLate => "the SYN left before the ClientHello was there",
            Self::TooLarge => {
                "the ClientHello is larger than what a SYN carries \
                 (as with a post-quantum key share)"
            }
        })
    }
}

/// Something that happened, for the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenEvent {
    /// The SYN waits for the ClientHello.
    Waiting,
    /// The SYN leaves without data.
    NotFast(NotFast),
    /// The SYN left with a cookie and data.
    SynSent {
        /// Number of bytes of the client stream.
        bytes: usize,
        /// True if early data is among them.
        early_data: bool,
    },
    /// No SYN-ACK came in time: plain TCP starts beside it.
    Silent,
    /// The connection failed: plain TCP replaces it.
    Failed,
    /// The SYN-ACK came.
    Answered {
        /// True if the SYN-ACK acknowledged the data.
        accepted: bool,
    },
}

/// The connection that was established first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winner {
    /// The connection whose SYN carried data.
    Syn {
        /// True if the SYN-ACK acknowledged the data.
        accepted: bool,
    },
    /// A plain one to the same address.
    SameAddress,
    /// A plain one to another address of the name.
    Elsewhere {
        /// Time it took to connect.
        took: Duration,
    },
}

/// Conclusion from a connection about the path, or the server at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Data in the SYN arrives and is accepted.
    Accepted,
    /// SYNs are answered, but their data is not accepted: stripped on the way, or refused.
    Refused,
    /// SYNs with data get no answer, and bare ones do.
    Lost,
}

impl FastOpen {
    /// Creates the state of a connection about which nothing is known, whose SYN may carry `room`
    /// bytes.
    #[must_use]
    pub fn new(room: usize) -> Self {
        let (start, events) = (Start::default(), VecDeque::new());
        Self { room, state: State::Idle, start, beside: false, events }
    }

    /// Reports that the server probably takes cookies and will be known soon: the SYN waits for
    /// that too.
    pub fn expect(&mut self, now: Instant) {
        if matches!(self.state, State::Idle) {
            self.wait(now, now + SYN_DATA_WAIT, None);
        }
    }

    /// Reports that the server takes cookies at the address tried first, and that nothing locally
    /// prevents using them. `rtt` is the round-trip time there, if known.
    pub fn offer(&mut self, now: Instant, rtt: Option<Duration>) {
        let silence = rtt.map_or(SYN_SILENCE, |rtt| rtt.saturating_mul(2).max(SYN_SILENCE));
        match self.state {
            State::Idle => self.wait(now, now + SYN_DATA_WAIT, Some(silence)),
            // One wait for both.
            State::Waiting { until, silence: None } => self.wait(now, until, Some(silence)),
            _ => {}
        }
    }

    /// Lets the SYN leave bare, if it has not left: the caller knows why.
    pub fn give_up(&mut self) {
        if !matches!(self.state, State::Sent { .. }) {
            self.state = State::Over;
        }
    }

    /// Takes `stream`: everything the application has written so far.
    pub fn handle_app_data(&mut self, now: Instant, stream: &[u8]) {
        let undecided = matches!(self.state, State::Idle | State::Waiting { .. });
        if undecided && stream.len() > self.start.length {
            self.start.read(stream);
            self.decide(now);
        }
    }

    /// Reports that the time given by [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.state {
            State::Waiting { .. } => self.decide(now),
            State::Sent { left, silence, doubt: doubt @ Doubt::Nothing }
                if *left + *silence <= now =>
            {
                *doubt = Doubt::Silent;
                self.beside = true;
                self.events.push_back(FastOpenEvent::Silent);
            }
            _ => {}
        }
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until, .. } => Some(until),
            State::Sent { left, silence, doubt: Doubt::Nothing } => Some(left + silence),
            _ => None,
        }
    }

    /// Returns true while the SYN has to wait.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Ready { .. } | State::Taken { .. })
    }

    /// Returns true while it is open whether the server takes cookies.
    #[must_use]
    pub const fn is_open_question(&self) -> bool {
        matches!(self.state, State::Idle | State::Waiting { silence: None, .. })
    }

    /// Returns true if nothing is left to decide.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns once the data for the SYN.
    pub fn poll_flight(&mut self) -> Option<Flight> {
        let State::Ready { flight, silence } = self.state else { return None };
        self.state = State::Taken { flight, silence };
        Some(flight)
    }

    /// Reports that the SYN left with a cookie and the first `bytes` of the flight.
    pub fn handle_sent(&mut self, now: Instant, bytes: usize) {
        let State::Taken { flight, silence } = self.state else { return };
        self.state = State::Sent { left: now, silence, doubt: Doubt::Nothing };
        let early_data = bytes > flight.hello;
        self.events.push_back(FastOpenEvent::SynSent { bytes, early_data });
    }

    /// Reports that the connection whose SYN carried data failed. If the data was the cause, plain
    /// TCP works.
    pub fn handle_failed(&mut self) {
        if let State::Sent { doubt, .. } = &mut self.state
            && *doubt != Doubt::Failed
        {
            self.beside |= *doubt == Doubt::Nothing;
            *doubt = Doubt::Failed;
            self.events.push_back(FastOpenEvent::Failed);
        }
    }

    /// Returns true once when plain TCP should start at the same address, beside the first
    /// connection or in its place.
    pub fn poll_beside(&mut self) -> bool {
        core::mem::take(&mut self.beside)
    }

    /// Reports that TCP is connected. Returns the conclusion about the path, if the SYN carried
    /// data and it allows one.
    pub fn handle_connected(&mut self, now: Instant, winner: Winner) -> Option<Verdict> {
        let state = core::mem::replace(&mut self.state, State::Over);
        let State::Sent { left, silence, doubt } = state else { return None };
        self.beside = false;
        if let Winner::Syn { accepted } = winner {
            self.events.push_back(FastOpenEvent::Answered { accepted });
        }
        match (winner, doubt) {
            (Winner::Syn { accepted: true }, _) => Some(Verdict::Accepted),
            (Winner::Syn { accepted: false }, Doubt::Nothing) => Some(Verdict::Refused),
            // The kernel's second SYN, which is bare, got through.
            (Winner::Syn { accepted: false }, _) => Some(Verdict::Lost),
            (_, Doubt::Silent | Doubt::Failed) => Some(Verdict::Lost),
            (Winner::Elsewhere { took }, Doubt::Nothing) => {
                // Clients try another address long before the silence is over. Without a verdict, a
                // path that drops data in SYNs would cost each connection to such a name the delay
                // of a second attempt.
                let is_near = silence <= SYN_SILENCE;
                let overdue = is_near && now.since(left) >= took.saturating_mul(2);
                overdue.then_some(Verdict::Lost)
            }
            // Everything may simply be slow.
            (Winner::SameAddress, Doubt::Nothing) => None,
        }
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<FastOpenEvent> {
        self.events.pop_front()
    }

    fn wait(&mut self, now: Instant, until: Instant, silence: Option<Duration>) {
        let new = matches!(self.state, State::Idle);
        self.state = State::Waiting { until, silence };
        self.decide(now);
        if new && matches!(self.state, State::Waiting { .. }) {
            self.events.push_back(FastOpenEvent::Waiting);
        }
    }

    fn decide(&mut self, now: Instant) {
        let State::Waiting { until, silence } = self.state else { return };
        let late = until <= now;
        let flight = self.start.flight(self.room, late);
        match (flight, silence) {
            // A flight that cannot leave with the SYN need not wait for an offer either.
            (Err(reason), _) => self.refuse(reason),
            (Ok(_), None) if late => self.refuse(NotFast::OfferLate),
            (Ok(Some(flight)), Some(silence)) => self.state = State::Ready { flight, silence },
            (Ok(None), Some(_)) if late => self.refuse(NotFast::HelloLate),
            (Ok(_), _) => {}
        }
    }

    fn refuse(&mut self, reason: NotFast) {
        self.state = State::Over;
        self.events.push_back(FastOpenEvent::NotFast(reason));
    }
}

impl Start {
    fn read(&mut self, stream: &[u8]) {
        self.length = stream.len();
        if self.hello.is_none() {
            self.hello = match hello::read(stream) {
                Ok(Progress::Incomplete) => None,
                Ok(Progress::Complete(hello)) => Some(Ok(hello)),
                Err(crate::HelloError::NotTls) => Some(Err(NotFast::NotTls)),
                Err(_) => Some(Err(NotFast::Hello)),
            };
        }
        if let Some(Ok(hello)) = &self.hello {
            let behind = stream.get(hello.end..).unwrap_or_default();
            self.early_data = hello.early_data && holds_early_data(behind);
        }
    }

    /// Returns the data for a SYN with `room`; `None` if there is more to wait for and it is not
    /// `late`.
    fn flight(&self, room: usize, late: bool) -> Result<Option<Flight>, NotFast> {
        let hello = match &self.hello {
            // At least a byte is missing.
            None if self.length >= room => return Err(NotFast::TooLarge),
            None => return Ok(None),
            Some(Err(reason)) => return Err(*reason),
            Some(Ok(hello)) => hello,
        };
        if hello.end > room {
            return Err(NotFast::TooLarge);
        }
        // OpenSSL writes early data right after the ClientHello, but in a write of its own.
        if hello.early_data && !self.early_data && !late {
            return Ok(None);
        }
        Ok(Some(Flight {
            bytes: self.length.min(room),
            hello: hello.end,
            ticket_cookie: hello.ticket_cookie(),
        }))
    }
}

/// Returns true if `bytes` holds a whole record of early data; ChangeCipherSpec may precede it (RFC
/// 8446 appendix D.4).
fn holds_early_data(mut bytes: &[u8]) -> bool {
    while let Some((&[kind, _, _, high, low], rest)) = bytes.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(behind) = rest.get(length..) else { return false };
        if kind == APPLICATION_DATA {
            return true;
        }
        bytes = behind;
    }
    false
}
