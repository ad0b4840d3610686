//! One connection of the edge, from its opening to its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::kernel;
use super::paths::{Paths, Ticket};
use super::phases::{Action, NoJump, Observed, Phase, Reconnaissance, Resume, Sample, decide};
use crate::tcp_info::TcpInfo;

/// Time after which a connection is observed first, and the longest between two observations: each
/// takes twice as long as the one before.
const OBSERVED_AFTER: Duration = Duration::from_secs(1);
const OBSERVED_EVERY: Duration = Duration::from_secs(64);

/// The watch over a stream's connection, once there is one.
///
/// Shared with the stream, for callers that give the stream away: whoever serves a connection holds
/// this for as long, and drops it at the end.
#[derive(Clone, Debug, Default)]
pub struct CarefulWatch(Arc<OnceLock<Watch>>);

impl CarefulWatch {
    pub(crate) fn set(&self, watch: Option<Watch>) {
        // At most one TCP connection carries a stream.
        let _ = watch.map(|watch| self.0.set(watch));
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
    peer: SocketAddr,
    paths: Arc<Paths>,
    jumped: Option<Mutex<Jumped>>,
}

/// A connection that has jumped.
#[derive(Debug)]
struct Jumped {
    resume: Resume,
    ticket: Ticket,
    at: Instant,
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
        let peer = tcp.peer_addr()?;
        let jumped = initial.and_then(|acknowledged| begin(paths, tcp, peer, acknowledged));
        let socket = tcp.as_fd().try_clone_to_owned()?;
        let jumped = jumped.map(Mutex::new);
        let watched = Arc::new(Watched { socket, peer, paths: Arc::clone(paths), jumped });
        let task = tokio::spawn(Arc::clone(&watched).run());
        Ok(Self { watched, task })
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
    paths: &Paths,
    tcp: &TcpStream,
    peer: SocketAddr,
    acknowledged: Option<u32>,
) -> Option<Jumped> {
    let begun = try_begin(paths, tcp, peer, acknowledged);
    let outcome = begun.as_ref().err().map_or("jumped", |reason| reason.name());
    metrics::counter!("headstart_careful_jumps_total", "outcome" => outcome).increment(1);
    begun.ok()
}

fn try_begin(
    paths: &Paths,
    tcp: &TcpStream,
    peer: SocketAddr,
    acknowledged: Option<u32>,
) -> Result<Jumped, NoJump> {
    let (saved, ticket) = paths.take(peer, Instant::now())?;
    let decided = TcpInfo::read(tcp).map_err(|_| NoJump::Kernel).and_then(|info| {
        let (rtt, segment) = (info.min_rtt(), info.segment());
        // A SYN-ACK that was lost is congestion.
        let acknowledged = acknowledged.filter(|_| !info.has_retransmitted());
        let now = Reconnaissance { rtt, segment, acknowledged };
        let jump = decide(&saved, &now)?;
        kernel::jump(tcp, &jump).map_err(|_| NoJump::Kernel)?;
        Ok((Resume::new(jump, &now), info))
    });
    match decided {
        Ok((resume, info)) => Ok(Jumped {
            resume,
            ticket,
            at: Instant::now(),
            delivered: info.delivered(),
            acknowledged: info.bytes_acked(),
        }),
        Err(reason) => {
            paths.release(&ticket);
            Err(reason)
        }
    }
}

impl Watched {
    async fn run(self: Arc<Self>) {
        let mut observe_after = OBSERVED_AFTER;
        let mut observe_at = tokio::time::Instant::now() + observe_after;
        loop {
            let step_at = self.wait().map(|wait| tokio::time::Instant::now() + wait);
            tokio::time::sleep_until(step_at.map_or(observe_at, |at| at.min(observe_at))).await;
            if self.step().is_err() {
                return;
            }
            if tokio::time::Instant::now() >= observe_at {
                self.observe();
                observe_after = (observe_after * 2).min(OBSERVED_EVERY);
                observe_at += observe_after;
            }
        }
    }

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
            self.paths.observe(self.peer, info.bytes_acked(), seen, Instant::now());
            metrics::gauge!("headstart_careful_paths").set(self.paths.len() as f64);
        }
    }

    /// Takes the connection through its phases.
    ///
    /// # Errors
    /// Errors of the system: the connection, or the program, is gone.
    fn step(&self) -> io::Result<()> {
        let stepped = self.with_jumped(|jumped| {
            let info = TcpInfo::read(&self.socket)?;
            let before = jumped.resume.phase();
            let actions = jumped.resume.handle(jumped.at.elapsed(), &jumped.sample(&info));
            let after = jumped.resume.phase();
            if before != after {
                let (peer, from, to) = (self.peer, before.name(), after.name());
                tracing::debug!(%peer, from, to, "careful resume");
                count_end(before, after);
            }
            actions.into_iter().try_for_each(|action| self.perform(action, &jumped.ticket))
        });
        stepped.unwrap_or(Ok(()))
    }

    fn perform(&self, action: Action, ticket: &Ticket) -> io::Result<()> {
        match action {
            Action::Clamp(segments) => kernel::clamp(&self.socket, segments)?,
            Action::Unpace => kernel::unpace(&self.socket)?,
            Action::Forget => self.paths.forget(ticket),
            Action::Release => self.paths.release(ticket),
        }
        Ok(())
    }

    /// Lets others use the path's state, if the connection ends before its phases do.
    fn end(&self) {
        self.with_jumped(|jumped| {
            if matches!(jumped.resume.phase(), Phase::Unvalidated | Phase::Validating) {
                count("closed");
            }
            self.paths.release(&jumped.ticket);
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

/// Counts a jump by its end.
fn count_end(before: Phase, after: Phase) {
    match (before, after) {
        (Phase::Validating, Phase::Normal) => count("validated"),
        (_, Phase::Normal) => count("unused"),
        (_, Phase::SafeRetreat) => count("retreated"),
        _ => {}
    }
}

fn count(result: &'static str) {
    metrics::counter!("headstart_careful_ends_total", "result" => result).increment(1);
}
