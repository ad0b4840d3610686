//! One connection of the edge, from its opening to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use headstart_proto::careful::{
    Action, NoJump, Observed, Phase, Reconnaissance, Resume, Sample, decide,
};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::kernel;
use super::paths::{Ends, Paths, Ticket};
use crate::tcp_info::TcpInfo;
use crate::timeline::{EdgeEvent, EdgeTimeline};

/// Time after which a connection is observed first, and the longest between two observations: each
/// takes twice as long as the one before.
const OBSERVED_AFTER: Duration = Duration::from_secs(1);
const OBSERVED_EVERY: Duration = Duration::from_secs(64);

/// Phase before a jump (RFC 9959 section 3.2), in timelines.
const RECONNAISSANCE: &str = "reconnaissance";

/// The watch over a stream's connection, once there is one.
///
/// Shared with the stream, for callers that give the stream away: whoever serves a connection holds
/// this for as long, and drops it at the end.
#[derive(Clone, Debug, Default)]
pub struct CarefulWatch(Option<Arc<OnceLock<Watch>>>);

impl CarefulWatch {
    /// A place for a watch, if one may come.
    pub(crate) fn expecting(may_come: bool) -> Self {
        Self(may_come.then(Arc::default))
    }

    /// Sets the watch, whose further phases are noted in the stream's timeline.
    pub(crate) fn set(&self, watch: Option<Watch>, timeline: &EdgeTimeline) {
        if let Some(watch) = &watch {
            // Nobody has set one before.
            let _ = watch.watched.timeline.set(timeline.clone());
        }
        // At most one TCP connection carries a stream.
        let _ = self.0.as_ref().zip(watch).map(|(place, watch)| place.set(watch));
    }
}

/// Observes a connection, and takes it through its phases if it has jumped.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Arc<Watched>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Watched {
    /// Another descriptor of the connection, which may be within any stream by now.
    socket: OwnedFd,
    ends: Ends,
    paths: Arc<Paths>,
    jumped: Option<Mutex<Jumped>>,
    /// Timeline of the stream, once it has the connection.
    timeline: OnceLock<EdgeTimeline>,
}

/// A connection that has jumped.
#[derive(Debug)]
struct Jumped {
    resume: Resume,
    /// Until others may use the path's state.
    ticket: Option<Ticket>,
    at: Instant,
    /// Window of the jump, in segments.
    window: u32,
    /// Segments delivered and bytes acknowledged before.
    delivered: u32,
    acknowledged: u64,
}

impl Watch {
    /// Watches a connection. Jumps if initial data is given, as many bytes as its peer has
    /// acknowledged of it outside TCP, and all else allows it.
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub(super) fn start(
        paths: &Arc<Paths>,
        tcp: &TcpStream,
        initial: Option<Option<u32>>,
    ) -> io::Result<Self> {
        let ends = Ends { local: tcp.local_addr()?.ip(), peer: tcp.peer_addr()?.ip() };
        // Whatever can fail comes before the jump, which nobody would follow.
        let socket = tcp.as_fd().try_clone_to_owned()?;
        let jumped = initial.and_then(|acknowledged| begin(paths, &socket, ends, acknowledged));
        let jumped = jumped.map(Mutex::new);
        let (paths, timeline) = (Arc::clone(paths), OnceLock::new());
        let watched = Arc::new(Watched { socket, ends, paths, jumped, timeline });
        // The connection closes with this, and waits for no task.
        let task = tokio::spawn(run(Arc::downgrade(&watched)));
        Ok(Self { watched, task })
    }

    /// Notes the jump, if the connection has begun with one.
    pub(super) fn note_jump(&self, timeline: &EdgeTimeline) {
        self.watched.with_jumped(|jumped| {
            let (to, window) = (jumped.resume.phase().name(), jumped.window);
            timeline.note(EdgeEvent::CarefulResume { from: RECONNAISSANCE, to, window });
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
        self.watched.observe();
        self.watched.end();
    }
}

/// Lets a connection that has sent nothing begin with a jump.
fn begin(
    paths: &Arc<Paths>,
    socket: &OwnedFd,
    ends: Ends,
    acknowledged: Option<u32>,
) -> Option<Jumped> {
    let begun = try_begin(paths, socket, ends, acknowledged);
    let outcome = begun.as_ref().err().map_or("jumped", |reason| reason.name());
    metrics::counter!("headstart_careful_jumps_total", "outcome" => outcome).increment(1);
    begun.ok()
}

fn try_begin(
    paths: &Arc<Paths>,
    socket: &OwnedFd,
    ends: Ends,
    acknowledged: Option<u32>,
) -> Result<Jumped, NoJump> {
    let (saved, ticket) = paths.take(ends, Instant::now())?;
    let info = TcpInfo::read(socket).map_err(|_| NoJump::Kernel)?;
    let now = Reconnaissance {
        rtt: info.min_rtt(),
        segment: info.segment(),
        window: info.window(),
        // A SYN-ACK that was lost is congestion.
        acknowledged: acknowledged.filter(|_| !info.has_retransmitted()),
    };
    let jump = decide(&saved, &now)?;
    kernel::jump(socket, &jump).map_err(|_| NoJump::Kernel)?;
    Ok(Jumped {
        resume: Resume::new(jump, &now),
        ticket: Some(ticket),
        at: Instant::now(),
        window: jump.window,
        delivered: info.delivered(),
        acknowledged: info.bytes_acked(),
    })
}

/// Watches a connection until it is gone, which this does not hold meanwhile.
async fn run(watched: Weak<Watched>) {
    let mut observe_after = OBSERVED_AFTER;
    let mut observe_at = tokio::time::Instant::now() + observe_after;
    loop {
        let Some(wait) = watched.upgrade().map(|watched| watched.wait()) else { return };
        let step_at = wait.map(|wait| tokio::time::Instant::now() + wait);
        tokio::time::sleep_until(step_at.map_or(observe_at, |at| at.min(observe_at))).await;
        let Some(watched) = watched.upgrade() else { return };
        watched.step();
        if tokio::time::Instant::now() >= observe_at {
            watched.observe();
            observe_after = (observe_after * 2).min(OBSERVED_EVERY);
            observe_at += observe_after;
        }
    }
}

impl Watched {
    fn wait(&self) -> Option<Duration> {
        self.with_jumped(|jumped| jumped.resume.wait()).flatten()
    }

    /// Saves what the connection says of its path.
    fn observe(&self) {
        let Ok(info) = TcpInfo::read(&self.socket) else { return };
        let rtt = info.min_rtt();
        // What the receiver acknowledged in a round trip, without what queues added to it.
        let window = u128::from(info.delivery_rate()) * rtt.as_micros() / 1_000_000;
        let seen = Observed { window: u64::try_from(window).unwrap_or(u64::MAX), rtt };
        // A window that has not been validated is not observed (RFC 9959 section 4.6).
        let is_normal = self
            .with_jumped(|jumped| matches!(jumped.resume.phase(), Phase::Normal | Phase::Retreated))
            .unwrap_or(true);
        if is_normal {
            self.paths.observe(self.ends, info.bytes_acked(), seen, Instant::now());
            metrics::gauge!("headstart_careful_paths").set(self.paths.len() as f64);
        }
    }

    /// Takes the connection through its phases.
    fn step(&self) {
        self.with_jumped(|jumped| {
            let Ok(info) = TcpInfo::read(&self.socket) else { return };
            let before = jumped.resume.phase();
            let actions = jumped.resume.handle(jumped.at.elapsed(), &jumped.sample(&info));
            let after = jumped.resume.phase();
            if before != after {
                let (peer, from, to) = (self.ends.peer, before.name(), after.name());
                tracing::debug!(%peer, from, to, "careful resume");
                self.note(EdgeEvent::CarefulResume { from, to, window: bounded(&info, &actions) });
                count_end(before, after);
            }
            if let Err(error) = self.perform(actions, &mut jumped.ticket) {
                // The program is gone, and with it the bound that a later step would change.
                tracing::debug!(peer = %self.ends.peer, %error, "careful resume ends");
                count_early_end(after, "failed");
                let _ = self.perform(jumped.resume.give_up(), &mut jumped.ticket);
                let (from, to) = (after.name(), jumped.resume.phase().name());
                if from != to {
                    self.note(EdgeEvent::CarefulResume { from, to, window: info.window() });
                }
            }
        });
    }

    fn note(&self, event: EdgeEvent) {
        if let Some(timeline) = self.timeline.get() {
            timeline.note(event);
        }
    }

    /// Performs all actions, those behind one that fails as well.
    ///
    /// # Errors
    /// The kernel refuses one: no program any more.
    fn perform(&self, actions: Vec<Action>, ticket: &mut Option<Ticket>) -> io::Result<()> {
        let mut done = Ok(());
        for action in actions {
            let performed = match action {
                Action::Clamp(segments) => kernel::clamp(&self.socket, segments),
                Action::Unclamp => kernel::unclamp(&self.socket),
                Action::Unpace => kernel::unpace(&self.socket),
                Action::Forget => {
                    if let Some(ticket) = ticket.take() {
                        ticket.forget();
                    }
                    Ok(())
                }
                Action::Release => {
                    *ticket = None;
                    Ok(())
                }
            };
            done = done.and(performed);
        }
        done
    }

    /// Lets others use the path's state, if the connection ends before its phases do.
    fn end(&self) {
        self.with_jumped(|jumped| {
            count_early_end(jumped.resume.phase(), "closed");
            jumped.ticket = None;
        });
    }

    fn with_jumped<T>(&self, with: impl FnOnce(&mut Jumped) -> T) -> Option<T> {
        // A panic under the lock leaves a phase that is as good as any.
        let jumped = self.jumped.as_ref()?;
        Some(with(&mut jumped.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Jumped {
    fn sample(&self, info: &TcpInfo) -> Sample {
        Sample {
            window: info.window(),
            threshold: info.threshold(),
            in_flight: info.in_flight(),
            delivered: info.delivered().saturating_sub(self.delivered),
            sent: info.bytes_sent(),
            acknowledged: info.bytes_acked().saturating_sub(self.acknowledged),
            is_congested: info.has_retransmitted() || info.lost() > 0 || info.delivered_ce() > 0,
            is_recovering: info.is_recovering(),
            has_timed_out: info.has_timed_out(),
        }
    }
}

/// Returns the window that a connection has once `actions` are performed, in segments.
fn bounded(info: &TcpInfo, actions: &[Action]) -> u32 {
    let bounds = actions.iter().filter_map(|action| match action {
        Action::Clamp(segments) => Some(*segments),
        Action::Unclamp | Action::Unpace | Action::Forget | Action::Release => None,
    });
    bounds.fold(info.window(), u32::min)
}

/// Counts a jump by its end.
fn count_end(before: Phase, after: Phase) {
    match (before, after) {
        (Phase::Validating, Phase::Normal) => count("validated"),
        (_, Phase::Normal) => count("unused"),
        (_, Phase::SafeRetreat) => count("retreated"),
        _ => {}
    }
}

/// Counts a jump that ends in this phase, unless its end was counted before.
fn count_early_end(phase: Phase, result: &'static str) {
    if matches!(phase, Phase::Unvalidated | Phase::Validating) {
        count(result);
    }
}

fn count(result: &'static str) {
    metrics::counter!("headstart_careful_ends_total", "result" => result).increment(1);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use headstart_testkit::pair;

    use super::*;
    use crate::sys;

    const SEEN: Observed = Observed { window: 1_000_000, rtt: Duration::from_millis(600) };

    /// More segments than the kernel takes.
    const REFUSED: Action = Action::Clamp(u32::MAX);

    /// Returns the bound of a socket's pace.
    fn pace(socket: &OwnedFd) -> u64 {
        let mut value = [0; 8];
        sys::option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut value)
            .unwrap();
        u64::from_ne_bytes(value)
    }

    #[tokio::test]
    async fn what_is_behind_a_refused_action_is_done() {
        let (tcp, _peer) = pair().await;
        let (paths, now) = (Arc::new(Paths::new((24, 48))), Instant::now());
        let [local, peer] = [tcp.local_addr(), tcp.peer_addr()].map(|end| end.unwrap().ip());
        let ends = Ends { local, peer };
        paths.observe(ends, 0, SEEN, now);
        let mut ticket = Some(paths.take(ends, now).unwrap().1);
        let socket = tcp.as_fd().try_clone_to_owned().unwrap();
        kernel::set_pace(&socket, 1_000_000).unwrap();
        let timeline = OnceLock::new();
        let watched = Watched { socket, ends, paths: Arc::clone(&paths), jumped: None, timeline };
        assert_eq!(pace(&watched.socket), 1_000_000);
        let actions = vec![REFUSED, Action::Unpace, Action::Release];
        assert!(watched.perform(actions, &mut ticket).is_err());
        assert_eq!(pace(&watched.socket), u64::MAX);
        let mut ticket = Some(paths.take(ends, now).unwrap().1);
        assert!(watched.perform(vec![REFUSED, Action::Forget], &mut ticket).is_err());
        assert_eq!(paths.take(ends, now).unwrap_err(), NoJump::Unknown);
    }

    #[tokio::test]
    async fn a_connection_closes_with_its_watch_and_waits_for_no_task() {
        let (tcp, peer) = pair().await;
        let paths = Arc::new(Paths::new((24, 48)));
        let watch = Watch::start(&paths, &tcp, None).unwrap();
        tokio::task::yield_now().await;
        drop(tcp);
        drop(watch);
        let mut peer = peer.into_std().unwrap();
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // No task runs while this one reads.
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}
