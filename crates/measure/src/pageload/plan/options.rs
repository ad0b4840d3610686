//! Options of `headstart pageload plan`, `simulate` and `validate`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use headstart_pageload::plan::OwnHost;
use headstart_pageload::sim::tcp::{Technique, Techniques};

const PLAN_EXAMPLES: &str = "\
Examples:
  Save a page in the browser: network panel, cache off, load it, \"Save all as HAR\". Then
      headstart pageload plan page.har --rtt 100ms --down 20Mbit --html plan.html

  Your hosts, where they are not all of the document's site:
      headstart pageload plan page.har --own .example.com --own cdn.example.net

  A client that was never there before; only what an edge does:
      headstart pageload plan page.har --visit first --technique turbotls,0rtt

  Many pages: a folder, or names; databases that know three fifths of the pages:
      headstart pageload plan recordings/ --hit-rate 60 --html plan.html

  What databases that were made of other loads know of this one:
      headstart pageload plan page.har --database pages.hsdb --key maker.key.pub

  By the rules of the simulator published with BLAST:
      headstart pageload plan page.har --profile blast";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  Plain, with TurboTLS, and with early data besides, ten loads of each page:
      headstart pageload simulate recordings/ --rtt 150ms --down 8Mbit --loss 1 --draws 10 \\
          --technique none --technique turbotls --technique turbotls+0rtt --csv loads.csv

  The published simulator's:
      headstart pageload simulate page.har --profile blast --technique all";

const VALIDATE_EXAMPLES: &str = "\
Examples:
      headstart pageload validate --blast blast-train.jsonl.gz
      HEADSTART_DATA=folder headstart pageload validate --json
  Ten recorded pages over real sockets, and the profile tcp against them:
      headstart lab run pages --out results
      headstart pageload validate --replays results";

/// Longest round trip that is simulated.
const RTT_MAX: Duration = Duration::from_secs(60);

/// Connections to a server, and requests on each, at most: more than any browser ever had.
const POOL_MAX: i64 = 1_000;

/// Loads of one page at most.
const DRAWS_MAX: u64 = 10_000;

/// Say what each technique would save on recorded pages, and where an edge would help first
///
/// Loads each page in simulated time: with each technique alone, with more and more of them, over
/// other round trips and bandwidths, without what takes time, and with an edge for one host alone.
/// Of many pages also how many gain a quarter or a half, by their size, and what load times hang
/// on. The answer, what to do first, and how sure that is come before all else. Where a recording
/// names too few parents, no hosts and no steps are ranked, and the answer says so. Exit code 0:
/// ranked or not. Exit code 2: a file could not be read; the others are answered. Exit code 1: the
/// database is not good.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = PLAN_EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    pub(crate) pages: PageFiles,

    #[command(flatten)]
    pub(crate) simulator: SimulatorOptions,

    /// Techniques in the order in which one is added to the other, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub technique: Vec<Technique>,

    /// Host that may get an edge, or .SUFFIX for all below a name; may be given several times
    /// [default: the document's site]
    #[arg(long, value_name = "HOST|.SUFFIX")]
    pub own: Vec<OwnHost>,

    /// Hosts, or pages, to show as text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rows: usize,

    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,

    /// Write everything as a report with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Load recorded pages in simulated time
///
/// Says for each page, or over all of them, how long it takes until 95 % of its resources are
/// there. The same options give the same figures. Exit code 2: a file could not be read; the others
/// are loaded. Exit code 1: the database is not good.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = SIMULATE_EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct SimulateOptions {
    #[command(flatten)]
    pub(crate) pages: PageFiles,

    #[command(flatten)]
    pub(crate) simulator: SimulatorOptions,

    /// Techniques, with + between them; none, or all. May be given several times, to compare them
    #[arg(long, value_name = "NAMES", default_value = "none")]
    pub technique: Vec<Arm>,

    /// Pages to show as text
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Print means of each page as JSON
    #[arg(long)]
    pub json: bool,

    /// Write each load in a line
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

/// Hold the simulator against others, against real sockets, and against a browser
///
/// The profile `blast` against what the published simulator said of the published pages: mean
/// absolute errors by setting, and the bars that they have to keep. With --replays instead the
/// profile `tcp` against loads of pages over real sockets (`headstart lab run pages`). The second
/// half of the pages, as the experiment lists them, is held out: nothing in the simulator was
/// changed after these, and the bars are about them. With --browser what it promises from
/// recordings against what arms saved in Chromium (`headstart lab run browser`): bars are about the
/// sites that no constant was measured on. Exit code 1: a bar is not kept.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = VALIDATE_EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct ValidateOptions {
    /// Page loads published with BLAST (.jsonl, also .gz), or the folder with
    /// blast/blast-train.jsonl.gz; if not given, the one that HEADSTART_DATA names
    #[arg(long, value_name = "PATH", visible_alias = "reference")]
    pub blast: Option<PathBuf>,

    /// Results of replays: a folder that `headstart lab run` wrote, of an experiment whose variants
    /// are pages
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["blast", "draws"])]
    pub replays: Option<PathBuf>,

    /// Loads in a browser: a folder that `headstart lab run browser` wrote
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["blast", "draws", "replays"])]
    pub browser: Option<PathBuf>,

    /// Loads of each page and setting of which the mean counts
    #[arg(long, value_name = "N", default_value_t = headstart_pageload::sim::published::DRAWS,
        value_parser = clap::value_parser!(u64).range(1..=DRAWS_MAX))]
    pub draws: u64,

    /// Print figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// Files with pages to load.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageFiles {
    /// HAR files, recordings of CS244 (.json), page loads published with BLAST (.jsonl), also
    /// compressed (.gz); folders of such files; quoted patterns, such as 'recordings/**/*.har'; -
    /// is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// The rules and the network.
#[derive(Debug, Clone, Args)]
pub(crate) struct SimulatorOptions {
    /// Rules of the simulation
    #[arg(long, value_name = "NAME", default_value = "tcp")]
    pub(crate) profile: ProfileName,

    /// Round-trip time to all servers; 50ms if not given, 800ms for blast
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    pub(crate) rtt: Option<Duration>,

    /// Bandwidth to the client, such as 8Mbit; no limit if not given. For blast that of each
    /// resource, else 1312kbit
    #[arg(long, value_name = "RATE", value_parser = crate::value::rate)]
    pub(crate) down: Option<u64>,

    /// Bandwidth to the servers; no limit if not given
    #[arg(long, value_name = "RATE", value_parser = crate::value::rate)]
    pub(crate) up: Option<u64>,

    /// Packets lost each way, in percent
    #[arg(long, value_name = "PERCENT", value_parser = loss)]
    pub(crate) loss: Option<f64>,

    /// Time from a name to its address, once for each host of a first visit; none if not given
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    pub(crate) dns: Option<Duration>,

    /// State of the client: addresses, cookies and sessions of an earlier visit, or none [default:
    /// again]
    #[arg(long, value_name = "WHICH")]
    pub(crate) visit: Option<Visit>,

    /// Servers met at another address than before, in percent: cookies of tfo miss there, those of
    /// fop do not
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub(crate) moved: Option<f64>,

    /// Servers to which a connection is open from before, in percent
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub(crate) warm: Option<f64>,

    /// Connections of HTTP/1.1 to one server at a time
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=POOL_MAX))]
    pub(crate) connections: u16,

    /// Requests on each of them without a response, of servers that are known to take several:
    /// published page loads say it
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=POOL_MAX))]
    pub(crate) pipelining: u16,

    /// Pages that databases know, in percent
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = share)]
    pub(crate) hit_rate: f64,

    /// When databases of servers and of what to prefetch speak [default: start]
    #[arg(long, value_name = "WHEN")]
    pub(crate) delivery: Option<DeliveryName>,

    /// Databases that know what they know of each page: a file of `headstart pageload db`, instead
    /// of --hit-rate
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "hit_rate")]
    pub(crate) database: Option<PathBuf>,

    /// Public keys (PEM), one of which has to have signed it
    #[arg(long, value_name = "FILE", requires = "database")]
    pub(crate) key: Vec<PathBuf>,

    /// Loads of each page, where chance has a part; their means count
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=DRAWS_MAX))]
    pub(crate) draws: u64,

    /// Seed of the first load; the next has the next
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

/// Rules of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Rules of the simulator published with BLAST
    Blast,
    /// Congestion windows, a shared link, servers that think
    Tcp,
}

/// State of a client from before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Visit {
    /// Nothing
    First,
    /// Addresses, cookies and sessions of all servers
    Again,
}

/// When databases speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryName {
    /// At the start, all that they have: to a changed browser, as BLAST has it
    Start,
    /// Sent with the head of the document's answer, as far as Link fields can express it: to
    /// browsers as they are
    Document,
}

/// Techniques to simulate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// All that `plan` adds up.
    All,
    /// These.
    These(Techniques),
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::These).map_err(|error| format!("{error}; or all")),
        }
    }
}

pub(crate) fn round_trip(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= RTT_MAX => Ok(time),
        Ok(_) => Err("longer than a minute".into()),
        Err(error) => Err(format!("{error}; write for example 100ms")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let percent: f64 =
        text.trim_end_matches('%').trim_end().parse().map_err(|_| "not a number".to_owned())?;
    match (0.0..=100.0).contains(&percent) {
        true => Ok(percent / 100.0),
        false => Err("from 0 to 100".into()),
    }
}

/// Above half, hardly a connection opens.
fn loss(text: &str) -> Result<f64, String> {
    share(text).and_then(|share| if share <= 0.5 { Ok(share) } else { Err("more than 50".into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_percent() {
        assert_eq!((share("60"), share("0.5%"), share("100 %")), (Ok(0.6), Ok(0.005), Ok(1.0)));
        assert!(share("101").is_err() && share("-1").is_err() && share("NaN").is_err());
        assert_eq!((loss("50"), loss("51").is_err()), (Ok(0.5), true));
    }

    #[test]
    fn arms_are_techniques() {
        assert_eq!("all".parse(), Ok(Arm::All));
        assert_eq!("none".parse(), Ok(Arm::These(Techniques::default())));
        let error = "fast".parse::<Arm>().unwrap_err();
        assert!(
            error.starts_with("'fast' is no technique; there are none, tfo")
                && error.ends_with("; or all")
        );
    }
}
