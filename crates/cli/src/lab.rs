//! `headstart lab`: openings measured over emulated networks on this machine.

mod bars;
mod builtin;
mod capture;
mod cell;
mod environment;
mod experiment;
mod interrupt;
mod list;
mod plan;
mod process;
mod progress;
mod results;
mod run;
#[allow(dead_code)] // the report uses the rest
mod stats;
mod summary;
mod topology;
mod trial;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::logging;
use crate::options::{LabCommand, LabOptions};

/// Does what is asked. Call it while the process has one thread: it enters namespaces.
pub(crate) fn run(options: &LabOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        LabCommand::List(options) => list::run(options),
        LabCommand::Run(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            run::run(options)
        }
    }
}
