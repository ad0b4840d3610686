//! Options of `headstart lab site`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use headstart::base::logging::LogOptions;

const EXAMPLES: &str = "\
Examples:
  All three, for a browser on this machine (the command prints what to call it with):
      headstart lab site news shop app --listen 127.0.0.1:8443 --certificates certificates

  One of your own; lab/sites/README.md has the form of its description:
      headstart lab site my-site.toml --think 0ms";

/// Serve generated web sites over HTTPS, for browsers and for tests
///
/// Each has 104 resources of 20 hosts, 2.1 MB and 15 levels, the published means of pages. All
/// hosts are at one address, each with a certificate of its own by an authority that is made for
/// this. It serves until it is ended.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct LabSiteOptions {
    /// Built-in sites (news, shop, app), or files that describe others
    #[arg(value_name = "SITE|FILE", required = true)]
    pub sites: Vec<String>,

    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,

    /// Serve the same without TLS here as well, for an edge that speaks TLS itself (HTTP/1.1)
    #[arg(long, value_name = "ADDR:PORT")]
    pub without_tls: Option<SocketAddr>,

    /// Time that hosts think about a request, instead of the sites' own
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub think: Option<Duration>,

    /// Offer HTTP/1.1 alone
    #[arg(long)]
    pub http1: bool,

    /// Folder for the authority, and for each host's certificate and key; what is there is used
    /// again
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,

    /// Print addresses and names as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub log: LogOptions,
}
