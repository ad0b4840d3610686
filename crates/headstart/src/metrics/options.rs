//! Options of both daemons about their metrics.

use std::net::SocketAddr;

use clap::Args;

use crate::base::names::NamePattern;

/// Where a daemon serves its metrics, and under which names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct MetricsOptions {
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics, and /healthz, /readyz
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Name under which clients may ask for metrics; may be given several times
    ///
    /// Addresses, localhost and names without a dot need not be given. Any other name could be
    /// somebody's who has it lead here, to read the metrics in a browser.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub metrics_host: Vec<NamePattern>,
}
