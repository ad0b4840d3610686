//! Options of `headstart get`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};

use crate::base::edge_address;
use crate::base::edge_address::EdgeAddress;
use crate::base::failure::Failure;
use crate::base::logging::LogOptions;
use crate::base::names::NameMap;
use crate::base::value::{SecondSyn, opening_policy};
use crate::qlog::options::QlogOptions;
use headstart_net::OpeningPolicy;

const EXAMPLES: &str = "\
Examples:
  What a page costs, event by event, and why not less:
      headstart get --explain -o /dev/null https://www.example.com/

  Through an edge that is not in DNS yet, with its own certificate authority:
      headstart get --edge www.example.com=192.0.2.1:443 --cacert ca.pem https://www.example.com/

  Compare:
      headstart get --json --opening plain https://www.example.com/
      headstart get --json --opening turbo https://www.example.com/
      headstart get --json --opening fop https://www.example.com/

Times are counted from the moment an address is known, so without the lookup of the name, which
--json gives as ms_to_address. The first request byte counts when it is handed to TLS, the first
response byte when TLS hands it out. A round trip is what TCP took to connect.

Exit code: 0 with any HTTP answer, 1 without one (or with --fail: 400 and above), 2 for wrong \
usage.";

/// Fetch one URL and say how many round trips it took
///
/// Prints the body, as curl does; with --explain the timeline goes to standard error. Redirects are
/// not followed: each would be a connection of its own.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub struct GetOptions {
    /// URL to fetch, https or http
    #[arg(value_name = "URL", value_parser = url)]
    pub url: Uri,

    /// Edge for connections to NAME; may be given several times
    ///
    /// What it offers stands behind, as in DNS: slots=6, fop=1, ed=1 (see headstart agent --help).
    #[arg(long, value_name = "NAME=HOST:PORT[,fop=1...]")]
    pub edge: Vec<EdgeAddress>,

    /// Trust the certificate authorities in this PEM file [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// Accept any certificate: anyone on the path can read and change what is sent
    #[arg(long)]
    pub insecure: bool,

    /// Opening that the connection may use
    ///
    /// With fop the page is asked for twice: first without its body, for a session ticket and the
    /// cookie in it, then on the connection that is measured. The key exchange is then not
    /// post-quantum, since such a ClientHello does not fit a SYN.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = opening_policy())]
    pub opening: OpeningPolicy,

    /// Open a second connection beside a SYN that is not answered in time
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub second_syn: SecondSyn,

    /// DNS server to ask [default: those of the system]; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub resolver: Vec<SocketAddr>,

    /// Write the body to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Ask for the headers only (HEAD) and print them
    #[arg(short = 'I', long)]
    pub head: bool,

    /// Add a header to the request; may be given several times
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(HeaderName, HeaderValue)>,

    /// Print no body and exit with 1 if the HTTP status is 400 or above
    #[arg(short, long)]
    pub fail: bool,

    /// Give up after this long (500ms, 10s)
    #[arg(long, value_name = "TIME", default_value = "30s")]
    #[arg(value_parser = humantime::parse_duration)]
    pub max_time: Duration,

    /// Show the timeline: each datagram and TCP event, round trips, what was used and what not
    #[arg(long)]
    pub explain: bool,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub qlog: QlogOptions,

    /// Print the measurements as JSON instead of the body (which -o can still save)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}

impl GetOptions {
    /// The edges by server name.
    ///
    /// # Errors
    /// Two edges for the same name.
    pub fn edges(&self) -> Result<NameMap<EdgeAddress>, Failure> {
        edge_address::by_name(&self.edge)
    }
}

fn url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (url.scheme_str(), url.host()) {
        (Some("https" | "http"), Some(host)) if !host.is_empty() => Ok(url),
        (Some("https" | "http"), _) => Err("the host is missing".into()),
        (Some(other), _) => Err(format!("'{other}' is not supported, only https and http are")),
        (None, _) => Err(format!("write the scheme too: https://{text}")),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name =
        name.trim().parse().map_err(|_| format!("'{}' is not a header name", name.trim()))?;
    let value = value.trim().parse().map_err(|_| "the value has control characters".to_owned())?;
    Ok((name, value))
}
