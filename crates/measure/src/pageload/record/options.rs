//! Options of `headstart pageload record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::chromium::BrowserTls;

const EXAMPLES: &str = "\
Examples:
  Five loads of a page, each in a browser that has seen nothing yet, and what they are made of:
      headstart pageload record https://www.example.com/ --runs 5
      headstart pageload show recordings/www.example.com-0001.har

  The pages that are built in (news, shop, app): on this machine, or over an emulated link. \
  Nothing leaves the machine:
      headstart pageload record news shop app
      headstart pageload record news --link lte --runs 10 --out news-lte
      headstart pageload record news --link 'delay 400ms, down(rate 2Mbit queue 64kB)'

  From recordings to what techniques would save:
      headstart pageload plan recordings/

  Through an agent, with what an earlier load left in the cache:
      headstart pageload record https://www.example.com/ --proxy socks5://127.0.0.1:1080 --warm";

/// Record page loads in Chromium: HAR files with what asked for what, connections, and sizes on the
/// wire
///
/// Each load is one of a new Chromium without window, history or extensions, over its DevTools
/// protocol. It is over when the page's load event was there and nothing came for 2 s; or, of a
/// page that never ends, when 95 % of its requests did. A load is written to OUT/HOST-NUMBER.har
/// when it is whole, and its tree, with the times of each resource, to a .csv beside it. Exit
/// codes: 1 a load failed, the others were recorded; 2 wrong usage; 130 interrupted.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct RecordOptions {
    /// Pages to load: URLs, or names of built-in sites (news, shop, app)
    #[arg(value_name = "URL|SITE", required = true)]
    pub pages: Vec<String>,

    /// Loads of each page, in turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Record a second load, with the cache of a first and new connections
    #[arg(long)]
    pub warm: bool,

    /// Record a second load by the same browser, so long after a first: with its cache and its TLS
    /// sessions
    ///
    /// Connections that servers keep open so long are there as well.
    #[arg(long, value_name = "TIME", conflicts_with = "warm")]
    #[arg(value_parser = humantime::parse_duration)]
    pub revisit: Option<Duration>,

    /// Folder for the recordings; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "recordings")]
    pub out: PathBuf,

    /// Load built-in sites over an emulated link: lte, satellite, transatlantic, wifi, or the
    /// elements of a path
    #[arg(long, value_name = "LINK", conflicts_with = "proxy")]
    pub link: Option<String>,

    /// Load through a proxy: socks5://HOST:PORT or http://HOST:PORT, without user and password
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,

    /// Longest that a load may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = humantime::parse_duration)]
    pub timeout: Duration,

    /// Language that pages are asked for in
    #[arg(long, value_name = "LANG", default_value = "en-US")]
    pub language: String,

    /// Time that built-in sites think about a request, instead of their own
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub think: Option<Duration>,

    /// Write a picture of each page beside its recording (.png)
    #[arg(long)]
    pub screenshot: bool,

    /// Chromium, or a browser made of it [default: the first of chromium, google-chrome and so on]
    #[arg(long, value_name = "FILE", help_heading = "Browser")]
    pub browser: Option<PathBuf>,

    /// A further argument for it, such as --browser-arg=--disable-quic; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, help_heading = "Browser")]
    pub browser_arg: Vec<String>,

    /// Have Chromium speak TLS otherwise than by itself, for measurements; several are separated by
    /// commas
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', help_heading = "Browser")]
    pub tls: Vec<BrowserTls>,

    /// Trust certificates of this authority, beside those that the browser knows (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Browser")]
    pub trust: Option<PathBuf>,

    /// Load pages whose certificates are wrong
    #[arg(long, help_heading = "Browser")]
    pub insecure: bool,

    /// Print what was recorded as JSON
    #[arg(long)]
    pub json: bool,
}
