//! Options of both daemons about their metrics and status page.

use std::net::SocketAddr;

use clap::{ArgAction, Args};

use crate::base::names::NamePattern;
use crate::base::value::listen_address;

/// Where a daemon serves its metrics and its status page, and under which names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct MetricsOptions {
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics, and /healthz, /readyz
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub metrics: Option<SocketAddr>,

    /// Name under which clients may ask for metrics and status; may be given several times
    ///
    /// Addresses, localhost and names without a dot need not be given. Any other name could be
    /// somebody's who has it lead here, to read the metrics in a browser.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub metrics_host: Vec<NamePattern>,

    /// Serve a status page at http://ADDR:PORT/, and the same as JSON at /status.json
    ///
    /// It shows openings, round trips saved, reasons for fallback and the timelines of the last
    /// connections (docs/status.md). It has no password: on loopback all users of this machine can
    /// read it.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub status: Option<SocketAddr>,

    /// Show on the status page where recent connections went and came from
    ///
    /// Whoever reaches the page can then see which hosts each user of an agent has visited.
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", default_value = "false",
          action = ArgAction::Set)]
    pub status_names: bool,
}
