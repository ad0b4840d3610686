//! Options of `headstart careful-resume`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::fastopen::options::PlaceOptions;

const EXAMPLES: &str = "\
Examples:
  On the server, for an edge that runs as the user headstart:
      headstart careful-resume attach --owner $(id -u headstart)
      headstart edge --careful-resume ...
  What is attached:
      headstart careful-resume status

Attaching needs the capabilities CAP_BPF and CAP_NET_ADMIN; the edge needs none. The program stays
when the command ends, until it is detached or the machine restarts.

Exit codes: 0 done, and for status attached; 1 status says no; 2 wrong usage, or an environment
that does not allow it (privilege, kernel, cgroup2, BBR), with a hint.";

/// Let an edge set the congestion window of its connections (edge --careful-resume)
///
/// Attaches a small program to the kernel, through which the processes of one user may begin
/// connections with a larger window than the usual ten segments.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub struct CarefulOptions {
    /// Action
    #[command(subcommand)]
    pub command: CarefulCommand,
}

/// Actions of `headstart careful-resume`.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum CarefulCommand {
    Attach(AttachOptions),
    /// Detach the program; nothing changes if it is not attached
    Detach(PlaceOptions),
    /// Show what is attached
    ///
    /// Exit code 1 if nothing is.
    Status(PlaceOptions),
}

/// Attach the program; nothing changes if it is attached
///
/// Needs Linux 5.15, a mounted cgroup2, and the congestion control BBR, which the command has the
/// kernel load: by it the program sets the pace. Connections keep their own congestion control.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AttachOptions {
    /// Directory of the cgroup that the edge is in [default: where cgroup2 is mounted, that is all
    /// processes]
    ///
    /// Name it where containers run without a user namespace: their root is root here as well.
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,

    /// User (a number) whose processes may set windows, beside root: the edge's [default: yours]
    #[arg(long, value_name = "UID")]
    pub owner: Option<u32>,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub place: PlaceOptions,
}
