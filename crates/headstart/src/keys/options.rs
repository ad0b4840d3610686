//! Options of `headstart keys`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use headstart_tls::keyring::{PERIOD_MAX, PERIOD_MIN};

use crate::fleet::storage::KeySource;

const EXAMPLES: &str = "\
Examples:
  Keys for a site, to be copied to each of its edges:
      headstart keys new /etc/headstart/keys

  Renewed by a timer on one machine, which then copies the file to the others; edges that have the
  old file and edges that have the new one take each other's tickets:
      headstart keys rotate --if-due /etc/headstart/keys

  Whether two machines have the same keys (compare the names; no secret is shown):
      headstart keys show /etc/headstart/keys

  Keys in Redis, sealed with the key of a file that all machines have; any of them may rotate:
      headstart keys new --fleet /etc/headstart/fleet
      headstart keys new redis://redis.internal?name=www --fleet /etc/headstart/fleet
      headstart keys rotate --if-due redis://redis.internal?name=www --fleet /etc/headstart/fleet

  For nginx and HAProxy with the same ticket keys (docs/fleet.md says what they then resume):
      headstart keys export --nginx /etc/nginx/tickets /etc/headstart/keys

The file belongs to the user that the edge runs as, and nobody else may read it.";

/// Make, renew and look at the keys of a site's session tickets and Fast Open cookies
///
/// The file holds three epochs, each a secret of its own: the current one makes tickets and
/// cookies, the previous and the next one are still, or already, taken. Rotating moves each one
/// place on, and what the oldest made is worth nothing from then on: clients then open connections
/// as if new.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub struct KeysOptions {
    /// Action
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// Actions of `headstart keys`.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum KeysCommand {
    New(KeysNewOptions),
    Rotate(KeysRotateOptions),
    Show(KeysShowOptions),
    Export(KeysExportOptions),
}

/// Write new keys to a file that does not exist yet, or to Redis where there are none yet
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysNewOptions {
    /// File to write, readable for its owner only; or redis://HOST:PORT/DB?name=NAME, of which
    /// port, database and name may be left out
    #[arg(value_name = "FILE|URL", value_parser = KeySource::parser(),
          required_unless_present = "fleet")]
    pub keys: Option<KeySource>,

    /// File of the fleet, whose key seals keys in Redis; without anything else, it is made
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    /// Time that an epoch is to be current, from 1h to 7days
    ///
    /// A secret exists for three times as long. Whoever steals it can read TLS 1.2 sessions and
    /// early data of that time. No ticket lives longer than one period.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = period)]
    pub period: Duration,
}

/// Make the next epoch current, and a new next one
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysRotateOptions {
    /// File or place in Redis that `headstart keys new` made; it is replaced as a whole
    #[arg(value_name = "FILE|URL", value_parser = KeySource::parser())]
    pub keys: KeySource,

    /// File of the fleet, for keys in Redis
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    /// Do nothing before the period is over
    #[arg(long)]
    pub if_due: bool,
}

/// Show the epochs of a file, and none of its secrets
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysShowOptions {
    /// File or place in Redis that `headstart keys new` made
    #[arg(value_name = "FILE|URL", value_parser = KeySource::parser())]
    pub keys: KeySource,

    /// File of the fleet, for keys in Redis
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Write the ticket keys in the forms of nginx and HAProxy
///
/// They are to be written again after each rotation, and the server reloaded. The edges need
/// --ticket-peers, or the keys alone resume nothing.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(
    clap::ArgGroup::new("form").required(true).multiple(true).args(["nginx", "haproxy"])
))]
pub struct KeysExportOptions {
    /// File or place in Redis that `headstart keys new` made
    #[arg(value_name = "FILE|URL", value_parser = KeySource::parser())]
    pub keys: KeySource,

    /// File of the fleet, for keys in Redis
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    /// Directory to write the files for ssl_session_ticket_key to, and tickets.conf, which names
    /// them
    #[arg(long, value_name = "DIR")]
    pub nginx: Option<PathBuf>,

    /// File to write for tls-ticket-keys
    #[arg(long, value_name = "FILE")]
    pub haproxy: Option<PathBuf>,
}

fn period(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(period) if (PERIOD_MIN..=PERIOD_MAX).contains(&period) => Ok(period),
        Ok(_) => Err("not from 1h to 7days".into()),
        Err(error) => Err(format!("{error}; write for example 12h")),
    }
}
