//! The option of every command that opens or accepts connections.

use std::path::PathBuf;

use clap::Args;

/// Where events of connections are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct QlogOptions {
    /// Write the events of each connection to a file of its own in DIR, as qlog
    ///
    /// A file is written when its connection ends; docs/qlog.md has the events. DIR is made if it
    /// is not there, with mode 0700. With 10,000 files in it no more are written. They hold times,
    /// offsets and reasons, and neither names nor contents.
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
}
