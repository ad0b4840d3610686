//! Options of `headstart dns-record`.

use std::num::NonZeroU16;

use clap::Args;

use crate::base::value::HostPort;

const EXAMPLES: &str = "\
Examples:
  An edge at the name's own addresses, port 443:
      headstart dns-record www.example.com

  An edge elsewhere:
      headstart dns-record www.example.com --edge edge.example.net:8443

Look at what is published now:  dig +short HTTPS www.example.com";

/// Print the DNS record that tells clients of an edge
///
/// The record is one line for a zone file. Clients without headstart ignore what they do not know
/// in it, but an HTTPS record of any kind also makes browsers use https: for the name.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(after_help = "See --help for examples.")]
pub struct DnsRecordOptions {
    /// Name that clients connect to
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where the edge is [default: the addresses of NAME, port 443]
    #[arg(long, value_name = "HOST:PORT")]
    pub edge: Option<HostPort>,

    /// Seconds that resolvers may keep the record
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    pub ttl: u32,

    /// Protocols the server speaks beside HTTP/1.1; none with --alpn ''
    #[arg(long, value_name = "ID,...", value_delimiter = ',', default_value = "h2")]
    pub alpn: Vec<String>,

    /// Datagrams a client should offer for the server's first flight (1 to 14)
    ///
    /// Each brings up to 1.2 kB: 4 do for a usual ECDSA certificate chain, 6 for an RSA chain, 14
    /// for many with post-quantum signatures. What does not fit comes over TCP.
    #[arg(long, value_name = "N", default_value = "6")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=14))]
    pub slots: u8,

    /// UDP port of the datagrams, if it is not the port of TCP
    ///
    /// Where another server has that port on UDP, for instance for HTTP/3. Clients take 443, and
    /// ports from 1024 up.
    #[arg(long, value_name = "PORT")]
    pub udp: Option<NonZeroU16>,

    /// Say that early data (0-RTT) may go over UDP
    ///
    /// Only if one edge serves all addresses of the name.
    #[arg(long)]
    pub early_data: bool,

    /// Say that clients get cookies for TCP Fast Open, and may open with them
    ///
    /// Only where an edge with --fast-open serves the name: clients wait up to 10 ms for data to
    /// put into the SYN.
    #[arg(long)]
    pub fast_open: bool,

    /// Print JSON: the record, its parts and the warnings
    #[arg(long)]
    pub json: bool,
}
