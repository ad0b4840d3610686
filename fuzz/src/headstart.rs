//! Fuzz targets of the command: its edge, its agent, its options.
//!
//! `crates/headstart/tests/command/fuzz_replay.rs` includes this file.

mod managed;
mod options;
mod proxies;
mod proxy_protocol;
mod requests;

use std::future::Future;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use tokio::runtime::{Builder, Runtime};

pub use managed::managed;
pub use options::options;
pub use proxies::proxies;
pub use proxy_protocol::proxy_protocol;
pub use requests::requests;

/// Makes a runtime whose clock moves only when nothing else does: a limit of time is over at once,
/// or never comes.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Runs `work` on the thread's runtime.
fn run<F: Future>(work: F) -> F::Output {
    thread_local! { static RUNTIME: Runtime = runtime(); }
    RUNTIME.with(|runtime| runtime.block_on(work))
}

/// Lets all tasks go on as far as they can: each pause ends when all of them wait, and what one has
/// written another reads after it.
async fn settle() {
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the options of a command, as they are without any but these.
fn options_of<T: Args + FromArgMatches>(arguments: &[&str]) -> T {
    let command = T::augment_args(Command::new("headstart"));
    let words = [&["headstart"], arguments].concat();
    T::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
}

/// Returns the length of the pieces that a stream is cut into: as `cut` says, but never many.
fn pieces(stream: &[u8], cut: u8) -> usize {
    usize::from(cut % 16) + 1 + stream.len() / 32
}
