//! Options of `headstart lab`.

use clap::{Args, Subcommand};

use super::LabReportOptions;
use crate::lab::calibrate::CalibrateOptions;
use crate::lab::peer::PeerOptions;

/// Measure over emulated networks on this machine
#[derive(Debug, Clone, Args)]
#[command(disable_help_subcommand = true)]
pub struct LabOptions {
    /// What to do
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What `headstart lab` can do.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum LabCommand {
    Calibrate(CalibrateOptions),
    Report(LabReportOptions),
    #[command(hide = true)]
    Peer(PeerOptions),
}
