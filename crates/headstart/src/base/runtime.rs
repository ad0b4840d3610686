//! The asynchronous runtime of a command.

use std::future::Future;
use std::num::NonZeroUsize;

use crate::base::failure::Failure;

/// Runs `work` to its end on `workers` threads, one for each CPU if none is given.
///
/// # Errors
/// The error of `work`, or of starting threads.
pub fn run<T>(
    workers: Option<NonZeroUsize>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers.get());
    }
    block_on(builder, work)
}

/// Runs `work` to its end on this thread, in whose namespaces it stays.
///
/// Suits measurements of time: no other thread has to be woken.
///
/// # Errors
/// The error of `work`, or of opening descriptors.
pub fn run_here<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(tokio::runtime::Builder::new_current_thread(), work)
}

fn block_on<T>(
    mut builder: tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::usage(format!("cannot start threads: {error}")))?;
    runtime.block_on(work)
}
