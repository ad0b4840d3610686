//! Options of both daemons about who takes over from whom.

use std::path::PathBuf;

use clap::Args;

/// Where a process meets the one from which it takes over, and the one that takes over from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TakeoverOptions {
    /// Unix socket by which the next process takes over the listening sockets
    ///
    /// Start the new version, or the new configuration, with the same PATH while the old process
    /// runs: once the new one is ready it has the sockets, and the old one serves what has begun
    /// and ends by itself. No connection is refused, and none is cut off but rare ones of TurboTLS
    /// (KNOWN-LIMITS.md). Both must run as the same user.
    #[arg(long, value_name = "PATH")]
    pub takeover: Option<PathBuf>,

    /// Serve in a process of its own, which a supervisor's restart does not end
    ///
    /// For units of systemd with KillMode=process. The main process, the master, ends at once when
    /// it is told to; the other, its worker, serves on for up to 5 seconds, until the next one
    /// takes over. If none does it stops as by SIGTERM.
    #[arg(long, requires = "takeover")]
    pub master_worker: bool,
}
