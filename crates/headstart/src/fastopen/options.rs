//! Options of `headstart fastopen`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use headstart_net::fastopen::{PIN_DIR, SPENT_MAX};

const EXAMPLES: &str = "\
Examples:
  On the server, for an edge that runs as the user headstart:
      sysctl -w net.ipv4.tcp_fastopen=3
      headstart fastopen attach server --interface eth0 --owner $(id -u headstart)
  On the client, for all its processes:
      headstart fastopen attach client
  What is attached, and what it did:
      headstart fastopen status

Attaching needs the capabilities CAP_BPF and CAP_NET_ADMIN and no others (CAP_CHOWN besides, to
give files to another --owner); edge, agent and applications need none. What is attached stays
when the command ends, until it is detached or the machine restarts; packages have a systemd
unit. Run again, attach leaves what is there as it is, and finishes what was interrupted.

Exit codes: 0 done, and for status attached and in order; 1 status says no; 2 wrong usage, or an
environment that does not allow it (privilege, kernel, cgroup2, sysctl), with a hint.";

/// Let connections open with data in the SYN, under cookies that nobody can track
///
/// Attaches small programs to the kernel: on clients one that writes a single-use cookie into a
/// SYN, on servers one that checks it. Without them, or whenever in doubt, connections open as
/// usual.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub struct FastopenOptions {
    /// Action
    #[command(subcommand)]
    pub command: FastopenCommand,
}

/// Actions of `headstart fastopen`.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum FastopenCommand {
    Attach(AttachOptions),
    Detach(DetachOptions),
    Status(StatusOptions),
}

/// Attach the programs of one side; nothing changes if they are attached
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, disable_help_subcommand = true)]
pub struct AttachOptions {
    /// Side
    #[command(subcommand)]
    pub side: AttachSide,
}

/// A side, with its options.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum AttachSide {
    Client(AttachClientOptions),
    Server(AttachServerOptions),
}

/// Let the processes of a cgroup open connections with a cookie in the SYN
///
/// Needs Linux 5.10 and a mounted cgroup2.
#[derive(Debug, Clone, Args)]
pub struct AttachClientOptions {
    /// Directory of the cgroup [default: where cgroup2 is mounted, that is all processes]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub place: PlaceOptions,
}

/// Check cookies in SYNs to one port, for an edge on this machine
///
/// Needs Linux 5.8, net.ipv4.tcp_fastopen with bit 1 (2 or 3) and net.ipv4.tcp_syncookies not 2.
/// SYNs are looked at where they come in, so the interfaces must be those that see clients' own
/// addresses.
#[derive(Debug, Clone, Args)]
pub struct AttachServerOptions {
    /// Interface on which clients come in; may be given several times
    #[arg(long, value_name = "NAME", required = true, value_delimiter = ',')]
    pub interface: Vec<String>,

    /// Port that the edge listens on
    #[arg(long, value_name = "PORT", default_value = "443",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// User (a number) whose processes may give keys and take connections: the edge's [default:
    /// yours]
    #[arg(long, value_name = "UID")]
    pub owner: Option<u32>,

    /// Cookies to remember as spent in each of two generations; when full, none is taken
    ///
    /// Each takes about 100 bytes once it is there, and 16 to 32 beforehand.
    #[arg(long, value_name = "N", default_value = "1048576",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SPENT_MAX)))]
    pub spent: u32,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub place: PlaceOptions,
}

/// Detach and forget everything; nothing changes if nothing is attached
#[derive(Debug, Clone, Args)]
pub struct DetachOptions {
    /// Only this side
    #[arg(value_name = "SIDE")]
    pub side: Option<FastopenSide>,

    /// Only from this interface of the server; may be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub interface: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub place: PlaceOptions,
}

/// Show what is attached, and what it has done
///
/// Exit code 1 if a side is not attached (name one side to ask for that alone), or cannot be used.
#[derive(Debug, Clone, Args)]
pub struct StatusOptions {
    /// Only this side
    #[arg(value_name = "SIDE")]
    pub side: Option<FastopenSide>,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub place: PlaceOptions,
}

/// The client's or the server's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FastopenSide {
    /// The side that writes cookies into SYNs
    Client,
    /// The side that checks them
    Server,
}

/// Where it is kept, and how it is shown.
#[derive(Debug, Clone, Args)]
pub struct PlaceOptions {
    /// Directory of the pins, in a BPF file system
    #[arg(long, value_name = "DIR", default_value = PIN_DIR)]
    pub dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
