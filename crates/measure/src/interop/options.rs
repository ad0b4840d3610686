//! Options of `headstart-lab interop`.

use std::path::PathBuf;

use clap::Args;

use super::implementation::Implementation;
use headstart::base::logging::LogOptions;

const EXAMPLES: &str = "\
Examples:
  The agent with the edge, and both with the implementation in Go:
      headstart-lab interop
      TURBOPROXY=./turboproxy headstart-lab interop --implementation go=lab/interop/go.sh
  One client in one case, with its captures:
      headstart-lab interop --client headstart --case tls-only-firewall --out results

docs/interop.md has the cases, and the environment of the commands. Needs Linux with user
namespaces, or root, and the command `ip`.";

/// Run clients with servers of several implementations, and judge each pair case by case
///
/// Each case is an emulated network between a client's proxy and a server's edge. TLS on both ends
/// is the runner's; checksums of what arrives and a capture at the client say whether the pair
/// passes. Exit code 1: a pair failed a case.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct InteropOptions {
    /// Implementation beside `headstart`: a name, and a command for the shell; may be given several
    /// times
    #[arg(long = "implementation", value_name = "NAME=COMMAND")]
    pub implementations: Vec<Implementation>,

    /// Only this implementation as the client; may be given again [default: all]
    #[arg(long = "client", value_name = "NAME")]
    pub clients: Vec<String>,

    /// Only this implementation as the server; may be given again [default: all]
    #[arg(long = "server", value_name = "NAME")]
    pub servers: Vec<String>,

    /// Only this case; may be given again [default: all]
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,

    /// Write matrix.html, matrix.json and the captures to this folder, which must not exist
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print the matrix as JSON
    #[arg(long)]
    pub json: bool,

    /// Pairs that run at a time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,

    #[command(flatten)]
    pub log: LogOptions,
}
