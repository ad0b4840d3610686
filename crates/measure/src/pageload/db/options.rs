//! Options of `headstart pageload db`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use headstart_pageload::db::update::PERIOD_MIN;
use hyper::Uri;

const EXAMPLES: &str = "\
Examples:
  A key, once; the secret stays with whoever makes databases, clients get FILE.pub:
      headstart pageload db keygen maker.key

  Databases of recordings of several days, signed, and how well they would have done:
      headstart pageload db build recordings/*.har --out pages.hsdb --sign maker.key --figures
      headstart pageload db show pages.hsdb --url https://www.example.com/

  Only what wins on loads that it was not learned from, recorded over 50 ms and 50 Mbit/s:
      headstart pageload db build recordings/*.har --out pages.hsdb --proven 50ms --rate 50Mbit

  For a web server, and for an extension of a browser:
      headstart pageload db export pages.hsdb --format links --url https://www.example.com/
      headstart pageload db export pages.hsdb --format extension --sign maker.key --out pages.hsdx

  On a client: once a day, at a time that has nothing to do with what is visited:
      headstart pageload db fetch https://db.example/pages.hsdb --key maker.key.pub --file \
      pages.hsdb --every 1day";

/// Make, look at and fetch databases of what pages load: redirect, server, HTTP/2 and prefetch
///
/// They are made of many recordings, are the same for all users, and are never changed where they
/// are used: see docs/databases.md for what they hold, what they tell whom, and their format.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub(crate) struct DbOptions {
    /// Action
    #[command(subcommand)]
    pub command: DbCommand,
}

/// Actions of `headstart pageload db`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DbCommand {
    Keygen(DbKeygenOptions),
    Build(DbBuildOptions),
    Show(DbShowOptions),
    Check(DbCheckOptions),
    Export(DbExportOptions),
    Fetch(DbFetchOptions),
}

/// Write a new signing key to a file that does not exist yet, and its public key to FILE.pub
#[derive(Debug, Clone, Args)]
pub(crate) struct DbKeygenOptions {
    /// File to write (PEM), readable for its owner only
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Learn databases from recordings
///
/// Recordings of one document are instances of one page. What is in at least --share of them is
/// learned; URLs only if they were asked for by GET each time, and their path with no other query.
/// Private names and addresses are left out. Exit code 2: a file could not be read; the database is
/// of the others.
#[derive(Debug, Clone, Args)]
pub(crate) struct DbBuildOptions {
    /// HAR files; loads published with BLAST (.jsonl, or - for standard input); recordings of CS244
    /// (.json); also compressed (.gz); folders of such files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// File to write
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Signing key; without it, nobody will fetch the file
    #[arg(long, value_name = "FILE")]
    pub sign: Option<PathBuf>,

    /// Percent of a page's recordings that have to agree
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = percent)]
    pub share: f64,

    /// Recordings that a page needs
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub recordings: u32,

    /// Use only so many recordings of each page, the newest ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub newest: Option<u32>,

    /// Databases to make
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "redirect,server,http2,prefetch"
    )]
    pub only: Vec<DbName>,

    /// Take requests whose method is not recorded (CS244) for GET
    #[arg(long)]
    pub assume_get: bool,

    /// Compare each recording with what older ones would have said (a day, a week, four weeks), and
    /// with all others
    #[arg(long)]
    pub figures: bool,

    /// Keep of each page only what makes it faster in simulated loads that it was not learned from,
    /// over the link of this round-trip time over which it was recorded; at least four recordings
    #[arg(long, value_name = "RTT", value_parser = crate::pageload::plan::options::round_trip)]
    pub proven: Option<Duration>,

    /// Bandwidth of that link each way; no limit if not given
    #[arg(long, value_name = "RATE", value_parser = crate::value::rate, requires = "proven")]
    pub rate: Option<u64>,

    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// One of the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DbName {
    /// Where URLs lead
    Redirect,
    /// Servers that pages connect to
    Server,
    /// Hosts that speak HTTP/2
    Http2,
    /// Resources that pages load
    Prefetch,
}

/// Show what is in a file, whoever made it
#[derive(Debug, Clone, Args)]
pub(crate) struct DbShowOptions {
    /// Database
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Knowledge of this URL. Exit code 1: nothing
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Check that a file is whole, and signed with a key
///
/// Exit code 1: it is not, or `fetch` would not take it.
#[derive(Debug, Clone, Args)]
pub(crate) struct DbCheckOptions {
    /// Database
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Public keys (PEM), one of which has to have signed it
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,

    /// A file in use, which it must not be older than
    #[arg(long, value_name = "FILE")]
    pub in_use: Option<PathBuf>,
}

/// Write a database in a format of servers or browsers, on standard output
#[derive(Debug, Clone, Args)]
pub(crate) struct DbExportOptions {
    /// Database
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Format
    #[arg(long, value_name = "FORMAT")]
    pub format: DbFormat,

    /// Only for the page with this URL, or for its origin
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// Include redirects that are not permanent (extension)
    #[arg(long)]
    pub temporary: bool,

    /// Signing key (extension): the extension takes no file without signature
    #[arg(long, value_name = "FILE", requires = "out")]
    pub sign: Option<PathBuf>,

    /// File to write, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A format of servers or browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DbFormat {
    /// Speculation rules by origin: JSON for `<script type="speculationrules">`
    SpeculationRules,
    /// `Link` fields by page, for responses and 103 Early Hints: preconnect and preload
    Links,
    /// Where documents lead, and connections by page: JSON, with --sign a file for the browser
    /// extension
    Extension,
}

/// Fetch a newer database and put it in the place of the one in use
///
/// The file is replaced at once and whole, and only by one that is signed with the key and not
/// older. Each fetch is the same for all users: no cookies, no date or tag of what is there. With
/// --every it stays and fetches again and again, at moments that the clock and random bytes (in
/// FILE.schedule) alone decide. Exit code 1: what came is not taken.
#[derive(Debug, Clone, Args)]
pub(crate) struct DbFetchOptions {
    /// Where it is: https, or http (the signature decides either way)
    #[arg(value_name = "URL", value_parser = web_url)]
    pub url: Uri,

    /// Public keys (PEM), one of which has to have signed it
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,

    /// The database in use; it need not be there yet
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,

    /// Once in each of these times, from 1h on; without it, once and now
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub every: Option<Duration>,

    /// Certificate authorities of the server (PEM), instead of those of the system
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// Give up after this time
    #[arg(long, value_name = "TIME", default_value = "5min")]
    #[arg(value_parser = humantime::parse_duration)]
    pub max_time: Duration,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.1..=100.0).contains(&percent) {
        true => Ok(percent),
        false => Err("from 0.1 to 100".into()),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    let period = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match period >= PERIOD_MIN {
        true => Ok(period),
        false => Err(format!("at least {}", humantime::format_duration(PERIOD_MIN))),
    }
}

fn web_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|_| "not a URL".to_owned())?;
    match (url.scheme_str(), url.host()) {
        (Some("https" | "http"), Some(_)) => Ok(url),
        _ => Err("not an https or http URL".into()),
    }
}
