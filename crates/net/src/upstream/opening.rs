use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use headstart_proto::Carrier;
use headstart_proto::hello::{self, Progress};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::exchange::Exchange;
use super::lane::{self, Lane};
use super::standing::Standing;
use super::{
    Credentials, FLIGHT_MAX, Objection, Optimistic, Standings, Upstream, UpstreamError,
    UpstreamEvent,
};
use crate::clock::Clock;
use crate::dns::{DnsError, Resolver};
use crate::opener::Opener;
use crate::report::{NotUsed, OpeningEvent, Report};
use crate::target::Target;

/// Rounds over both lanes before the task yields.
const BUDGET: usize = 32;

/// A connection through a proxy, until one lane carries the stream.
///
/// The first lane sends ahead of the replies where that is allowed. If the proxy objects, or is
/// silent and not known to support early bytes, a second lane goes step by step. The first lane to
/// get an answer carries the stream.
pub(crate) struct Opening {
    shared: Shared,
    clock: Clock,
    /// Trust in the proxy's support for early bytes.
    trust: Trust,
    early: Option<Lane>,
    waiting: Option<Lane>,
    won: Option<Lane>,
    /// Reason for the second lane.
    objection: Option<Objection>,
    /// True if the first lane's proxy had connected: a failure after that may be the target's.
    was_granted: bool,
    silence: Option<Pin<Box<Sleep>>>,
    /// Everything the application has written so far; each lane knows how much of it it has.
    flight: Vec<u8>,
    hello: Hello,
    /// True once the application writes no more; `finish_sent`, once the proxy knows.
    finished: bool,
    finish_sent: bool,
    report: Report,
}

/// State needed to make lanes.
struct Shared {
    upstream: Arc<Upstream>,
    standings: Arc<Standings>,
    resolver: Resolver,
    connect_timeout: std::time::Duration,
    host: String,
    port: u16,
    login: Option<Credentials>,
}

/// Extent to which bytes may be sent ahead of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Everything.
    Full,
    /// Only bytes that may be sent twice.
    Trial,
    /// Nothing.
    None,
}

/// The complete ClientHello at the beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    /// The bytes so far may still become one.
    Maybe,
    /// It ends at this offset.
    Ends(usize),
    /// The stream does not begin with one.
    None,
}

impl Opening {
    /// Starts to connect to `target`.
    ///
    /// # Errors
    /// The name of the target or of the proxy is invalid.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        standings: Arc<Standings>,
        resolver: Resolver,
        connect_timeout: std::time::Duration,
        target: &Target,
    ) -> Result<Self, DnsError> {
        let now = Instant::now().into_std();
        let trust = match (upstream.optimistic, standings.standing(&upstream, now)) {
            (Optimistic::Always, _) | (Optimistic::Auto, Standing::Trusted) => Trust::Full,
            (Optimistic::Auto, Standing::Unknown) => Trust::Trial,
            (Optimistic::Never, _) | (Optimistic::Auto, Standing::Objects | Standing::Silent) => {
                Trust::None
            }
        };
        let login = upstream.login.credentials_for(&target.context);
        if upstream.login.is_by_context() && login.is_none() {
            // Without the login that keeps this context apart there must be no connection.
            return Err(DnsError::InvalidName);
        }
        let (host, port) = (target.host.clone(), target.port);
        let shared = Shared { upstream, standings, resolver, connect_timeout, host, port, login };
        let first = shared.lane(trust != Trust::None)?;
        let (early, waiting) =
            if trust == Trust::None { (None, Some(first)) } else { (Some(first), None) };
        let opened_by = Carrier::Proxy { optimistic: false };
        let not_used = Some(NotUsed::Upstream);
        let report = Report { opened_by, not_used, ..Report::default() };
        Ok(Self {
            shared,
            clock: Clock::start(),
            trust,
            early,
            waiting,
            won: None,
            objection: None,
            was_granted: false,
            silence: None,
            flight: Vec::new(),
            hello: Hello::Maybe,
            finished: false,
            finish_sent: false,
            report,
        })
    }
}

impl Opener for Opening {
    fn report(&self) -> &Report {
        &self.report
    }

    /// Fails with an [`UpstreamError`].
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for round in 0..BUDGET {
            let driven = self.poll_round(cx);
            if !driven.inspect_err(|error| self.on_failed(*error))? {
                return Ok(round > 0);
            }
        }
        cx.waker().wake_by_ref();
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let room = FLIGHT_MAX.saturating_sub(self.flight.len());
        let taken = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        self.flight.extend_from_slice(taken);
        if self.hello == Hello::Maybe {
            self.hello = match hello::read(&self.flight) {
                Ok(Progress::Complete(hello)) => Hello::Ends(hello.end),
                Ok(Progress::Incomplete) => Hello::Maybe,
                Err(_) => Hello::None,
            };
        }
        taken.len()
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    /// Everything that comes through a proxy comes on TCP.
    fn poll_bytes(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn is_read_finished(&self) -> bool {
        false
    }

    /// Returns true once the proxy has connected to the target.
    fn is_connected(&self) -> bool {
        let lanes = [&self.early, &self.waiting, &self.won];
        lanes.into_iter().flatten().any(Lane::is_granted)
    }

    fn is_flushed(&self) -> bool {
        self.is_transparent()
    }

    /// Returns true once everything written, and its end, has gone to a connection that reaches the
    /// target, and nothing of the target's answer has been read.
    fn is_transparent(&self) -> bool {
        self.won.as_ref().is_some_and(|lane| lane.sent == self.flight.len() && lane.is_flushed())
            && (!self.finished || self.finish_sent)
    }

    fn into_tcp(mut self: Box<Self>) -> Option<(TcpStream, Report)> {
        let tcp = self.won.take()?.into_tcp()?;
        self.report.note(self.clock.now().since_epoch(), OpeningEvent::HandedOver);
        Some((tcp, self.report))
    }

    fn into_report(self: Box<Self>) -> Report {
        self.report
    }

    fn reset(self: Box<Self>) {
        let lanes = [self.early, self.waiting, self.won];
        for tcp in lanes.into_iter().flatten().filter_map(Lane::into_tcp) {
            let _ = tcp.set_zero_linger();
        }
    }
}

impl Opening {
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut progress = self.poll_early(cx)?;
        progress |= self.poll_waiting(cx)?;
        progress |= self.poll_silence(cx)?;
        progress |= self.decide();
        progress |= self.poll_won(cx);
        Ok(progress)
    }

    /// Drives the first lane; if it ends in what may be an objection, starts the second.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let allowed = self.allowed_early();
        let trial = self.trust == Trust::Trial;
        let Some(lane) = &mut self.early else { return Ok(false) };
        let was_connected = lane.address.is_some();
        let before = lane.sent_early;
        let polled = Self::poll_lane(lane, cx, &self.flight, allowed, trial && before > 0);
        let (connected, sent) =
            (lane.address.is_some() && !was_connected, lane.sent_early - before);
        if connected {
            self.note(UpstreamEvent::Connected);
        }
        // Once only: a timeline has few entries.
        if before == 0 && sent > 0 {
            self.note(UpstreamEvent::SentEarly(sent));
        }
        polled.or_else(|error| self.on_early_failed(error))
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let allowed = self.allowed_waiting();
        let rival = self.early.is_some();
        let undecided = self.early.as_ref().is_some_and(|early| !early.is_granted());
        let Some(lane) = &mut self.waiting else { return Ok(false) };
        let was_connected = lane.address.is_some();
        let watch = rival && lane.sent > 0;
        let polled = Self::poll_lane(lane, cx, &self.flight, allowed, watch);
        let connected = lane.address.is_some() && !was_connected;
        if connected && self.objection.is_none() {
            self.note(UpstreamEvent::Connected);
        }
        match polled {
            // A refusal by the target holds for the first lane too, whose answer may never come.
            Err(error @ UpstreamError::Refused(3..=6)) if undecided => Err(error),
            // The first lane may still succeed, and otherwise reports its own error.
            Err(_) if rival => {
                self.waiting = None;
                Ok(true)
            }
            polled => polled,
        }
    }

    /// Gives a lane its bytes up to `allowed` and moves its data; with `watch`, looks for the
    /// target's answer.
    fn poll_lane(
        lane: &mut Lane,
        cx: &mut Context<'_>,
        flight: &[u8],
        allowed: usize,
        watch: bool,
    ) -> Result<bool, UpstreamError> {
        let mut progress = lane.poll(cx)?;
        if lane.has_requested()
            && let Some(more) = flight.get(lane.sent..allowed).filter(|more| !more.is_empty())
        {
            lane.send(more);
            progress = true;
        }
        progress |= lane.poll_write(cx)?;
        if watch {
            progress |= lane.poll_answer(cx)?;
        }
        Ok(progress)
    }

    /// Returns how many bytes of the flight the first lane may have before a lane is chosen.
    fn allowed_early(&self) -> usize {
        match self.trust {
            Trust::Full => self.flight.len(),
            Trust::Trial => self.repeatable(),
            Trust::None => 0,
        }
    }

    /// Returns the same for the second lane: bytes that the first lane has only if they may be sent
    /// twice.
    fn allowed_waiting(&self) -> usize {
        match (&self.waiting, &self.early) {
            (Some(lane), Some(early)) if lane.is_granted() && early.sent_early > 0 => {
                self.repeatable()
            }
            _ => 0,
        }
    }

    const fn repeatable(&self) -> usize {
        match self.hello {
            Hello::Ends(end) => end,
            Hello::Maybe | Hello::None => 0,
        }
    }

    fn on_early_failed(&mut self, error: UpstreamError) -> Result<bool, UpstreamError> {
        let lane = self.early.take();
        self.was_granted = lane.as_ref().is_some_and(Lane::is_granted);
        let sent = lane.map_or(0, |lane| lane.sent);
        let known = self.trust == Trust::Full;
        let objection = error.objection().filter(|objection| match objection {
            Objection::Closed | Objection::Garbage => true,
            // A proxy known to support early bytes means its refusal, or is merely slow.
            Objection::Refused | Objection::Silence => !known,
        });
        if let (true, Some(_)) = (known, objection) {
            self.learn(Standing::Unknown);
        }
        match objection {
            _ if self.waiting.is_some() => Ok(true),
            // Once: a second lane that failed is not tried again.
            Some(objection) if self.objection.is_none() && sent <= self.repeatable() => {
                self.fall_back(objection)?;
                Ok(true)
            }
            _ => Err(error),
        }
    }

    fn fall_back(&mut self, objection: Objection) -> Result<(), UpstreamError> {
        let lane = self.shared.lane(false);
        let lane = lane.map_err(|_| UpstreamError::Unreachable(io::ErrorKind::InvalidInput))?;
        self.waiting = Some(lane);
        self.objection = Some(objection);
        self.note(UpstreamEvent::FellBack(objection));
        Ok(())
    }

    /// Starts a second lane if a proxy on trial has gone silent.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let last_reply = self.early.as_ref().and_then(|lane| lane.last_reply);
        let Some(last_reply) =
            last_reply.filter(|_| self.trust == Trust::Trial && self.objection.is_none())
        else {
            return Ok(false);
        };
        let until = last_reply + self.shared.upstream.timeouts.silence;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if silence.deadline() != until {
            silence.as_mut().reset(until);
        }
        if silence.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        tracing::info!(
            upstream = %self.shared.upstream.host,
            "the upstream proxy has been silent since bytes were sent ahead of its replies; \
             opening a second connection step by step"
        );
        self.fall_back(Objection::Silence)?;
        Ok(true)
    }

    /// Chooses a lane to carry the stream; returns true once one does.
    fn decide(&mut self) -> bool {
        let (trial, rival) = (self.trust == Trust::Trial, self.early.is_some());
        let early = self.early.as_ref().is_some_and(|lane| {
            lane.is_granted() && (!trial || lane.sent_early == 0 || lane.answered)
        });
        let waiting = self.waiting.as_ref().is_some_and(|lane| {
            let both_sent = rival && self.early.as_ref().is_some_and(|early| early.sent_early > 0);
            lane.is_granted() && (!both_sent || lane.answered)
        });
        match (early, waiting) {
            (true, _) => self.on_early_won(),
            (false, true) => self.on_waiting_won(),
            (false, false) => return false,
        }
        true
    }

    fn on_early_won(&mut self) {
        self.won = self.early.take();
        self.waiting = None;
        let sent_early = self.won.as_ref().map_or(0, |lane| lane.sent_early);
        let answered = self.won.as_ref().is_some_and(|lane| lane.answered);
        let proven = self.won.as_ref().is_some_and(|lane| lane.answered_by_tls);
        self.report.opened_by = Carrier::Proxy { optimistic: true };
        self.note(UpstreamEvent::Granted);
        if answered {
            self.note(UpstreamEvent::Answered);
        }
        if proven && sent_early > 0 {
            self.learn(Standing::Trusted);
        }
        self.on_won("optimistic");
    }

    fn on_waiting_won(&mut self) {
        self.won = self.waiting.take();
        self.early = None;
        self.note(UpstreamEvent::Granted);
        // A proxy that has supported or is configured to support early bytes closed for another
        // reason.
        let judged = self.trust == Trust::Trial && !self.was_granted;
        if let Some(objection) = self.objection.filter(|_| judged) {
            // A silent proxy may just have been slow.
            let standing = match objection {
                Objection::Silence => Standing::Silent,
                _ => Standing::Objects,
            };
            tracing::warn!(
                upstream = %self.shared.upstream.host,
                reason = objection.name(),
                memory = ?standing.memory(),
                "the upstream proxy objects to bytes ahead of its replies, \
                 and gets none for a while"
            );
            self.learn(standing);
        }
        self.on_won(if self.objection.is_some() { "fallback" } else { "waiting" });
    }

    fn on_won(&mut self, manner: &'static str) {
        if let Some(lane) = &self.won {
            self.report.address = lane.address;
            self.report.rtt = lane.rtt;
        }
        count(manner, "granted");
    }

    /// Sends the winning lane what it still lacks of the application's bytes, and the end of them.
    fn poll_won(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(lane) = &mut self.won else { return false };
        let polled = Self::poll_lane(lane, cx, &self.flight, self.flight.len(), false);
        if polled.is_err() {
            lane.give_up_writing();
            (lane.sent, self.finish_sent) = (self.flight.len(), true);
        }
        let progress = polled.unwrap_or(true);
        if self.finished
            && !self.finish_sent
            && lane.sent == self.flight.len()
            && lane.is_flushed()
            && lane.poll_shutdown(cx).is_ready()
        {
            self.finish_sent = true;
            return true;
        }
        progress
    }

    fn on_failed(&self, error: UpstreamError) {
        let manner = match (self.trust, self.objection) {
            (_, Some(_)) => "fallback",
            (Trust::None, None) => "waiting",
            (Trust::Full | Trust::Trial, None) => "optimistic",
        };
        count(manner, error.name());
        let Shared { upstream, .. } = &self.shared;
        match error {
            UpstreamError::Refused(_) => {
                tracing::debug!(upstream = %upstream.host, %error, "not connected");
            }
            _ => {
                tracing::warn!(
                    upstream = %upstream.host,
                    port = upstream.port,
                    %error,
                    hint = error.hint(),
                    "not connected"
                );
            }
        }
    }

    fn learn(&self, standing: Standing) {
        let Shared { upstream, standings, .. } = &self.shared;
        if upstream.optimistic == Optimistic::Auto {
            standings.learn(upstream, standing, Instant::now().into_std());
        }
    }

    fn note(&mut self, event: UpstreamEvent) {
        self.report.note(self.clock.now().since_epoch(), OpeningEvent::Upstream(event));
    }
}

impl Shared {
    fn lane(&self, early: bool) -> Result<Lane, DnsError> {
        let Self { upstream, .. } = self;
        let exchange = Exchange::new(&self.host, self.port, self.login.as_ref(), early);
        let exchange = exchange.ok_or(DnsError::InvalidName)?;
        // Port 0: a proxy advertises nothing.
        let lookup = self.resolver.resolve(&upstream.host, 0)?;
        let dial = lane::dial(lookup, upstream.port, self.connect_timeout);
        Ok(Lane::new(dial, exchange, upstream.timeouts))
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("trust", &self.trust).finish_non_exhaustive()
    }
}

fn count(manner: &'static str, result: &'static str) {
    metrics::counter!(
        "headstart_upstream_connections_total",
        "manner" => manner, "result" => result,
    )
    .increment(1);
}
