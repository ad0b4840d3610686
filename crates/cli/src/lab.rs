//! `headstart lab`: openings measured over emulated networks on this machine.

pub(crate) mod calibrate;
pub(crate) mod peer;
mod report;
#[allow(dead_code)] // placeholder for merge
mod stats;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::logging;
use crate::options::{LabCommand, LabOptions};

/// Does what is asked. Call it while the process has one thread: it enters namespaces.
pub(crate) fn run(options: &LabOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        LabCommand::Report(options) => report::run(options),
        LabCommand::Calibrate(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            calibrate::run(options)
        }
        LabCommand::Peer(options) => peer::run(options),
    }
}
