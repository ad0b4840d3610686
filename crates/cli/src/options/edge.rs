//! Options of `headstart edge`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::{HostPort, LogOptions, NameMap, Origin, SOURCES};
use crate::failure::Failure;

const EXAMPLES: &str = r#"Examples:
  A web server on this machine, moved from port 443 to 8443:
      headstart edge --origin localhost:8443

  Several servers behind one address, by the name the client asks for:
      headstart edge --origin www.example.com=10.0.0.1:443 \
                     --origin '*.example.com=10.0.0.2:443' --origin 10.0.0.3:443

  The server learns the client's address (nginx: listen 8443 ssl proxy_protocol):
      headstart edge --origin localhost:8443 --proxy-protocol

  The same from a file, with --config edge.toml:
      [edge]
      origin = ["www.example.com=10.0.0.1:443", "10.0.0.3:443"]
      proxy-protocol = true
      idle-timeout = "5m"

  So that clients find it, publish the record that this prints:
      headstart dns-record www.example.com

Open TCP and UDP of the same port in the firewall. Where UDP is closed, clients connect as
they would without headstart.

Signals: SIGHUP reads --config again and keeps connections; SIGTERM and SIGINT stop accepting
and wait up to --shutdown-timeout for connections to end."#;

/// Stand before a TLS server and let clients open connections in one round trip
///
/// The edge accepts TLS connections on TCP and, for clients that speak TurboTLS, the first flight
/// over UDP. It passes the bytes to the origin unchanged: certificates and keys stay with the
/// origin, and the edge can read no more than any observer of the network.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = format!("{SOURCES}\nIn the environment --idle-timeout is HEADSTART_EDGE_IDLE_TIMEOUT; lists are separated by commas.\nIn the file it is the key idle-timeout in the table [edge].\n\n{EXAMPLES}"))]
#[command(after_help = "See --help for examples, or `headstart man` for the manual page.")]
pub struct EdgeOptions {
    /// Address to listen on, TCP and UDP; may be given several times
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', default_values = ["0.0.0.0:443", "[::]:443"])]
    pub listen: Vec<SocketAddr>,

    /// Server to pass connections to; with NAME=, those for that name; may be given several times
    ///
    /// NAME is a server name (SNI) or a wildcard such as *.example.com, which stands for names of
    /// any depth below. The most specific name wins; an origin without a name takes the rest.
    /// Without one, connections for other names are closed and counted.
    #[arg(long, value_name = "[NAME=]HOST:PORT", value_delimiter = ',')]
    pub origin: Vec<Origin>,

    /// Send the client's address to the origin in a PROXY protocol version 2 header
    ///
    /// The origin must expect it, or it answers no connection. TurboTLS connections are then
    /// accepted only if UDP and TCP come from the same address.
    ///
    /// The address of a TurboTLS connection is not proven when the origin is told it, with the
    /// ClientHello: anybody can have a false one appear there, with a handshake that never ends. Let
    /// nothing such as fail2ban act on handshakes alone. Requests come from proven addresses only.
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub proxy_protocol: bool,

    /// Take TLS early data (0-RTT) that comes over UDP
    ///
    /// Only where one edge serves all addresses of the name. Clients send it so if the DNS record
    /// allows it: see headstart dns-record --early-data.
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub early_data: bool,

    /// TOML file with options, in its table named edge
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Threads for connections [default: one for each CPU]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub workers: Option<NonZeroUsize>,

    /// Threads for datagrams, for each address, each with a socket of its own
    // One, as the TurboTLS paper suspected: two with SO_REUSEPORT gave 0.93 of the handshakes a second (95 % interval
    // 0.89 to 0.97) for 1.10 of the processor time (1.06 to 1.13) on two CPUs, and no clear difference at the 99th
    // percentile of a fixed load (bench/README.md).
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Limits")]
    pub udp_workers: NonZeroUsize,

    /// Connections at one time; more wait in the kernel's queue
    #[arg(long, value_name = "N", default_value = "16384", help_heading = "Limits")]
    pub max_connections: NonZeroUsize,

    /// Close a connection on which nothing was sent either way for this long (30s, 5m, 1h)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub idle_timeout: Duration,

    /// Close a connection after this long whatever happens [default: never]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub total_timeout: Option<Duration>,

    /// Give up connecting to an origin after this long
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub origin_connect_timeout: Duration,

    /// Close a connection whose client has not sent its whole ClientHello, or join, after this long
    ///
    /// At least 1s. The TCP part of a TurboTLS connection is awaited for two minutes; with less than
    /// that here, it may come too late on a lossy network.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = patience, help_heading = "Limits")]
    pub hello_timeout: Duration,

    /// How long a stop waits for connections to end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub shutdown_timeout: Duration,

    /// Serve Prometheus metrics at http://ADDR:PORT/metrics, and /healthz, /readyz
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}

/// A time of at least a second: with less every client would be too slow.
fn patience(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_secs(1) { Err("less than 1s".into()) } else { Ok(time) }
}

impl EdgeOptions {
    /// The origins by server name.
    ///
    /// # Errors
    /// No origin at all, or two for the same name.
    pub fn origins(&self) -> Result<NameMap<HostPort>, Failure> {
        if self.origin.is_empty() {
            return Err(Failure::usage("no origin given")
                .hint("say where the TLS server is, for example --origin localhost:8443"));
        }
        let entries = self.origin.iter().cloned().map(|o| (o.name, o.address));
        NameMap::new(entries).map_err(|name| match name {
            Some(name) => Failure::usage(format!("two origins for {name}"))
                .hint("give each name one --origin NAME=HOST:PORT"),
            None => Failure::usage("two origins without a name")
                .hint("one takes all connections; others need a name: --origin NAME=HOST:PORT"),
        })
    }
}
