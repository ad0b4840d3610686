//! Ctrl-C and SIGTERM while a run goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{process, thread};

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::runtime;

/// Exit code when interrupted twice, as of a shell: 128 + SIGINT.
const TWICE: i32 = 130;

/// Whether the user wants the run to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. The first signal asks, the second ends the process at once.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let set = interrupt.clone();
        let started = thread::Builder::new().name("signals".into()).spawn(move || {
            let listened = runtime::run_here(async {
                let cannot = |error| Failure::usage(format!("cannot wait for signals: {error}"));
                let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
                let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if set.0.swap(true, Ordering::Relaxed) {
                        process::exit(TWICE);
                    }
                }
            });
            if let Err::<(), _>(failure) = listened {
                tracing::warn!("{}", failure.message());
            }
        });
        match started {
            Ok(_) => Ok(interrupt),
            Err(error) => Err(Failure::usage(format!("cannot start a thread: {error}"))),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
