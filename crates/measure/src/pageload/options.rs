//! Options of `headstart pageload`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use headstart_openers::{Arm, Suite};
use headstart_pageload::sharing::CostModel;

use crate::pageload::db::options::DbOptions;
use crate::pageload::plan::options::{PageFiles, PlanOptions, SimulateOptions, ValidateOptions};
use crate::pageload::record::options::RecordOptions;
use crate::terminal::Color;
use headstart::base::logging::LogOptions;

const EXAMPLES: &str = "\
Examples:
  Record for a while, then ask (ports of other TLS services as well, if there are any):
      tcpdump -i any -s 0 -w today.pcap tcp port 443 or udp port 443
      headstart pageload sharing today.pcap

  Group servers by autonomous system, as the paper does:
      curl -O https://iptoasn.com/data/ip2asn-combined.tsv.gz
      gunzip ip2asn-combined.tsv.gz
      headstart pageload sharing today.pcap --asn ip2asn-combined.tsv

  With the latency of handshakes as measured on your network:
      headstart pageload sharing today.pcap --cost 120ms,60ms

  Captures in several files, in their order; a compressed one:
      headstart pageload sharing part-*.pcapng
      zcat today.pcap.gz | headstart pageload sharing -

  What a browser recorded (it does not say which sessions it resumed):
      headstart pageload sharing page.har";

const SHOW_EXAMPLES: &str = "\
Examples:
  Save a page in the browser: network panel, cache off, load it, \"Save all as HAR\". Then
      headstart pageload show page.har
      headstart pageload show page.har --html page.html

  Many at once, and the second page of one of them:
      headstart pageload show recordings/
      headstart pageload show 'recordings/**/*.har'
      headstart pageload show recordings/news.har --page 2 --svg news.svg";

const REPLAY_EXAMPLES: &str = "\
Examples:
  A page over a link with a round trip of 80 ms, by TLS 1.3 and by TurboTLS:
      headstart pageload replay page.har
  By every way to open a connection that is of interest, over two links:
      headstart pageload replay page.har --arm tls13,tls13-0rtt,turbo,turbo-0rtt,quic \\
          --link satellite --link 'delay 10ms, rate 10mbit'
  A first visit, where nothing is known of the page's servers:
      headstart pageload replay page.har --first-visit
  The report, with distributions, of the folder that the command names:
      headstart lab report lab-results/replay-DATE --html page.html

Needs Linux with user namespaces, or root, and the command `ip`; nothing is sent to the network. \
Arms of FOP need root.";

/// Measures and simulates the cost of loading pages
#[derive(Debug, Clone, Args)]
#[command(after_help = "See `headstart pageload COMMAND --help` for examples.")]
#[command(disable_help_subcommand = true)]
pub(crate) struct PageloadOptions {
    /// Action
    #[command(subcommand)]
    pub command: PageloadCommand,
}

/// Actions of `headstart pageload`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum PageloadCommand {
    Record(RecordOptions),
    Show(ShowOptions),
    Plan(PlanOptions),
    Simulate(SimulateOptions),
    Replay(ReplayOptions),
    Validate(ValidateOptions),
    Db(DbOptions),
    Sharing(SharingOptions),
}

/// Count the full TLS handshakes that shared sessions would have saved
///
/// Reads packet captures (pcap, pcapng) and HAR files, and counts full handshakes as they were,
/// with one session store for all programs of the client, and with servers that share their keys as
/// well; with latency and energy if --cost says what handshakes take. Nothing is sent anywhere.
/// Captures may be larger than memory. Exit code 1: there is no TLS connection in the files.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct SharingOptions {
    /// Captures or HAR files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Table of autonomous systems: PREFIX,AS, or pfx2as of RouteViews, or ip2asn of iptoasn.com
    ///
    /// Servers share sessions if they have one name and are in one autonomous system. Without a
    /// table the name alone counts, which is more than all operators could do.
    #[arg(long, value_name = "FILE")]
    pub asn: Option<PathBuf>,

    /// Means of a connection with a full handshake, and with a resumed one, such as 120ms,60ms: a
    /// recording does not tell them. `paper` for those of phones in 2019
    #[arg(long, value_name = "FULL,RESUMED|paper")]
    pub cost: Option<Cost>,

    /// Services to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// Print everything as JSON, with all services
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost(pub(crate) CostModel);

impl FromStr for Cost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "paper" {
            return Ok(Self(CostModel::PAPER));
        }
        let ms =
            |text: &str| Some(humantime::parse_duration(text.trim()).ok()?.as_secs_f64() * 1e3);
        let both = text.split_once(',').and_then(|(full, resumed)| Some((ms(full)?, ms(resumed)?)));
        let (full_ms, resumed_ms) = both.ok_or("write two times, such as 120ms,60ms, or paper")?;
        Ok(Self(CostModel { full_ms, resumed_ms, full_uah: None, resumed_uah: None }))
    }
}

/// Show what a page loads: tree, waterfall, round trips, and where the time went
///
/// Reads HAR files as browsers save them, the recordings of CS244 and page loads published with
/// BLAST. One page is shown whole; of several each in a line, with distributions over all. What is
/// in a file and is no resource (cached, aborted, WebSockets and so on) is counted by reason. Text
/// is as wide as the terminal, or as COLUMNS says. Exit code 2: a file could not be read; the
/// others are shown.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = SHOW_EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) pages: PageFiles,

    /// The page of each file to show, from 1; all if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub page: Option<u32>,

    /// Resources, or pages, to show as text
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub rows: usize,

    /// Print everything as JSON; resources one by one if there is one page
    #[arg(long)]
    pub json: bool,

    /// When to colour the waterfall
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Write tree and waterfall of the page as a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write everything as a report, whose waterfall can be filtered, also on a phone
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Load recorded pages over real sockets and an emulated link, by several ways to open connections
///
/// Origins on this machine answer with the recorded sizes, think times and redirects; a client asks
/// for each resource when what it depends on is there, over as many connections as a browser has.
/// TCP and TLS are real. The arms take turns. All that is measured, down to each resource, is
/// written into a folder, as `headstart lab run` does. Exit code 1: a load failed.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = REPLAY_EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct ReplayOptions {
    /// HAR files, recordings of CS244 (.json), or page loads published with BLAST (.jsonl): a page
    /// of each
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The page of each file, from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub page: u16,

    /// Between client and servers: `preset NAME`, or elements as in experiments; several are tried
    /// in turn
    #[arg(long = "link", value_name = "PATH", default_value = "delay 40ms")]
    pub links: Vec<String>,

    /// Openings; the first is what the others are compared with
    #[arg(long = "arm", value_name = "ARM", value_delimiter = ',', default_value = "tls13,turbo")]
    pub arms: Vec<Arm>,

    /// Key exchange and certificates
    #[arg(long, default_value = "x25519mlkem768")]
    pub suite: Suite,

    /// Loads of each arm, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub loads: u32,

    /// Connections to each server at a time, or `recorded`: each resource over the connection of
    /// the recording
    #[arg(long, value_name = "N|recorded", default_value = "6")]
    pub connections: String,

    /// Addresses of each host, of which each connection goes to any
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=8))]
    pub addresses: u8,

    /// Forget sessions, cookies and what is known of the path before each load
    #[arg(long)]
    pub first_visit: bool,

    /// Seconds after which a load has failed
    #[arg(long, value_name = "S", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=600))]
    pub timeout: u16,

    /// Seed of the order of loads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Where to write what is measured; must not exist [default: lab-results/replay-DATE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Capture the packets of the client, in DIR/captures
    #[arg(long)]
    pub pcap: bool,

    /// Print everything as JSON, with the medians of each resource
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub log: LogOptions,
}
