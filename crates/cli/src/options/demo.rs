//! Options of `headstart demo`.

use std::time::Duration;

use clap::Args;

use super::LogOptions;

const EXAMPLES: &str = "\
Examples:
  A mobile network, a satellite:
      headstart demo --rtt 60ms
      headstart demo --rtt 600ms

Needs Linux with user namespaces, or root; nothing outside the namespaces is changed.";

/// See the saving: plain TLS and TurboTLS side by side over an emulated slow link
///
/// Makes a certificate, a TLS server, an edge, an agent and a slow link between them, all on this
/// machine, opens connections both ways in turn, and shows when the first byte came.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DemoOptions {
    /// Round-trip time of the emulated link
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration)]
    pub rtt: Duration,

    /// Connections of each kind
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}
