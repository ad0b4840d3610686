//! Options of `headstart doctor`.

use std::net::SocketAddr;

use clap::Args;

use super::{EdgeAddress, LogOptions};

const EXAMPLES: &str = "\
Examples:
  This machine:                        headstart doctor
  This machine and a server:           headstart doctor www.example.com
  A server whose edge is not in DNS:   headstart doctor www.example.com \\
                                           --edge www.example.com=192.0.2.1:443

Exit code: 0 if all is well, 1 if something is not.";

/// Check what this machine, the network and a server support
///
/// Each finding that could be better comes with a hint.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorOptions {
    /// Server to check too
    #[arg(value_name = "HOST")]
    pub host: Option<String>,

    /// Edge for connections to NAME; may be given several times
    #[arg(long, value_name = "NAME=HOST:PORT")]
    pub edge: Vec<EdgeAddress>,

    /// DNS server to ask [default: those of the system]; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub resolver: Vec<SocketAddr>,

    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}
