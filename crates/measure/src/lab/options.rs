//! Options of `headstart lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::lab::calibrate::CalibrateOptions;
use crate::lab::peer::PeerOptions;
use crate::lab::report::options::LabReportOptions;
use crate::lab::site_options::LabSiteOptions;
use headstart::base::logging::LogOptions;
use headstart::qlog::options::QlogOptions;

const EXAMPLES: &str = "\
Examples:
  What there is, and how long it takes:
      headstart lab list
  The table of the TurboTLS paper, in short and in full:
      headstart lab run turbotls-table --quick
      headstart lab run turbotls-table --out results/turbotls-table
  Everything, for one report on one build; the same command goes on after an interrupt:
      headstart lab run all --out results/one-build
  An experiment of one's own:
      headstart lab run my.toml --pcap

Needs Linux with user namespaces, or root, and the command `ip`; nothing outside the namespaces is
changed, and nothing is sent to the network. As root the times are more exact. Experiments of FOP
need root: they attach programs to the kernel, for the run and its own control group alone.";

/// Measure openings over emulated networks on this machine, with every rival beside them
///
/// An experiment is a file: links, what runs over them, how often, and the bars that must hold. A
/// run builds each link between network namespaces, starts real clients and servers in them, and
/// writes a folder with every sample, a summary, the environment and the experiment itself.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub(crate) struct LabOptions {
    /// Action
    #[command(subcommand)]
    pub command: LabCommand,
}

/// Actions of `headstart lab`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum LabCommand {
    List(LabListOptions),
    Run(LabRunOptions),
    Report(LabReportOptions),
    Calibrate(CalibrateOptions),
    Site(LabSiteOptions),
    #[command(hide = true)]
    Peer(PeerOptions),
}

/// Show the experiments that are built in, with their cells and an estimate of their time
#[derive(Debug, Clone, Args)]
pub(crate) struct LabListOptions {
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// Run an experiment and write its results
///
/// The results are written into DIR.partial, which is renamed to DIR when they are whole. Exit code
/// 1: the results are there, but a bar of the experiment was missed or a program broke. Exit code
/// 2: there are none; wrong usage, a machine that does not allow it, or an interrupt (Ctrl-C,
/// SIGTERM, SIGHUP).
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabRunOptions {
    /// An experiment that is built in, or a file; `all` for each that is built in, in a folder of
    /// its own
    #[arg(value_name = "NAME|FILE|all")]
    pub experiment: String,

    /// Few trials: checks the shape of the results, in minutes
    #[arg(long)]
    pub quick: bool,

    /// As many trials as the published figures rest on, for experiments that have such a form:
    /// takes hours
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,

    /// Only this link of the experiment; may be given again [default: all]
    #[arg(long = "link", value_name = "NAME")]
    pub links: Vec<String>,

    /// Where to write the results; must not exist, but `all` keeps what is there and goes on
    /// [default: lab-results/NAME-DATE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// In `all`, measure although others use the machine, which must be idle otherwise
    #[arg(long)]
    pub busy: bool,

    /// In a benchmark other than `attack`, measure this build of headstart, too, as the arm `other`
    #[arg(long, value_name = "PROGRAM")]
    pub beside: Option<PathBuf>,

    /// Capture the packets of each client, one file for each link and variant, in DIR/captures
    #[arg(long)]
    pub pcap: bool,

    #[command(flatten)]
    pub qlog: QlogOptions,

    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,

    /// Seed of the order of trials [default: that of the experiment]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub log: LogOptions,
}
