//! Options of `headstart up` and `headstart down`.

use std::net::SocketAddr;
use std::num::NonZeroU16;

use clap::Args;

use crate::base::names::NamePattern;

const UP_EXAMPLES: &str = "\
Examples:
  What would be done to the server on port 443:
      headstart up --dry-run

  Do it, without a question, for a server of several names:
      headstart up --yes --name www.example.com

  A server that was moved by hand, and expects a PROXY protocol header:
      headstart up --server 127.0.0.1:8443 --proxy-protocol

  On a client:
      headstart up --agent

The server moves to the address of --server, in its own configuration: nginx and HAProxy are
edited, and told clients' addresses by the PROXY protocol; for others the lines to write are shown.
Each edited line keeps the old one in a comment. If the server rejects the configuration, or no
request succeeds afterwards, everything is undone. No connection is refused during the move; but on
other ports than 443, or where root may not trace processes, connections are for the fraction of a
second that is printed, and some are reset where the server has several sockets for an address, or
one for IPv4 and IPv6.

Round trips are measured over an emulated link of 50 ms to this very server, before and after.
That needs `ip` and /dev/net/tun, and sends nothing to the network; without them nothing is
measured, and requests are tried over loopback alone.

Exit codes: 0 done; 1 no server there, or one that has to be moved by hand, or all was undone;
2 wrong usage or environment (not root, no systemd).";

const DOWN_EXAMPLES: &str = "\
Examples:
  headstart down
  headstart down --agent

Lines that `headstart up` wrote get their old text back; other changes of these files stay.
Connections that are open have until --shutdown-timeout of the edge to end.

Exit codes: 0 done; 1 nothing to undo, or the server does not come back; 2 wrong usage or
environment.";

/// Put an edge before the TLS server of this machine, and measure what it saves
///
/// Finds the server on the port, shows each change, and asks before it makes them. `headstart down`
/// undoes all.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = UP_EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub struct UpOptions {
    /// Start the agent instead, for the programs of this user; as root, of all users
    #[arg(long, conflicts_with_all = ["name", "port", "server", "proxy_protocol", "dry_run"])]
    pub agent: bool,

    /// Name that clients connect to [default: the first one of the server's certificate]
    #[arg(long, value_name = "HOST", value_parser = host_name)]
    pub name: Option<String>,

    /// Port of clients, TCP and UDP
    #[arg(long, value_name = "PORT", default_value = "443")]
    pub port: NonZeroU16,

    /// Where the server is to listen, behind the edge; or where it does, if it was moved by hand
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    pub server: SocketAddr,

    /// The server that was moved by hand expects a PROXY protocol header
    ///
    /// Without it such a server takes the edge for its client.
    #[arg(long)]
    pub proxy_protocol: bool,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,

    /// Print the outcome as JSON; needs --yes or --dry-run
    #[arg(long)]
    pub json: bool,
}

/// Undo `headstart up`
#[derive(Debug, Clone, Args)]
#[command(after_long_help = DOWN_EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub struct DownOptions {
    /// Stop the agent that `headstart up --agent` started
    #[arg(long)]
    pub agent: bool,
}

fn host_name(text: &str) -> Result<String, String> {
    let name = text.parse::<NamePattern>()?.to_string();
    if name.starts_with("*.") { Err("one name, without a wildcard".into()) } else { Ok(name) }
}
