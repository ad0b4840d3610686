//! One connection at the client (docs/draft-headstart-turbotls.md#client-behavior).

mod downstream;
mod flight;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use downstream::Downstream;
use flight::Flight;

use crate::event::{ClientEvent, PlainReason, ResetReason};
use crate::grace::Wait;
use crate::hello;
use crate::id::{JoinKey, RouteTag, SessionId};
use crate::join::{ACCEPTANCE_LEN, Answer, Join};
use crate::limits::{
    CLIENT_BYTES, EARLY_DATA_LIFE, JOIN_ANSWER_LIFE, JOIN_MARGIN, SESSION_LIFE, SLOTS_MAX,
    STREAM_BUFFER,
};
use crate::record;
use crate::time::Instant;
use crate::wire::Response;

/// Options for opening a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct ClientConfig {
    /// Slots to send after the flight, including the one for the acknowledgement.
    pub slots: u8,
    /// Allows bytes after the ClientHello to go over UDP; only if the edge permits it.
    pub early_data: bool,
    /// Delivers nothing that came over UDP: TCP takes over as soon as the edge has answered. Saves
    /// nothing, risks nothing.
    pub hold: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { slots: SLOTS_MAX + 1, early_data: false, hold: false }
    }
}

/// Opens one connection: the first flights over UDP, everything else over TCP.
///
/// Call `handle_*` with what happened, then take what there is to do, in any order, until nothing
/// is left: [`poll_datagram`](Self::poll_datagram), [`poll_tcp`](Self::poll_tcp),
/// [`poll_app`](Self::poll_app), [`poll_event`](Self::poll_event). Then wait for the sockets or for
/// [`poll_timeout`](Self::poll_timeout). Once [`is_transparent`](Self::is_transparent), the caller
/// can copy between the streams without this type.
///
/// Only the join key ties datagrams to TCP: the caller has to send both to the same address, or
/// report otherwise in [`handle_tcp_connected`](Self::handle_tcp_connected).
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub struct Client {
    config: ClientConfig,
    key: JoinKey,
    id: SessionId,
    state: State,
    /// The client stream from its start, until the client has decided how TCP continues.
    upstream: Vec<u8>,
    /// Bytes of `upstream` that went with the SYN.
    in_syn: usize,
    app_finished: bool,
    flight: Flight,
    downstream: Downstream,
    /// Client bytes that the edge has acknowledged.
    ack: u32,
    /// Tag of the first response. Without one, the client joins only if it has sent early data.
    tag: Option<RouteTag>,
    /// True once server bytes have come over UDP, delivered or not.
    has_server_bytes: bool,
    unreachable: bool,
    /// Time of the first application byte; no session is older.
    begun: Option<Instant>,
    last_datagram: Instant,
    to_tcp: Vec<u8>,
    events: VecDeque<ClientEvent>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
enum State {
    /// TCP is connecting. Datagrams travel as soon as there is a ClientHello.
    Connecting,
    /// TCP is connected and the edge may still answer over UDP.
    Waiting { connected: Instant, wait: Wait },
    /// The client sent the join; `answer` holds the bytes of its answer so far.
    Joining { answer: Vec<u8>, server_offset: u32, deadline: Instant },
    /// TCP carries the raw streams. `silent`: an unanswered flight was given up, so a datagram is
    /// late.
    Open { silent: bool },
    /// The connection ended by reset.
    Reset,
}

impl Client {
    /// Creates a connection about which nothing is known yet. `key` must be fresh random bytes.
    #[must_use]
    pub fn new(key: JoinKey, config: ClientConfig) -> Self {
        let id = key.session_id();
        Self {
            config,
            key,
            id,
            state: State::Connecting,
            upstream: Vec::new(),
            in_syn: 0,
            app_finished: false,
            flight: Flight::new(id),
            downstream: Downstream::new(),
            ack: 0,
            tag: None,
            has_server_bytes: false,
            unreachable: false,
            begun: None,
            last_datagram: Instant::ZERO,
            to_tcp: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Reports that an edge listens at the server: the client may send datagrams from now on.
    ///
    /// Without this call the connection is plain.
    pub fn offer_udp(&mut self, config: ClientConfig) {
        if matches!(self.state, State::Connecting) && !self.flight.is_offered() {
            self.config = config;
            self.flight.offer();
            self.send_flight();
        }
    }

    /// Returns the client stream from its start; empty once the client has decided how TCP
    /// continues.
    #[must_use]
    pub fn stream(&self) -> &[u8] {
        &self.upstream
    }

    /// Reports that the first `bytes` of the client stream went with TCP's SYN.
    ///
    /// Call it before [`handle_tcp_connected`](Self::handle_tcp_connected), for the same TCP
    /// connection. A connection that may send datagrams restarts its stream on TCP, so the call
    /// has no effect there.
    pub fn handle_syn_data(&mut self, bytes: usize) {
        if matches!(self.state, State::Connecting) && !self.flight.is_offered() {
            self.in_syn = bytes.min(self.upstream.len());
        }
    }

    /// Returns the number of application bytes the client takes now.
    #[must_use]
    pub fn app_room(&self) -> usize {
        match self.state {
            State::Connecting | State::Waiting { .. } => {
                CLIENT_BYTES.saturating_sub(self.upstream.len())
            }
            State::Joining { .. } | State::Open { .. } => {
                STREAM_BUFFER.saturating_sub(self.to_tcp.len())
            }
            State::Reset => 0,
        }
    }

    /// Takes application bytes for the server; at most [`app_room`](Self::app_room).
    pub fn handle_app_data(&mut self, now: Instant, bytes: &[u8]) {
        match self.state {
            State::Connecting => {
                self.begun.get_or_insert(now);
                self.upstream.extend_from_slice(bytes);
                self.send_flight();
            }
            // W-SEND-5, W-STATE-6
            State::Waiting { .. } => {
                self.upstream.extend_from_slice(bytes);
                self.decide(now);
            }
            State::Joining { .. } | State::Open { .. } => self.to_tcp.extend_from_slice(bytes),
            State::Reset => {}
        }
    }

    /// Reports that the application sends nothing more.
    pub fn handle_app_finished(&mut self, now: Instant) {
        self.app_finished = true;
        self.decide(now);
    }

    /// Takes a datagram from the edge's address, which may be forged.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let response = Response::parse(datagram).ok();
        let Some(response) = response.filter(|response| self.is_ours(response)) else {
            self.events.push_back(ClientEvent::DatagramIgnored);
            return;
        };
        // W-STATE-16: also where the timer is late, as the edge forgets none the later.
        if self.stale_from().is_some_and(|from| from <= now) {
            self.decide(now);
        }
        match self.state {
            State::Open { silent: true } => {
                self.state = State::Open { silent: false };
                self.events.push_back(ClientEvent::LateDatagram);
            }
            State::Connecting | State::Waiting { .. } | State::Joining { .. } => {
                self.take_response(now, &response);
                self.decide(now);
            }
            State::Open { .. } | State::Reset => {}
        }
    }

    /// Reports that the network cannot deliver datagrams (ICMP port or host unreachable).
    ///
    /// Anybody can forge that; it costs the saving and nothing else.
    pub fn handle_unreachable(&mut self, now: Instant) {
        // W-STATE-15
        if self.is_unanswered() {
            self.unreachable = true;
            self.events.push_back(ClientEvent::Unreachable);
            self.decide(now);
        }
    }

    /// Reports that TCP is connected. `same_address`: to the address the datagrams went to. Without
    /// a datagram within `wait`, the client treats UDP as blocked; `None` means that an answer that
    /// is not there yet is not worth a wait.
    pub fn handle_tcp_connected(&mut self, now: Instant, same_address: bool, wait: Option<Wait>) {
        if !matches!(self.state, State::Connecting) {
            return;
        }
        self.events.push_back(ClientEvent::TcpConnected);
        self.state = State::Waiting { connected: now, wait: wait.unwrap_or_default() };
        if self.flight.is_sent() && !same_address {
            // W-STATE-2
            self.give_up(now, PlainReason::OtherAddress);
        } else if self.stale_from().is_some_and(|from| from <= now) {
            // W-STATE-3
            self.give_up(now, PlainReason::TcpLate);
        } else if wait.is_none() && self.is_unanswered() {
            self.give_up(now, PlainReason::NotAwaited);
        } else if !self.config.hold {
            // W-STATE-1
            self.downstream.release();
            self.note_first_bytes();
        }
        self.decide(now);
    }

    /// Changes how long to wait for the first datagram, unless it has come.
    pub const fn set_wait(&mut self, longer: Wait) {
        if let (State::Waiting { wait, .. }, None) = (&mut self.state, &self.tag) {
            *wait = longer;
        }
    }

    /// Takes bytes from TCP.
    pub fn handle_tcp_data(&mut self, now: Instant, bytes: &[u8]) {
        match self.state {
            State::Waiting { .. } => self.on_server_first(),
            // W-STATE-14: also where the timer is late.
            State::Joining { deadline, .. } if deadline <= now => self.handle_timeout(now),
            _ => {}
        }
        let bytes = match self.state {
            State::Joining { .. } => self.take_answer(bytes),
            _ => bytes,
        };
        if matches!(self.state, State::Open { .. }) {
            self.downstream.append(bytes);
            self.note_first_bytes();
        }
    }

    /// Reports that the server sends nothing more on TCP.
    pub fn handle_tcp_finished(&mut self) {
        if matches!(self.state, State::Waiting { .. }) {
            self.on_server_first();
        }
        match self.state {
            // An edge that closes instead of answering has refused.
            State::Joining { .. } => self.refused(),
            State::Open { .. } => self.downstream.finish(),
            State::Connecting | State::Waiting { .. } | State::Reset => {}
        }
    }

    /// Reports that TCP broke. Resets the application if a join was in flight; else the caller
    /// decides.
    pub fn handle_tcp_failed(&mut self) {
        match self.state {
            State::Joining { .. } => self.reset(ResetReason::JoinLost),
            _ => self.state = State::Reset,
        }
    }

    /// Reports that the time given by [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            // W-STATE-14
            State::Joining { deadline, .. } if deadline <= now => self.reset(ResetReason::JoinLost),
            _ => self.decide(now),
        }
    }

    /// Returns the next datagram to send to the edge.
    pub fn poll_datagram(&mut self) -> Option<Vec<u8>> {
        self.flight.poll()
    }

    /// Returns bytes to write to TCP, in order; `None` if there are none. Write them before
    /// shutting TCP down for [`wants_tcp_finish`](Self::wants_tcp_finish).
    pub fn poll_tcp(&mut self) -> Option<Vec<u8>> {
        Some(mem::take(&mut self.to_tcp)).filter(|bytes| !bytes.is_empty())
    }

    /// Returns true if the caller should shut TCP down for writing once
    /// [`poll_tcp`](Self::poll_tcp) is drained.
    #[must_use]
    pub fn wants_tcp_finish(&self) -> bool {
        let decided = matches!(self.state, State::Joining { .. } | State::Open { .. });
        decided && self.app_finished && self.to_tcp.is_empty()
    }

    /// Returns true if bytes from TCP are welcome: once it is connected and the application keeps
    /// up.
    #[must_use]
    pub const fn wants_tcp_data(&self) -> bool {
        let connected = !matches!(self.state, State::Connecting | State::Reset);
        connected && self.downstream.wants_more()
    }

    /// Returns true once the client has decided how TCP continues, and the application's bytes are
    /// queued for it.
    #[must_use]
    pub const fn is_decided(&self) -> bool {
        matches!(self.state, State::Joining { .. } | State::Open { .. })
    }

    /// Returns bytes for the application, in order.
    pub fn poll_app(&mut self) -> Option<Vec<u8>> {
        self.downstream.poll()
    }

    /// Returns true if nothing follows for the application once [`poll_app`](Self::poll_app) is
    /// drained.
    #[must_use]
    pub fn is_app_finished(&self) -> bool {
        self.downstream.is_finished()
    }

    /// Returns true if the caller has to reset the application's connection.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        matches!(self.state, State::Reset)
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            // Datagrams that trickle in cannot stretch the wait beyond a second grace.
            State::Waiting { connected, wait } => {
                let due = connected + wait.due;
                let end = (due.max(self.last_datagram) + wait.grace)
                    .min(due + wait.grace.saturating_mul(2));
                let awaits_first = self.tag.is_some() && !self.has_server_bytes;
                let end = if awaits_first { end.max(connected + wait.first_bytes) } else { end };
                // W-STATE-16
                Some(self.stale_from().map_or(end, |from| end.min(from)))
            }
            State::Joining { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// Returns true if TCP alone carries both streams and nothing is queued here.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        matches!(self.state, State::Open { .. })
            && self.to_tcp.is_empty()
            && self.downstream.is_transparent()
    }

    /// Returns true if a datagram would still tell something about the path: the client fell back
    /// without an answer.
    #[must_use]
    pub fn awaits_late_datagram(&self) -> bool {
        matches!(self.state, State::Open { silent: true })
    }

    /// Returns true if a flight left and neither the edge nor the network has answered.
    const fn is_unanswered(&self) -> bool {
        self.flight.is_sent() && self.tag.is_none() && !self.unreachable
    }

    fn is_ours(&self, response: &Response<'_>) -> bool {
        // W-TAKE-1
        response.id == self.id && self.flight.has_used(response.seq)
    }

    fn take_response(&mut self, now: Instant, response: &Response<'_>) {
        // Another tag comes from another start of the edge, which runs another handshake.
        // W-TAKE-2, W-TAKE-3, W-TAKE-4
        let fits = self.tag.is_none_or(|tag| tag == response.tag)
            && usize::try_from(response.ack).is_ok_and(|ack| ack <= self.flight.sent_bytes())
            && self.flight.awaits_answer(response.seq)
            && self.downstream.insert(response.offset, response.payload).is_ok();
        if !fits {
            self.events.push_back(ClientEvent::DatagramIgnored);
            return;
        }
        self.flight.take_answer(response.seq);
        self.last_datagram = now;
        self.has_server_bytes |= !response.payload.is_empty();
        self.ack = self.ack.max(response.ack);
        self.tag = Some(response.tag);
        self.events.push_back(ClientEvent::DatagramReceived {
            seq: response.seq,
            ack: response.ack,
            offset: response.offset,
            bytes: response.payload.len(),
        });
        self.note_first_bytes();
    }

    fn note_first_bytes(&mut self) {
        if let Some(udp) = self.downstream.take_first_source() {
            self.events.push_back(ClientEvent::FirstServerBytes { udp });
        }
    }

    fn send_flight(&mut self) {
        let early_data = self.config.early_data;
        self.flight.send(&self.upstream, self.config.slots, early_data, &mut self.events);
    }

    /// Chooses between join, plain and waiting on, once TCP is connected.
    fn decide(&mut self, now: Instant) {
        let State::Waiting { .. } = self.state else {
            return;
        };
        if !self.flight.is_sent() {
            return self.go_plain(self.flight.why_not());
        }
        let expired = self.poll_timeout().is_some_and(|deadline| deadline <= now);
        if self.tag.is_some() {
            if expired || self.config.hold || self.has_unsent_bytes() || self.flight.is_answered() {
                self.take_over(now);
            }
        } else if self.unreachable {
            self.give_up(now, PlainReason::Unreachable);
        } else if expired {
            self.give_up(now, PlainReason::Silence);
        }
    }

    /// Continues on TCP once nothing more is expected over UDP. A client that has delivered nothing
    /// needs no join: its stream finds the session by the ClientHello.
    fn take_over(&mut self, now: Instant) {
        // W-STATE-7
        if self.downstream.released() > 0 || self.flight.holds_early_data() {
            self.join(now);
        } else if self.config.hold {
            self.go_plain(PlainReason::Held);
        } else {
            self.go_plain(PlainReason::NoServerBytes);
        }
    }

    /// Handles the loss of the flight. Early data that the server may have acted on commits the
    /// client to the session.
    fn give_up(&mut self, now: Instant, reason: PlainReason) {
        if self.flight.holds_early_data() {
            // W-STATE-4
            self.events.push_back(ClientEvent::GivenUp(reason));
            if self.age(now).is_some_and(|age| age >= EARLY_DATA_LIFE) {
                // An edge that has forgotten everything would give the early data to the origin
                // again.
                // W-STATE-5
                self.reset(ResetReason::EarlyDataTooOld);
            } else {
                self.join(now);
            }
        } else {
            self.go_plain(reason);
        }
    }

    /// Returns the time from which nothing may rely on the session any more: the edge may forget
    /// it before a join arrives.
    fn stale_from(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| self.flight.is_sent())?;
        Some(begun + SESSION_LIFE.saturating_sub(JOIN_MARGIN))
    }

    /// Returns the time since the first byte of the application.
    fn age(&self, now: Instant) -> Option<Duration> {
        self.begun.map(|begun| now.since(begun))
    }

    fn has_unsent_bytes(&self) -> bool {
        self.upstream.len() > self.flight.sent_bytes() || self.app_finished
    }

    fn go_plain(&mut self, reason: PlainReason) {
        let silent = matches!(reason, PlainReason::Silence | PlainReason::NotAwaited);
        self.state = State::Open { silent };
        self.events.push_back(ClientEvent::Plain(reason));
        // W-STATE-9
        self.downstream.discard_unreleased();
        self.upstream.drain(..self.in_syn);
        self.to_tcp.append(&mut self.upstream);
    }

    fn join(&mut self, now: Instant) {
        // W-STATE-10
        let server_offset = self.downstream.released();
        // If no server byte was delivered, send the whole stream: an edge that does not know the
        // session can still serve it.
        let acknowledged = if server_offset == 0 { 0 } else { self.ack };
        // W-JOIN-4
        let from = record::start(&self.upstream, usize::try_from(acknowledged).unwrap_or(0));
        let client_offset = u32::try_from(from).unwrap_or(0);
        // W-TAG-1
        let tag = self.tag.unwrap_or_default();
        let join = Join { key: self.key.clone(), tag, client_offset, server_offset };
        // Whatever went over UDP began with a whole ClientHello.
        let hello = hello::read(&self.upstream).ok().and_then(hello::Progress::complete);
        self.to_tcp.extend_from_slice(&join.emit(&hello.unwrap_or_default()));
        self.to_tcp.extend_from_slice(self.upstream.get(from..).unwrap_or_default());
        self.upstream = Vec::new();
        // W-STATE-11
        if server_offset == 0 {
            // An edge that does not know the session begins another, whose bytes are others.
            self.downstream.discard_unreleased();
        }
        // Bytes of the session hold for as long as the edge knows that it had it, from the last
        // time at which a client may join (W-STATE-16).
        let from =
            self.stale_from().filter(|_| server_offset > 0).map_or(now, |from| now.min(from));
        let deadline = from + JOIN_ANSWER_LIFE;
        self.state = State::Joining { answer: Vec::new(), server_offset, deadline };
        self.events.push_back(ClientEvent::JoinSent { client_offset, server_offset });
    }

    /// Handles server bytes before the join: no edge speaks first on TCP. If the application
    /// already sent or received data over UDP, the connection cannot continue.
    fn on_server_first(&mut self) {
        if self.downstream.released() > 0 || self.flight.holds_early_data() {
            // W-STATE-8
            self.reset(ResetReason::Protocol);
        } else {
            self.go_plain(PlainReason::ServerFirst);
        }
    }

    /// Completes the answer to the join and returns the bytes after it.
    fn take_answer<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let State::Joining { answer, server_offset, .. } = &mut self.state else {
            return bytes;
        };
        let missing = ACCEPTANCE_LEN.saturating_sub(answer.len());
        let (head, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        answer.extend_from_slice(head);
        let (read, asked) = (Answer::read(&self.key, answer), *server_offset);
        match read {
            Answer::Incomplete => {}
            Answer::Accepted(offset) => self.accepted(asked, offset),
            // W-STATE-13
            Answer::Refused => self.refused(),
        }
        rest
    }

    fn accepted(&mut self, asked: u32, server_offset: u32) {
        self.events.push_back(ClientEvent::JoinAccepted { server_offset });
        if !(server_offset..server_offset + record::LONGEST).contains(&asked) {
            // W-STATE-12
            return self.reset(ResetReason::Protocol);
        }
        self.downstream.tcp_starts_at(server_offset);
        self.downstream.release();
        self.state = State::Open { silent: false };
    }

    fn refused(&mut self) {
        let committed = self.downstream.released() > 0;
        self.reset(if committed { ResetReason::CommittedRefusal } else { ResetReason::Refused });
    }

    fn reset(&mut self, reason: ResetReason) {
        self.state = State::Reset;
        self.events.push_back(ClientEvent::Reset(reason));
    }
}
