//! An opening by a spare connection: the ClientHello leaves at once, and again on a fresh
//! connection if the spare turns out to be dead.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use headstart_proto::Carrier;
use headstart_proto::hello::{self, Progress};
use headstart_proto::limits::SYN_DATA_WAIT;
use headstart_sessions::{SpareKey, TakenSpare};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Opening;
use crate::connector::offer::Offer;
use crate::connector::spares::{Loan, Spare};
use crate::report::{NotUsed, OpeningEvent};
use crate::target::Target;

/// Time beyond two round trips within which a server acknowledges the ClientHello: Linux delays an
/// acknowledgement by at most 40 ms.
const ACK_DELAY: Duration = Duration::from_millis(50);

/// State of an opening concerning spares.
pub(super) struct SpareUse {
    /// Owner and host, while a spare may be used or learnt of.
    key: Option<SpareKey>,
    wait: Option<Pin<Box<Sleep>>>,
    trial: Option<Trial>,
}

/// A spare that has not shown yet that it is alive.
struct Trial {
    loan: Loan,
    /// Bytes of the client stream written to it.
    sent: usize,
    silence: Option<Pin<Box<Sleep>>>,
    /// True once another connection may begin beside a silent spare.
    is_silent: bool,
}

/// Result of a trial.
enum Standing {
    Open,
    /// The server has answered.
    Alive,
    /// The server has closed or reset the connection, perhaps because of what it got.
    Failed(io::Error),
    /// The server has closed the connection before it got a byte.
    Dead,
}

impl SpareUse {
    /// Creates the state for a connection, which uses none unless `is_on`.
    pub(super) fn new(is_on: bool, target: &Target) -> Self {
        let used = is_on && target.speaks_first;
        let key = used.then(|| SpareKey::new(&target.context, &target.host, target.port));
        Self { key: key.flatten(), wait: None, trial: None }
    }

    pub(super) const fn is_possible(&self) -> bool {
        self.key.is_some()
    }

    pub(super) const fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Returns true if nothing else connects: a spare may have done so.
    pub(super) fn stops_race(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| !trial.is_silent)
    }

    /// Closes a spare on trial with a reset.
    pub(super) fn reset(&mut self) {
        if let Some(spare) = self.trial.as_mut().and_then(|trial| trial.loan.spare()) {
            let _ = spare.stream.set_zero_linger();
        }
    }
}

impl Opening {
    /// Opens by a spare if there is one and nothing better. Returns true on progress.
    pub(super) fn poll_spare(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.spare.is_on_trial() {
            return self.poll_trial(cx);
        }
        if self.tcp.is_some() || !self.spare.is_possible() || self.syn.is_in_use() {
            return Ok(false);
        }
        self.offer_udp();
        let waits = match self.is_plain() {
            Some(false) => false,
            None => true,
            Some(true) => match hello::read(self.client.stream()) {
                Ok(Progress::Incomplete) => true,
                Ok(Progress::Complete(hello)) if !hello.early_data => return self.take_spare(cx),
                // A silent server might have acted on early data.
                Ok(Progress::Complete(_)) | Err(_) => {
                    self.spare.key = None;
                    false
                }
            },
        };
        let waits = waits && self.has_spare() && self.is_within_wait(cx);
        if let Some(race) = &mut self.race {
            race.hold(waits);
        }
        Ok(false)
    }

    /// Returns true if neither datagrams nor data in the SYN will be used, as far as is known.
    fn is_plain(&self) -> Option<bool> {
        match (&self.report.not_used, &self.offer) {
            (Some(reason), _) | (None, Offer::Never(reason)) => Some(bears_spares(*reason)),
            (None, Offer::Awaited(_) | Offer::Requested(_) | Offer::Unnamed(_)) => None,
            (None, Offer::Known(_) | Offer::Advertised(_) | Offer::Learnt(_)) => Some(false),
        }
    }

    fn has_spare(&self) -> bool {
        let (Some(key), Some(race)) = (&self.spare.key, &self.race) else { return false };
        self.shared.spares.has(key, |address| race.knows(address))
    }

    fn is_within_wait(&mut self, cx: &mut Context<'_>) -> bool {
        // For the ClientHello and the server's offer: as long as a SYN waits for its data.
        let wait =
            self.spare.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(SYN_DATA_WAIT)));
        wait.as_mut().poll(cx).is_pending()
    }

    /// Takes a spare, and sends the ClientHello.
    fn take_spare(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // Asked first: lending wakes the keeper.
        let has_spare = self.has_spare();
        let (Some(key), Some(race)) = (&self.spare.key, &mut self.race) else { return Ok(false) };
        race.hold(false);
        let lend = || self.shared.spares.lend(key, |address| race.knows(address));
        let Some(loan) = has_spare.then(lend).flatten() else { return Ok(false) };
        if let Some(address) = loan.address() {
            self.note(OpeningEvent::Spare(address));
        }
        self.spare.trial = Some(Trial { loan, sent: 0, silence: None, is_silent: false });
        self.poll_trial(cx)?;
        Ok(true)
    }

    /// Drives a spare until it has shown whether it is alive. Returns true on progress.
    fn poll_trial(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(mut trial) = self.spare.trial.take() else { return Ok(false) };
        let before = (trial.sent, trial.is_silent);
        match trial.poll(cx, self.client.stream()) {
            // More than the core keeps for another connection, or the end of the stream.
            Standing::Open if self.client.app_room() == 0 || self.app_finished => {
                self.open_by_spare(trial);
            }
            Standing::Open => {
                let progress = (trial.sent, trial.is_silent) != before;
                self.spare.trial = Some(trial);
                return Ok(progress);
            }
            Standing::Alive => self.open_by_spare(trial),
            Standing::Failed(error) => {
                self.open_by_spare(trial);
                return Err(error);
            }
            Standing::Dead => self.drop_spare(trial),
        }
        Ok(true)
    }

    /// Goes on with a spare.
    fn open_by_spare(&mut self, trial: Trial) {
        let Some(TakenSpare { connection, address, .. }) = trial.loan.keep() else { return };
        metrics::counter!("headstart_round_trips_saved_total").increment(1);
        self.report.opened_by = Carrier::Spare;
        self.report.rtt = Some(connection.rtt);
        self.report.address = Some(address);
        self.connected = Some(Instant::now());
        self.tcp = Some(connection.stream);
        self.race = None;
        self.lookup = None;
        self.client.handle_syn_data(trial.sent);
        self.client.handle_tcp_connected(self.clock.now(), true, None);
    }

    /// Goes on without a spare that is dead: the winner of the race sends the client stream from
    /// its start.
    fn drop_spare(&mut self, trial: Trial) {
        trial.loan.discard();
        self.note(OpeningEvent::SpareDead);
    }

    /// Decides between a silent spare and the outcome of the race beside it. Returns true if the
    /// spare goes on. One that is silent where no connection can be opened is not waited for: the
    /// application learns of the failure when it would have over plain TLS.
    pub(super) fn keeps_spare(&mut self) -> bool {
        let Some(trial) = self.spare.trial.take() else { return false };
        let keeps = trial.loan.is_acked();
        match keeps {
            true => self.open_by_spare(trial),
            false => self.drop_spare(trial),
        }
        keeps
    }

    /// Learns from an opening over TCP without anything better.
    pub(super) fn learn_for_spares(&self, reason: NotUsed) {
        if let (Some(key), Some(address)) = (&self.spare.key, self.report.address)
            && bears_spares(reason)
        {
            self.shared.spares.on_opening(key, address, self.rtt());
        }
    }
}

impl Trial {
    fn poll(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Standing {
        let Some(Spare { stream, rtt, .. }) = self.loan.spare() else { return Standing::Dead };
        let limit = *rtt * 2 + ACK_DELAY;
        while let Some(rest) = bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Ready(Ok(written)) => self.sent += written,
                Poll::Ready(Err(error)) => return self.after_end(error),
                Poll::Pending => break,
            }
        }
        let mut byte = [0];
        match stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(1..)) => return Standing::Alive,
            Poll::Ready(Ok(0)) if self.loan.is_acked() => return Standing::Alive,
            Poll::Ready(Ok(0)) => return Standing::Dead,
            Poll::Ready(Err(error)) => return self.after_end(error),
            Poll::Pending => {}
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.is_silent && silence.as_mut().poll(cx).is_ready() {
            self.is_silent = !self.loan.is_acked();
            // One acknowledgement shows enough.
            silence.as_mut().reset(Instant::now() + limit);
        }
        Standing::Open
    }

    fn after_end(&self, error: io::Error) -> Standing {
        if self.loan.is_acked() { Standing::Failed(error) } else { Standing::Dead }
    }
}

/// Returns true if a connection without TurboTLS for this reason is worth a spare: if the next one
/// will have none, either.
const fn bears_spares(reason: NotUsed) -> bool {
    match reason {
        NotUsed::Policy
        | NotUsed::Port
        | NotUsed::Literal
        | NotUsed::NotAdvertised
        | NotUsed::Path(_) => true,
        NotUsed::AdvertLate
        | NotUsed::OtherAddress
        | NotUsed::Socket
        | NotUsed::PathBusy
        | NotUsed::Fallback(_)
        | NotUsed::FastOpen
        | NotUsed::Upstream => false,
    }
}
