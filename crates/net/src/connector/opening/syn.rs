//! The driver's part of data in the SYN: carries out what `headstart_proto::fastopen` decides.

use std::net::SocketAddr;
use std::pin::Pin;
use std::{io, task};

use headstart_proto::Carrier;
use headstart_proto::fastopen::{FastOpen, FastOpenEvent, Flight, Verdict, Winner};
use headstart_sessions::{Context, Network, Visit, Visited};
use tokio::time::Sleep;

use super::{Opening, now};
use crate::advert::Advert;
use crate::connector::OpeningPolicy;
use crate::connector::kernel::SYN_DATA_MAX;
use crate::connector::offer::Offer;
use crate::path::{PathKey, SynAdvice};
use crate::race::{AttemptOutcome, Connecting, RaceWinner};
use crate::report::{FastOpenNotUsed, NotUsed, OpeningEvent};
use crate::target::Target;

/// State of an opening concerning data in its SYN.
pub(super) struct SynData {
    core: FastOpen,
    context: Context,
    /// True if the application writes before TCP is connected.
    speaks_first: bool,
    /// Route, once the server is known to accept cookies.
    route: Option<Route>,
    /// Time and network of the context's last visit to this host.
    last: Visited,
    /// Addresses without a route.
    unreachable: Vec<SocketAddr>,
    sent: Option<SentSyn>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A route and its address.
#[derive(Clone, Copy)]
struct Route {
    key: PathKey,
    network: Network,
}

/// A SYN that left with data.
#[derive(Clone, Copy)]
struct SentSyn {
    /// Number of its attempt in the race.
    attempt: usize,
    bytes: usize,
}

impl SynData {
    pub(super) fn new(policy: OpeningPolicy, target: &Target) -> Self {
        let mut core = FastOpen::new(SYN_DATA_MAX);
        if !policy.sends_syn_data() {
            core.give_up();
        }
        Self {
            core,
            context: target.context.clone(),
            speaks_first: target.speaks_first,
            route: None,
            last: Visited::Never,
            unreachable: Vec::new(),
            sent: None,
            timer: None,
        }
    }

    /// Returns true if nothing else may start yet, because the flight may still leave with the SYN.
    pub(super) const fn is_waiting(&self) -> bool {
        self.core.is_waiting()
    }

    /// Returns true if the flight leaves with the SYN, or may do so.
    pub(super) const fn is_in_use(&self) -> bool {
        self.core.is_waiting() || self.sent.is_some()
    }
}

impl Opening {
    /// Holds the SYN back while it may get data, and sends it with them. Returns true on progress.
    pub(super) fn poll_syn(&mut self, cx: &mut task::Context<'_>) -> bool {
        if self.race.is_none() || self.syn.core.is_over() {
            return false;
        }
        while self.consider_offer() {}
        self.syn.core.handle_app_data(self.clock.now(), self.client.stream());
        self.notice_failure();
        let mut progress = self.poll_syn_timer(cx);
        if let Some(flight) = self.syn.core.poll_flight() {
            self.send_syn(flight);
            progress = true;
        }
        if let (true, Some(route)) = (self.syn.core.poll_beside(), self.syn.route)
            && let Some(race) = &mut self.race
        {
            race.try_beside(route.key.edge);
            progress = true;
        }
        self.note_syn_events();
        if let Some(race) = &mut self.race {
            race.hold(self.syn.core.is_waiting());
        }
        progress
    }

    /// Determines the outcome of the data, now that `won` is connected.
    pub(super) fn handle_syn_connected(&mut self, won: &RaceWinner) {
        self.notice_failure();
        let Some(route) = self.syn.route else { return };
        if won.addr == route.key.edge {
            self.report.network = Some(route.network);
            self.note_arrival(route.network);
            self.shared.paths.record_rtt(route.key, won.rtt);
        }
        let Some(sent) = self.syn.sent else { return };
        let winner = self.winner(sent, route, won);
        if let Winner::Syn { accepted } = winner {
            self.client.handle_syn_data(sent.bytes);
            self.learn_answer(accepted);
        }
        let verdict = self.syn.core.handle_connected(self.clock.now(), winner);
        self.note_syn_events();
        match verdict {
            Some(Verdict::Accepted) => {}
            Some(Verdict::Refused) => self.set_fast_open_not_used(FastOpenNotUsed::Refused),
            Some(Verdict::Lost) => self.set_fast_open_not_used(FastOpenNotUsed::Lost),
            None => self.set_fast_open_not_used(FastOpenNotUsed::Overtaken),
        }
        if let Some(verdict) = verdict {
            self.shared.paths.record_syn(self.syn.context.uid, route.key, verdict, now());
            count(verdict);
        }
    }

    fn note_arrival(&self, network: Network) {
        let cookies = &self.shared.cookies;
        let visit = Visit { host: &self.name, context: &self.syn.context, network };
        cookies.jar().arrive(&visit, cookies.now());
    }

    fn winner(&self, sent: SentSyn, route: Route, won: &RaceWinner) -> Winner {
        if won.number == sent.attempt {
            // If the kernel cannot tell, count the data as not accepted.
            let accepted = self.shared.cookies.kernel().was_accepted(&won.stream);
            Winner::Syn { accepted: accepted.unwrap_or(false) }
        } else if won.addr == route.key.edge {
            Winner::SameAddress
        } else {
            Winner::Elsewhere { took: won.rtt }
        }
    }

    fn learn_answer(&mut self, accepted: bool) {
        if accepted {
            self.report.opened_by = Carrier::Fop;
            metrics::counter!("headstart_round_trips_saved_total").increment(1);
        }
    }

    /// Checks whether the server accepts cookies at the address that is tried first. Returns true
    /// if another address is first now.
    fn consider_offer(&mut self) -> bool {
        if !self.syn.core.is_open_question() {
            return false;
        }
        let Some(race) = &self.race else { return false };
        let mut attempts = race.attempts().iter();
        let left = attempts.any(|attempt| !matches!(attempt.outcome, AttemptOutcome::Failed(_)));
        let Some(first) = race.first() else { return false };
        match self.offer.at(first) {
            Some(advert) => return self.on_advert(first, advert, left),
            None if left => {}
            None => self.await_advert(),
        }
        false
    }

    /// Handles an advertisement; `left` is true if the SYN has already left. Returns true if
    /// another address is first now.
    fn on_advert(&mut self, first: SocketAddr, advert: Advert, left: bool) -> bool {
        self.shared.paths.record_syn_offer(&self.name, advert.fop);
        let refused = match advert.fop {
            false => FastOpenNotUsed::NotOffered,
            true if left => FastOpenNotUsed::OfferLate,
            true => match self.prepare(first) {
                Ok(advice) => {
                    let (SynAdvice::Use { rtt } | SynAdvice::Bare { rtt, .. }) = advice;
                    self.syn.core.offer(self.clock.now(), rtt);
                    return false;
                }
                Err(FastOpenNotUsed::NoRoute) if self.defer_if_unreachable(first) => return true,
                // Addresses of the other family may still arrive.
                Err(FastOpenNotUsed::NoRoute) if self.lookup.is_some() => return false,
                Err(reason) => reason,
            },
        };
        self.refuse_syn(refused);
        false
    }

    /// Moves `first` to the end if it has no route, as IPv6 addresses on many networks. Returns
    /// true if another address is first now.
    fn defer_if_unreachable(&mut self, first: SocketAddr) -> bool {
        let (Some(race), unreachable) = (&mut self.race, &self.syn.unreachable) else {
            return false;
        };
        if !unreachable.contains(&first) {
            return false;
        }
        race.defer(first);
        race.first().is_some_and(|next| !unreachable.contains(&next))
    }

    /// Delays the SYN briefly if the first address has no offer yet but had one before.
    fn await_advert(&mut self) {
        match self.offer {
            Offer::Awaited(_) | Offer::Requested(_) => {
                let expected = self.shared.paths.expects_syn_offer(&self.name);
                // Without support on this machine, waiting would be pointless.
                let cookies = &self.shared.cookies;
                if expected && self.syn.speaks_first && cookies.is_available(cookies.now()) {
                    self.syn.core.expect(self.clock.now());
                }
            }
            Offer::Never(_)
            | Offer::Unnamed(_)
            | Offer::Known(_)
            | Offer::Advertised(_)
            | Offer::Learnt(_) => {
                self.refuse_syn(FastOpenNotUsed::NotOffered);
            }
        }
    }

    /// Checks that this machine and the path support data in the SYN.
    fn prepare(&mut self, first: SocketAddr) -> Result<SynAdvice, FastOpenNotUsed> {
        if !self.syn.speaks_first {
            return Err(FastOpenNotUsed::ConnectFirst);
        }
        let cookies = &self.shared.cookies;
        if !cookies.is_available(cookies.now()) {
            return Err(FastOpenNotUsed::Unavailable);
        }
        let network = cookies.kernel().network_to(first.ip()).map_err(|error| {
            if is_unreachable(&error) && !self.syn.unreachable.contains(&first) {
                self.syn.unreachable.push(first);
            }
            FastOpenNotUsed::NoRoute
        })?;
        let key = PathKey { local: network.local, edge: first };
        self.syn.route = Some(Route { key, network });
        let visit = Visit { host: &self.name, context: &self.syn.context, network };
        self.syn.last = cookies.jar().visit(&visit, cookies.now());
        match self.shared.paths.advise_syn(self.syn.context.uid, key, now()) {
            SynAdvice::Bare { reason, .. } if !self.asks_for_syn_data() => {
                Err(FastOpenNotUsed::Path(reason))
            }
            advice => Ok(advice),
        }
    }

    /// Sends the SYN with the complete flight, if there is a cookie.
    fn send_syn(&mut self, flight: Flight) {
        let Some(route) = self.syn.route else { return self.syn.core.give_up() };
        let (connecting, bytes) = match self.connect_with(flight, route) {
            Ok(opened) => opened,
            Err(reason) => return self.refuse_syn(reason),
        };
        let Some(race) = &mut self.race else { return self.syn.core.give_up() };
        let attempt = race.start(route.key.edge, connecting);
        // The core decides when a bare SYN goes beside one with data.
        race.without_second_syn();
        self.note(OpeningEvent::Syn(route.key.edge));
        if bytes == 0 {
            // The kernel sent it without data: an ordinary connection.
            return self.refuse_syn(FastOpenNotUsed::System);
        }
        self.syn.sent = Some(SentSyn { attempt, bytes });
        self.syn.core.handle_sent(self.clock.now(), bytes);
        self.set_not_used(NotUsed::FastOpen);
    }

    fn connect_with(
        &self,
        flight: Flight,
        route: Route,
    ) -> Result<(Connecting, usize), FastOpenNotUsed> {
        let visit = Visit { host: &self.name, context: &self.syn.context, network: route.network };
        let cookies = &self.shared.cookies;
        let cookie = cookies.spend(&visit, flight.ticket_cookie, self.syn.last)?;
        // Checked last: probing a path takes a cookie.
        if let Err(reason) = self.shared.paths.begin_syn(self.syn.context.uid, route.key, now())
            && !self.asks_for_syn_data()
        {
            return Err(FastOpenNotUsed::Path(reason));
        }
        let data = self.client.stream().get(..flight.bytes).unwrap_or_default();
        let opened = cookies.kernel().connect(route.key.edge, &cookie, data);
        let opened = opened.and_then(|(stream, taken)| Ok((Connecting::with_data(stream)?, taken)));
        opened.map_err(|error| {
            tracing::debug!(%error, "no SYN with data");
            cookies.on_error(&error, cookies.now());
            FastOpenNotUsed::System
        })
    }

    /// Notices a failed SYN with data; the race itself then tries without data.
    fn notice_failure(&mut self) {
        let (Some(race), Some(sent)) = (&self.race, self.syn.sent) else { return };
        let attempt = race.attempts().get(sent.attempt);
        if attempt.is_some_and(|attempt| matches!(attempt.outcome, AttemptOutcome::Failed(_))) {
            self.syn.core.handle_failed();
            // Done already.
            self.syn.core.poll_beside();
        }
    }

    fn poll_syn_timer(&mut self, cx: &mut task::Context<'_>) -> bool {
        let Some(deadline) = self.syn.core.poll_timeout() else {
            self.syn.timer = None;
            return false;
        };
        let deadline = self.clock.to_tokio(deadline);
        let timer = &mut self.syn.timer;
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.syn.core.handle_timeout(self.clock.now());
        self.syn.timer = None;
        true
    }

    fn refuse_syn(&mut self, reason: FastOpenNotUsed) {
        self.syn.core.give_up();
        self.set_fast_open_not_used(reason);
    }

    fn note_syn_events(&mut self) {
        while let Some(event) = self.syn.core.poll_event() {
            match event {
                FastOpenEvent::NotFast(reason) => {
                    self.set_fast_open_not_used(FastOpenNotUsed::Flight(reason));
                }
                event => self.note(OpeningEvent::FastOpen(event)),
            }
        }
    }

    /// Sets the reason, but only for servers that accept cookies, or if the caller asked for them.
    fn set_fast_open_not_used(&mut self, reason: FastOpenNotUsed) {
        let telling = self.asks_for_syn_data() || self.shared.paths.expects_syn_offer(&self.name);
        if telling && self.report.fast_open_not_used.is_none() {
            self.report.fast_open_not_used = Some(reason);
            self.note(OpeningEvent::FastOpenNotUsed(reason));
        }
    }

    /// Returns true if data in the SYN are to be tried regardless of the path's record.
    fn asks_for_syn_data(&self) -> bool {
        self.shared.config.opening == OpeningPolicy::Fop
    }
}

/// Returns true if the kernel has no route there; it may also refuse to say.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable)
}

fn count(verdict: Verdict) {
    let outcome = match verdict {
        Verdict::Accepted => "accepted",
        Verdict::Refused => "refused",
        Verdict::Lost => "lost",
    };
    metrics::counter!("headstart_syn_data_total", "outcome" => outcome).increment(1);
}
