//! Options of `headstart demo`.

use std::time::Duration;

use clap::Args;

use crate::value::emulated_rtt;
use headstart::base::logging::LogOptions;

const EXAMPLES: &str = "\
Examples:
  A mobile network, a satellite:
      headstart demo --rtt 60ms
      headstart demo --rtt 600ms

Needs Linux with user namespaces, or root, and the command `ip`; nothing outside the namespaces is
changed, and nothing is sent to the network.";

/// See the saving: plain TLS and TurboTLS side by side over an emulated slow link
///
/// Makes a certificate, a TLS server, an edge before it and a slow link to them, all on this
/// machine, opens connections both ways in turn, and shows when the request could leave and when
/// the response began.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub(crate) struct DemoOptions {
    /// Round-trip time of the emulated link, at most 5s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = emulated_rtt)]
    pub rtt: Duration,

    /// Connections of each kind, after one of each that is not counted
    #[arg(short = 'n', long, value_name = "N", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub log: LogOptions,
}
