//! Options of `headstart doctor`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::base::edge_address;
use crate::base::edge_address::EdgeAddress;
use crate::base::failure::Failure;
use crate::base::logging::LogOptions;
use crate::base::names::NameMap;
use crate::base::value::HostPort;

/// Port of a server that is named without one.
const HTTPS: u16 = 443;

const EXAMPLES: &str = "\
Examples:
  This machine:                        headstart doctor
  This machine and a server:           headstart doctor www.example.com
  A server whose edge is not in DNS:   headstart doctor www.example.com \\
                                           --edge www.example.com=192.0.2.1:443

A server is checked by opening one connection to it; no request is sent.

Exit code: 0 if all is well, 1 if something is not; a note is well.";

/// Check what this machine, the network and a server support
///
/// Each finding that could be better comes with a hint.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub struct DoctorOptions {
    /// Server to check too, NAME or NAME:PORT
    #[arg(value_name = "HOST", value_parser = host)]
    pub host: Option<HostPort>,

    /// Edge for connections to NAME; may be given several times
    #[arg(long, value_name = "NAME=HOST:PORT[,fop=1...]")]
    pub edge: Vec<EdgeAddress>,

    /// Trust the certificate authorities in this PEM file [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

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

impl DoctorOptions {
    /// The edges by server name.
    ///
    /// # Errors
    /// Two edges for the same name.
    pub fn edges(&self) -> Result<NameMap<EdgeAddress>, Failure> {
        edge_address::by_name(&self.edge)
    }
}

fn host(text: &str) -> Result<HostPort, String> {
    if text.contains("://") || text.contains('/') {
        return Err("write the name alone, for example www.example.com".into());
    }
    let has_port =
        text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    match (has_port, text.parse()) {
        (true, parsed) => parsed,
        // An address of IPv6 may come without brackets if it has no port.
        (false, _) if text.contains(':') => {
            format!("[{}]:{HTTPS}", text.trim_matches(['[', ']'])).parse()
        }
        (false, _) => format!("{text}:{HTTPS}").parse(),
    }
}
