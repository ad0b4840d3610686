//! `headstart pageload`: what loading pages costs.

mod batch;
mod database;
mod db;
mod files;
mod model;
mod plan;
mod progress;
pub(crate) mod record;
pub(crate) mod recordings;
mod replay;
mod sharing;
mod show;
mod simulate;
pub(crate) mod simulated;
mod text;
mod validate;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::options::{PageloadCommand, PageloadOptions};

/// Does what is asked.
pub(crate) fn run(options: &PageloadOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        PageloadCommand::Sharing(options) => sharing::run(options),
        PageloadCommand::Db(options) => db::run(&options.command),
        PageloadCommand::Record(options) => record::run(options),
        PageloadCommand::Show(options) => show::run(options),
        PageloadCommand::Replay(options) => replay::run(options),
        PageloadCommand::Plan(options) => plan::run(options),
        PageloadCommand::Simulate(options) => simulate::run(options),
        PageloadCommand::Validate(options) => validate::run(options),
    }
}
