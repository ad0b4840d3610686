//! `headstart lab`: openings measured over emulated networks on this machine.

mod bars;
mod bench;
pub(crate) mod browser;
mod builtin;
pub(crate) mod calibrate;
mod capture;
mod cell;
mod environment;
pub(crate) mod experiment;
mod growth;
mod list;
pub(crate) mod listening;
pub(crate) mod openings;
pub(crate) mod options;
pub(crate) mod page;
pub(crate) mod peer;
mod plan;
mod privacy;
pub(crate) mod process;
mod raw;
pub(crate) mod report;
mod results;
mod run;
pub(crate) mod runner;
pub(crate) mod site;
mod site_options;
mod soak;
pub(crate) mod summary;
mod topology;
mod tor;
pub(crate) mod trial;
mod workload;

use std::process::ExitCode;

use headstart::base::failure::Failure;
use headstart::base::logging;

use crate::lab::options::{LabCommand, LabOptions};
pub(crate) use plan::RunSize;
pub(crate) use topology::round_trip;

/// Does what is asked. Call it while the process has one thread: it enters namespaces.
pub(crate) fn run(options: &LabOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        LabCommand::List(options) => list::run(options),
        LabCommand::Run(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            run::run(options)
        }
        LabCommand::Report(options) => report::run(options),
        LabCommand::Calibrate(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            calibrate::run(options)
        }
        LabCommand::Site(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            site::run(options)
        }
        LabCommand::Peer(options) => peer::run(options),
    }
}
