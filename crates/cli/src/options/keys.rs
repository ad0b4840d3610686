//! Options of `headstart keys`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use headstart_tls::keyring::{PERIOD_MAX, PERIOD_MIN};

const EXAMPLES: &str = "\
Examples:
  Keys for a site, to be copied to each of its edges:
      headstart keys new /etc/headstart/keys

  Renewed by a timer on one machine, which then copies the file to the others; edges that have the
  old file and edges that have the new one take each other's tickets:
      headstart keys rotate --if-due /etc/headstart/keys

  Whether two machines have the same keys (compare the names; no secret is shown):
      headstart keys show /etc/headstart/keys

The file belongs to the user that the edge runs as, and nobody else may read it.";

/// Make, renew and look at the keys of a site's session tickets and Fast Open cookies
///
/// The file holds three epochs, each a secret of its own: the current one makes tickets and cookies,
/// the previous and the next one are still, or already, taken. Rotating moves each one place on, and
/// what the oldest made is worth nothing from then on: clients then open connections as if new.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub struct KeysOptions {
    /// What to do
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// What `headstart keys` can do.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum KeysCommand {
    New(KeysNewOptions),
    Rotate(KeysRotateOptions),
    Show(KeysShowOptions),
}

/// Write new keys to a file that does not exist yet
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysNewOptions {
    /// File to write, readable for its owner only
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// How long an epoch is to be current, from 1h to 7days
    ///
    /// A secret exists for three times as long. Whoever steals it can read TLS 1.2 sessions and early
    /// data of that time. No ticket lives longer than one period.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = period)]
    pub period: Duration,
}

/// Make the next epoch current, and a new next one
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysRotateOptions {
    /// File that `headstart keys new` made; it is replaced as a whole
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Do nothing before the period is over
    #[arg(long)]
    pub if_due: bool,
}

/// Show the epochs of a file, and none of its secrets
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysShowOptions {
    /// File that `headstart keys new` made
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn period(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(period) if (PERIOD_MIN..=PERIOD_MAX).contains(&period) => Ok(period),
        Ok(_) => Err("not from 1h to 7days".into()),
        Err(error) => Err(format!("{error}; write for example 12h")),
    }
}
