mod spare;
mod syn;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use headstart_proto::Carrier;
use headstart_proto::hello::{self, Progress};
use headstart_proto::limits::{LAG_MAX, REQUEST_MIN, SEQUENCES};
use headstart_proto::wire::RESPONSE_PAYLOAD_MAX;
use headstart_proto::{
    Client, ClientConfig, ClientEvent, GraceEstimator, JoinKey, PlainReason, ResetReason, Wait,
};
use headstart_sessions::{Context as Owner, Service};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::late::LateAnswer;
use super::offer::Offer;
use super::{Inner, OpeningPolicy};
use crate::advert::Advert;
use crate::clock::{Clock, now};
use crate::dns::{Event, Lookup};
use crate::name::normalized;
use crate::opener::Opener;
use crate::path::{Advice, Outcome, PathKey, SecondAdvice, SlotReservation};
use crate::race::{ATTEMPT_DELAY, Race, RaceWinner};
use crate::report::{NotUsed, OpeningEvent, Report};
use crate::target::Target;
use crate::udp::{Datagram, RecvBuffers, RecvError, UdpPort, is_unreachable, with_thread_buffers};
use spare::SpareUse;
use syn::SynData;

/// Rounds over all sources before the task yields.
const BUDGET: usize = 64;

/// Bytes read from TCP at a time.
const TCP_READ: usize = 16 * 1024;

type PendingLookup = Pin<Box<dyn Future<Output = (Lookup, Option<Event>)> + Send>>;

/// A connection until TCP alone carries it: DNS lookup, race, datagrams and the core that decides.
pub(super) struct Opening {
    shared: Arc<Inner>,
    clock: Clock,
    /// Name under which the size of the server's flight is remembered.
    name: String,
    port: u16,
    lookup: Option<PendingLookup>,
    offer: Offer,
    /// Owner of what the server has advertised inside TLS, if that is the offer.
    learnt_by: Option<Owner>,
    race: Option<Race>,
    syn: SynData,
    spare: SpareUse,
    udp: Option<Udp>,
    /// Address for which the UDP socket could not be connected.
    unreachable: Option<SocketAddr>,
    tcp: Option<TcpStream>,
    tcp_queue: Vec<u8>,
    tcp_read: Vec<u8>,
    tcp_finished: bool,
    app_finished: bool,
    client: Client,
    timer: Option<Pin<Box<Sleep>>>,
    connected: Option<Instant>,
    /// Server bytes before the application's second flight.
    flight_bytes: Option<usize>,
    /// When the ClientHello left over UDP, and how long after the SYN.
    flight_sent: Option<Instant>,
    flight_delay: Duration,
    first_lag: Option<Duration>,
    report: Report,
}

/// The datagram side of an opening.
struct Udp {
    socket: UdpPort,
    /// Where the datagrams go.
    to: SocketAddr,
    key: PathKey,
    grace: GraceEstimator,
    /// True if the path is known to carry datagrams.
    proven: bool,
    slots: SlotReservation,
}

impl Opening {
    pub(super) fn new(
        shared: Arc<Inner>,
        target: &Target,
        port: u16,
        lookup: Lookup,
        offer: Offer,
    ) -> Self {
        let mut race = Race::new([], ATTEMPT_DELAY).with_limit(shared.config.connect_timeout);
        race.expect_more(true);
        let syn = SynData::new(shared.config.opening, target);
        let spare = SpareUse::new(shared.spares.is_on(), target);
        let learnt_by = matches!(offer, Offer::Awaited(Some(_)) | Offer::Learnt(_));
        let learnt_by = learnt_by.then(|| target.context.clone());
        Self {
            shared,
            clock: Clock::start(),
            name: normalized(target.name()),
            port,
            lookup: Some(next_event(lookup)),
            offer,
            learnt_by,
            race: Some(race),
            syn,
            spare,
            udp: None,
            unreachable: None,
            tcp: None,
            tcp_queue: Vec::new(),
            tcp_read: Vec::new(),
            tcp_finished: false,
            app_finished: false,
            // W-ID-1
            client: Client::new(JoinKey::new(rand::random()), ClientConfig::default()),
            timer: None,
            connected: None,
            flight_bytes: Some(0),
            flight_sent: None,
            flight_delay: Duration::ZERO,
            first_lag: None,
            report: Report::default(),
        }
    }
}

impl Opener for Opening {
    fn report(&self) -> &Report {
        &self.report
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for round in 0..BUDGET {
            let mut progress = self.poll_lookup(cx)?;
            // Whether there is a better way has to be known before the SYN leaves.
            while self.spare.is_possible() && self.poll_lookup(cx)? {
                progress = true;
            }
            self.offer.poll(cx);
            progress |= self.poll_syn(cx);
            progress |= self.poll_spare(cx)?;
            progress |= self.poll_race(cx)?;
            self.offer_udp();
            progress |= self.poll_udp(cx);
            progress |= self.poll_tcp(cx)?;
            progress |= self.poll_timer(cx);
            self.take_events()?;
            if !progress {
                return Ok(round > 0);
            }
        }
        cx.waker().wake_by_ref();
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.client.app_room());
        if taken > 0 {
            if let Some(flight) = self.flight_bytes.take_if(|flight| *flight > 0) {
                self.shared.paths.record_flight(&self.name, flight.div_ceil(RESPONSE_PAYLOAD_MAX));
            }
            self.client.handle_app_data(self.clock.now(), bytes.get(..taken).unwrap_or_default());
            self.learn_name();
        }
        taken
    }

    fn finish(&mut self) {
        self.app_finished = true;
        self.client.handle_app_finished(self.clock.now());
    }

    fn poll_bytes(&mut self) -> Option<Vec<u8>> {
        let bytes = self.client.poll_app()?;
        if let Some(flight) = &mut self.flight_bytes {
            *flight += bytes.len();
        }
        Some(bytes)
    }

    fn is_read_finished(&self) -> bool {
        self.client.is_app_finished()
    }

    fn is_flushed(&self) -> bool {
        let written = self.client.is_decided() && self.tcp_queue.is_empty();
        written && (!self.client.wants_tcp_finish() || self.tcp_finished)
    }

    fn is_connected(&self) -> bool {
        self.tcp.is_some() || self.spare.is_on_trial()
    }

    fn is_transparent(&self) -> bool {
        self.tcp.is_some()
            && self.tcp_queue.is_empty()
            && self.client.is_transparent()
            && (!self.client.wants_tcp_finish() || self.tcp_finished)
    }

    /// If silence caused the fallback, a
    /// background task waits for late datagrams, since they tell how long the grace should be.
    fn into_tcp(mut self: Box<Self>) -> Option<(TcpStream, Report)> {
        let tcp = self.tcp.take()?;
        self.note(OpeningEvent::HandedOver);
        self.record_long_flight();
        if let (true, Some(udp), Some(connected)) =
            (self.client.awaits_late_datagram(), self.udp.take(), self.connected)
        {
            let (awaited, rtt) = (self.has_awaited(), self.rtt());
            let late = LateAnswer {
                client: self.client,
                clock: self.clock,
                socket: udp.socket,
                key: udp.key,
                awaited,
                rtt,
                due: connected + self.flight_delay,
            };
            late.await_in_background(Arc::clone(&self.shared.paths));
        }
        Some((tcp, self.report))
    }

    fn reset(mut self: Box<Self>) {
        self.spare.reset();
        if let Some(tcp) = self.tcp {
            let _ = tcp.set_zero_linger();
        }
    }

    fn into_report(self: Box<Self>) -> Report {
        self.report
    }
}

impl Opening {
    /// Records that the slots were too few, by one at least: the client has not sent its second
    /// flight yet, and the server's flight goes on over TCP.
    fn record_long_flight(&self) {
        let over_udp = self.report.opened_by == Carrier::TurboTls;
        if let Some(flight) = self.flight_bytes.filter(|flight| over_udp && *flight > 0) {
            let datagrams = flight.div_ceil(RESPONSE_PAYLOAD_MAX) + 1;
            self.shared.paths.record_long_flight(&self.name, datagrams);
        }
    }

    /// Looks for an offer under the name in the ClientHello, where the target is an address.
    fn learn_name(&mut self) {
        let Offer::Unnamed(literal) = self.offer else { return };
        let name = match hello::read(self.client.stream()) {
            Ok(Progress::Incomplete) => return,
            Ok(Progress::Complete(hello)) => hello.server_name,
            Err(_) => None,
        };
        let Some(name) = name else { return self.offer = Offer::Never(NotUsed::Literal) };
        self.offer = self.shared.offer_for(&name, literal);
        self.name = normalized(&name);
    }

    fn note(&mut self, event: OpeningEvent) {
        self.report.note(self.clock.now().since_epoch(), event);
    }

    fn poll_lookup(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(pending) = &mut self.lookup else { return Ok(false) };
        let Poll::Ready((lookup, event)) = pending.as_mut().poll(cx) else { return Ok(false) };
        self.lookup = event.is_some().then(|| next_event(lookup));
        match event {
            Some(Event::Addresses(found)) => {
                self.note(OpeningEvent::Resolved(found.len()));
                if let Some(race) = &mut self.race {
                    race.add(found.into_iter().map(|address| SocketAddr::new(address, self.port)));
                }
            }
            Some(Event::Advert(edge)) => self.offer.learn(edge),
            Some(Event::Failed(error)) if self.tcp.is_none() => return Err(error.into()),
            Some(Event::Failed(_)) => {}
            None => {
                if let Some(race) = &mut self.race {
                    race.expect_more(false);
                }
            }
        }
        Ok(true)
    }

    fn poll_race(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.spare.stops_race() {
            return Ok(false);
        }
        let Some(race) = &mut self.race else { return Ok(false) };
        let before = race.attempts().len();
        if let (0, Some(first)) = (before, race.first()) {
            race.expect_rtt(self.shared.paths.connect_rtt(first));
            if self.shared.config.second_syn
                && let SecondAdvice::Send(rtt) = self.shared.paths.advise_second(first)
            {
                race.second_syn(rtt);
            }
        }
        let outcome = race.poll_winner(cx);
        let second = race.second_attempt();
        let started = race.attempts().iter().enumerate().skip(before);
        let started: Vec<_> = started
            .map(|(number, tried)| match second == Some(number) {
                true => OpeningEvent::SecondSyn(tried.addr),
                false => OpeningEvent::Syn(tried.addr),
            })
            .collect();
        started.into_iter().for_each(|event| self.note(event));
        match outcome {
            Poll::Pending => Ok(false),
            Poll::Ready(_) if self.keeps_spare() => Ok(true),
            Poll::Ready(Err(error)) => Err(io::Error::new(error.kind(), error)),
            Poll::Ready(Ok(won)) => {
                self.handle_connected(won);
                Ok(true)
            }
        }
    }

    fn handle_connected(&mut self, mut won: RaceWinner) {
        won.rtt = self.learn_connect(&won);
        self.handle_syn_connected(&won);
        if let Some(sent) = self.flight_sent {
            self.flight_delay = sent.saturating_duration_since(won.connected - won.rtt);
        }
        self.learn_from_others();
        let wait = self.wait(won.rtt);
        let same_address = self.udp.as_ref().is_none_or(|udp| udp.key.edge == won.addr);
        self.report.rtt = Some(won.rtt);
        self.report.address = Some(won.addr);
        self.connected = Some(won.connected);
        self.tcp = Some(won.stream);
        self.race = None;
        self.lookup = None;
        // A datagram already in the socket came in time, whichever socket is polled first.
        self.receive_now();
        self.client.handle_tcp_connected(self.clock.now(), same_address, wait);
    }

    /// Learns how long connections take there, and whether the second SYN helped where it went.
    /// Returns the round trip, as far as it is known.
    fn learn_connect(&self, won: &RaceWinner) -> Duration {
        let local = won.stream.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |own| own.ip());
        let rtt = self.shared.paths.record_connect(won.addr, local, won.rtt);
        let Some(race) = &self.race else { return rtt };
        let Some(number) = race.second_attempt() else { return rtt };
        let Some(second) = race.attempts().get(number) else { return rtt };
        let outcome = match number == won.number {
            true => "used",
            // It was lost as the first was: the kernel had to send another.
            false if won.repeated && won.addr == second.addr => "lost",
            false => {
                self.shared.paths.record_in_vain(second.addr, local);
                "in_vain"
            }
        };
        metrics::counter!("headstart_second_syns_total", "outcome" => outcome).increment(1);
        rtt
    }

    /// One of many knows by the answers to others that the path carries datagrams. Returns true if
    /// that is news.
    fn learn_from_others(&mut self) -> bool {
        let Some(udp) = &mut self.udp else { return false };
        let news = !udp.proven && udp.slots.is_one_of_many() && udp.slots.is_path_answered();
        udp.proven |= news;
        news
    }

    /// Returns how long to wait for the answer to the flight.
    fn wait(&self, rtt: Duration) -> Option<Wait> {
        let due = self.flight_delay;
        match (self.shared.config.grace, &self.udp) {
            (Some(grace), _) => Some(Wait { due, ..Wait::within(grace.min(LAG_MAX)) }),
            (None, Some(udp)) => {
                let wait = udp.grace.wait(rtt, due, udp.proven)?;
                // The answers of many queue behind each other, as they would over TCP.
                let many = udp.proven && udp.slots.is_one_of_many();
                let queue = if many { rtt } else { Duration::ZERO };
                Some(Wait { grace: wait.grace.max(queue.saturating_sub(due)), ..wait })
            }
            (None, None) => None,
        }
    }

    /// Opens the datagram side as soon as there is an offer for the address that TCP tries first.
    fn offer_udp(&mut self) {
        // A flight that may leave with the SYN does not leave over UDP: a ClientHello is sent only
        // one way.
        if self.udp.is_some() || self.report.not_used.is_some() || self.syn.is_waiting() {
            return;
        }
        let Some(first) = self.race.as_ref().and_then(Race::first) else { return };
        if self.unreachable == Some(first) {
            return;
        }
        let Some(advert) = self.offer.at(first) else { return };
        match self.open_udp(first, advert) {
            Ok(()) => self.note(OpeningEvent::Offered),
            // No route to this family: the race notices it too, and goes on to another address.
            Err(NotUsed::Socket) => self.unreachable = Some(first),
            Err(reason) => self.set_not_used(reason),
        }
    }

    fn open_udp(&mut self, edge: SocketAddr, advert: Advert) -> Result<(), NotUsed> {
        let mut to = edge;
        to.set_port(advert.udp.map_or(edge.port(), NonZeroU16::get));
        let socket = UdpPort::connect(to, None).map_err(|_| NotUsed::Socket)?;
        let local = socket.local_addr().ip();
        let key = PathKey { local, edge };
        let config = &self.shared.config;
        let (grace, proven) = match self.shared.paths.advise(key, now()) {
            Advice::Turbo { grace, proven, .. } => (grace, proven),
            Advice::Plain { .. } if config.opening == OpeningPolicy::Turbo => Default::default(),
            Advice::Plain { reason, .. } => return Err(NotUsed::Path(reason)),
        };
        // Among many, none are sent to spare.
        let wanted = match self.shared.paths.slots_for(&self.name) {
            Some(needed) if self.shared.paths.is_crowded(key) => needed,
            needed => advert.slots.max(needed.unwrap_or(0)),
        };
        let slots = usize::from(wanted.min(config.slots_max)) + 1;
        let slots = self.shared.paths.reserve_slots(key, slots, REQUEST_MIN, now());
        let slots = slots.ok_or(NotUsed::PathBusy)?;
        let client = ClientConfig {
            slots: u8::try_from(slots.slots()).unwrap_or(SEQUENCES),
            early_data: advert.early_data,
            hold: config.hold,
        };
        self.udp = Some(Udp { socket, to, key, grace, proven, slots });
        self.client.offer_udp(client);
        Ok(())
    }

    fn set_not_used(&mut self, reason: NotUsed) {
        if self.report.not_used.is_none() {
            self.report.not_used = Some(reason);
            self.note(OpeningEvent::NotUsed(reason));
        }
    }

    fn poll_udp(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(udp) = &self.udp else { return false };
        let (mut unreachable, mut received) = (false, false);
        while let Some(datagram) = self.client.poll_datagram() {
            let datagram = Datagram { to: udp.to, from: None, bytes: &datagram };
            // A datagram that cannot be sent now is lost, as on the network.
            unreachable |=
                udp.socket.try_send(&datagram).is_err_and(|error| is_unreachable(&error));
        }
        let now = self.clock.now();
        with_thread_buffers(|buffers| match udp.socket.poll_recv(cx, buffers) {
            Poll::Ready(Ok(_)) => {
                received = true;
                take_datagrams(&mut self.client, now, buffers);
            }
            Poll::Ready(Err(RecvError::Unreachable(_))) => unreachable = true,
            Poll::Ready(Err(RecvError::Socket(_))) | Poll::Pending => {}
        });
        if unreachable {
            self.client.handle_unreachable(now);
        }
        received || unreachable
    }

    /// Receives datagrams that are there already, without waiting.
    fn receive_now(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while self.poll_udp(&mut cx) {}
    }

    fn poll_tcp(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.tcp.is_none() {
            return Ok(false);
        }
        let written = self.poll_tcp_write(cx);
        let passed = written.and_then(|written| Ok(written | self.poll_tcp_read(cx)?));
        passed.inspect_err(|_| {
            self.client.handle_tcp_failed();
            // The event reports the reset, as the caller does.
            let _ = self.take_events();
        })
    }

    fn poll_tcp_write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.tcp_queue.is_empty()
            && let Some(bytes) = self.client.poll_tcp()
        {
            self.tcp_queue = bytes;
        }
        let Some(tcp) = &mut self.tcp else { return Ok(false) };
        if !self.tcp_queue.is_empty() {
            let Poll::Ready(written) = Pin::new(tcp).poll_write(cx, &self.tcp_queue)? else {
                return Ok(false);
            };
            self.tcp_queue.drain(..written);
            return Ok(written > 0);
        }
        if self.client.wants_tcp_finish() && !self.tcp_finished {
            self.tcp_finished = Pin::new(tcp).poll_shutdown(cx)?.is_ready();
            return Ok(self.tcp_finished);
        }
        Ok(false)
    }

    fn poll_tcp_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // A transparent stream leaves its bytes in the socket for its next owner.
        if !self.client.wants_tcp_data() || self.client.is_transparent() {
            return Ok(false);
        }
        let Some(tcp) = &mut self.tcp else { return Ok(false) };
        self.tcp_read.resize(TCP_READ, 0);
        let mut read = ReadBuf::new(&mut self.tcp_read);
        if Pin::new(tcp).poll_read(cx, &mut read)?.is_pending() {
            return Ok(false);
        }
        match read.filled() {
            [] => self.client.handle_tcp_finished(),
            bytes => self.client.handle_tcp_data(self.clock.now(), bytes),
        }
        Ok(true)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.client.poll_timeout() else {
            self.timer = None;
            return false;
        };
        let deadline = self.clock.to_tokio(deadline);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        // The datagram that ends the wait may be in the socket already.
        self.receive_now();
        if self.learn_from_others()
            && let Some(wait) = self.wait(self.rtt())
        {
            self.client.set_wait(wait);
        }
        self.client.handle_timeout(self.clock.now());
        self.timer = None;
        true
    }

    fn take_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.client.poll_event() {
            self.note(OpeningEvent::Transport(event));
            self.learn(event)?;
        }
        Ok(())
    }

    /// Applies an event to the report, the path's memory and the counters.
    fn learn(&mut self, event: ClientEvent) -> io::Result<()> {
        match event {
            ClientEvent::FlightSent { .. } | ClientEvent::SlotSent { .. } => {
                if self.flight_sent.is_none() {
                    self.flight_sent = Some(Instant::now());
                    if let Some(udp) = &mut self.udp {
                        udp.slots.leave(now());
                    }
                }
                count(TO_SERVER, "sent");
            }
            ClientEvent::DatagramReceived { .. } => {
                count(TO_CLIENT, "accepted");
                // The server is there, and so far away.
                if let (Some(race), Some(sent)) = (&mut self.race, self.flight_sent) {
                    race.learn_rtt(sent.elapsed());
                }
                if self.first_lag.is_none() {
                    self.first_lag = Some(self.lag());
                    self.udp.as_ref().inspect(|udp| udp.slots.answer(now()));
                }
            }
            ClientEvent::DatagramIgnored => count(TO_CLIENT, "ignored"),
            ClientEvent::LateDatagram => {
                count(TO_CLIENT, "late");
                let (awaited, rtt, lag) = (self.has_awaited(), self.rtt(), self.lag());
                self.record(Outcome::Late { awaited, rtt, lag });
            }
            ClientEvent::JoinSent { .. } => self.report.opened_by = Carrier::TurboTls,
            ClientEvent::JoinAccepted { .. } => self.record_opened(),
            ClientEvent::FirstServerBytes { udp: true } => {
                metrics::counter!("headstart_round_trips_saved_total").increment(1);
            }
            ClientEvent::GivenUp(reason) => self.record_failure(reason),
            ClientEvent::Plain(reason) => self.learn_plain(reason),
            ClientEvent::Reset(reason) => return Err(self.learn_reset(reason)),
            _ => {}
        }
        Ok(())
    }

    /// Forgets what the server has advertised inside TLS: it does not hold, or not here.
    fn forget_advert(&mut self) {
        let is_used = matches!(self.offer, Offer::Learnt(_));
        if let Some(context) = self.learnt_by.take_if(|_| is_used) {
            // W-TLS-3
            let service = Service { host: &self.name, port: self.port, context: &context };
            self.shared.offers().remove(&service);
        }
    }

    fn learn_reset(&mut self, reason: ResetReason) -> io::Error {
        self.forget_advert();
        self.report.reset = Some(reason);
        metrics::counter!("headstart_fallbacks_total", "reason" => reason.name()).increment(1);
        match reason {
            ResetReason::CommittedRefusal => self.record(Outcome::Reset),
            ResetReason::Refused | ResetReason::JoinLost | ResetReason::Protocol => {
                self.record(Outcome::Refused);
            }
            ResetReason::EarlyDataTooOld => {}
        }
        io::ErrorKind::ConnectionReset.into()
    }

    fn learn_plain(&mut self, reason: PlainReason) {
        let reason = match reason {
            PlainReason::NotOffered if self.unreachable.is_some() => NotUsed::Socket,
            PlainReason::NotOffered => self.offer.not_used_reason(self.report.address),
            other => NotUsed::Fallback(other),
        };
        self.set_not_used(reason);
        let reason = self.report.not_used.unwrap_or(reason);
        if !matches!(reason, NotUsed::Policy | NotUsed::FastOpen) {
            metrics::counter!("headstart_fallbacks_total", "reason" => reason.name()).increment(1);
        }
        self.learn_for_spares(reason);
        if let NotUsed::Fallback(reason) = reason {
            self.record_failure(reason);
        }
    }

    fn record_opened(&self) {
        if let Some(lag) = self.first_lag {
            self.record(Outcome::Opened { rtt: self.rtt(), lag });
        }
    }

    fn record_failure(&mut self, reason: PlainReason) {
        if matches!(reason, PlainReason::Silence | PlainReason::Unreachable) {
            self.forget_advert();
        }
        match reason {
            // The path carries datagrams.
            PlainReason::NoServerBytes | PlainReason::Held => self.record_opened(),
            PlainReason::Silence => {
                let among_many = self.udp.as_ref().is_some_and(|udp| udp.slots.shrink(now()));
                if !among_many {
                    self.record(Outcome::Silent);
                }
            }
            PlainReason::Unreachable => self.record(Outcome::Unreachable),
            _ => {}
        }
    }

    /// Returns true unless the client went plain without a wait for the answer.
    fn has_awaited(&self) -> bool {
        self.report.not_used != Some(NotUsed::Fallback(PlainReason::NotAwaited))
    }

    fn rtt(&self) -> Duration {
        self.report.rtt.unwrap_or_default()
    }

    /// Returns how late a datagram is that arrives now, compared with TCP's own round trip.
    fn lag(&self) -> Duration {
        let since = self.connected.map_or(Duration::ZERO, |connected| connected.elapsed());
        since.saturating_sub(self.flight_delay)
    }

    fn record(&self, outcome: Outcome) {
        if let Some(udp) = &self.udp {
            self.shared.paths.record(udp.key, outcome, now());
        }
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("name", &self.name).finish_non_exhaustive()
    }
}

fn next_event(mut lookup: Lookup) -> PendingLookup {
    Box::pin(async move {
        let event = lookup.next().await;
        (lookup, event)
    })
}

fn take_datagrams(client: &mut Client, now: headstart_proto::Instant, buffers: &RecvBuffers) {
    for datagram in buffers.datagrams() {
        client.handle_datagram(now, datagram.bytes);
    }
}

const TO_SERVER: &str = "to_server";
const TO_CLIENT: &str = "to_client";

fn count(direction: &'static str, outcome: &'static str) {
    metrics::counter!(
        "headstart_udp_datagrams_total",
        "direction" => direction, "outcome" => outcome,
    )
    .increment(1);
}
