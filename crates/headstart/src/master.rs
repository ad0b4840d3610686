//! Master and worker: the process that a supervisor watches, and the one that serves.
//!
//! A supervisor such as systemd starts a daemon again once its main process has ended. That is the
//! master, which ends as soon as it is told to; its worker serves on until that of the next master
//! takes over from it ([`takeover`](crate::takeover)).

use std::env;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitCode, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::base::failure::Failure;

/// Process id of the master, for its worker.
const MASTER: &str = "HEADSTART_MASTER";

/// Variables that name the process which they are for: the supervisor's means the master, and
/// without them any process may take the sockets and answer the watchdog.
const FOR_A_PROCESS: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];

/// From the master that a successor comes, and from the worker that it needs no master any more.
const HAND_OVER: Signal = Signal::USR2;

/// The master of this worker.
static BOUND_TO: OnceLock<Pid> = OnceLock::new();

/// True once the master of this worker may end without it.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Returns true if a master has started this process.
pub(crate) fn is_worker() -> bool {
    env::var_os(MASTER).is_some()
}

/// Returns true if this process was [bound](bind).
pub(crate) fn is_bound() -> bool {
    BOUND_TO.get().is_some()
}

/// Returns true in a worker whose master has ended: the supervisor means another process.
pub(crate) fn is_left() -> bool {
    IS_LEFT.load(Ordering::Relaxed)
}

/// Lets this worker end with its master: a supervisor that kills the master means both. To be
/// called by the thread that will call [`leave`].
///
/// # Errors
/// The master has ended already.
pub(crate) fn bind() -> Result<(), Failure> {
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| Failure::usage(format!("cannot follow the master: {error}")))?;
    let master = env::var(MASTER).ok().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
    match master.filter(|master| getppid() == Some(*master)) {
        Some(master) => {
            let _ = BOUND_TO.set(master);
            Ok(())
        }
        None => Err(Failure::usage(format!("{MASTER} is not the parent of this process"))
            .hint("unset it: only a master sets it, for its worker")),
    }
}

/// Lets the master end without this worker.
pub(crate) fn leave() {
    let Some(master) = BOUND_TO.get() else { return };
    if IS_LEFT.swap(true, Ordering::Relaxed) {
        return;
    }
    let left =
        set_parent_process_death_signal(None).and_then(|()| kill_process(*master, HAND_OVER));
    if let Err(error) = left {
        tracing::warn!(%error, "cannot leave the master");
    }
}

/// Runs this very command as a worker until it or the supervisor ends it.
///
/// # Errors
/// The worker cannot be started.
pub(crate) async fn run() -> Result<ExitCode, Failure> {
    let failure = |error: io::Error| Failure::usage(format!("cannot start a worker: {error}"));
    let [mut hangup, mut terminate, mut interrupt, mut left] = listen().map_err(failure)?;
    let mut worker = start().map_err(failure)?;
    loop {
        let to_worker = tokio::select! {
            ended = worker.wait() => return ended.map(code).map_err(failure),
            _ = left.recv() => return Ok(ExitCode::SUCCESS),
            _ = hangup.recv() => Signal::HUP,
            _ = terminate.recv() => HAND_OVER,
            _ = interrupt.recv() => HAND_OVER,
        };
        let pid = worker.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // A worker that has ended is noticed in the next round.
        let _ = pid.map(|pid| kill_process(pid, to_worker));
    }
}

fn listen() -> io::Result<[tokio::signal::unix::Signal; 4]> {
    Ok([
        signal(SignalKind::hangup())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::user_defined2())?,
    ])
}

fn start() -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(MASTER, process::id().to_string());
    for variable in FOR_A_PROCESS {
        command.env_remove(variable);
    }
    command.spawn()
}

fn code(status: ExitStatus) -> ExitCode {
    match status.signal() {
        // It was told before it began to serve.
        Some(signal) if signal == HAND_OVER.as_raw() => return ExitCode::SUCCESS,
        Some(signal) => tracing::error!(signal, "the worker was killed"),
        None => {}
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
