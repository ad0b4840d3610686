//! Ctrl-C, SIGTERM and the end of the terminal while a run goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::{fs, process, thread};

use tokio::signal::unix::{Signal, SignalKind, signal};

use headstart::base::failure::Failure;
use headstart::base::runtime;

/// Exit code when interrupted twice, as of a shell: 128 + SIGINT.
const TWICE: i32 = 130;

/// Flag that the user wants the run to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. The first signal asks, the second ends the process at once; but SIGHUP
    /// only ever asks, as it comes from shell and kernel at the same time, or beside SIGTERM.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let set = interrupt.clone();
        let (started, ready) = sync_channel(1);
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let listened = runtime::run_here(async {
                    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
                    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
                    let wanted = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
                    let mut hangup = wanted.transpose().map_err(unheard)?;
                    let _ = started.try_send(Ok(()));
                    let mut asked = false;
                    loop {
                        let asks_only = tokio::select! {
                            _ = interrupt.recv() => false,
                            _ = terminate.recv() => false,
                            Some(()) = next(&mut hangup) => true,
                        };
                        set.0.store(true, Ordering::Relaxed);
                        if !asks_only && std::mem::replace(&mut asked, true) {
                            process::exit(TWICE);
                        }
                    }
                });
                if let Err::<(), _>(failure) = listened {
                    let _ = started.try_send(Err(failure));
                }
            })
            .map_err(|error| Failure::usage(format!("cannot start a thread: {error}")))?;
        // A later signal must not end the process on its own.
        ready.recv().unwrap_or_else(|_| Err(Failure::usage("cannot wait for signals")))?;
        Ok(interrupt)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn unheard(error: std::io::Error) -> Failure {
    Failure::usage(format!("cannot wait for signals: {error}"))
}

/// The next signal; none ever of a kind that is not listened for.
async fn next(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns true if runs are to outlive the terminal: nohup(1) has SIGHUP ignored, and listening
/// would undo that.
fn ignores_hangup() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignored(&status) & 1 != 0)
}

/// The signals that a process ignores, from the lowest bit on (proc_pid_status(5)).
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told() {
        assert_eq!(
            ignored("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n"),
            0x1001
        );
        assert_eq!(ignored("SigIgn:\n"), 0);
        assert_eq!(ignored(""), 0);
    }
}
