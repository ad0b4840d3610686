//! `headstart pageload`: what loading pages costs.

mod batch;
mod database;
mod db;
mod files;
mod model;
pub(crate) mod options;
mod plan;
pub(crate) mod record;
mod replay;
mod sharing;
mod show;
mod simulate;
mod text;
mod validate;

use std::process::ExitCode;

use crate::pageload::options::{PageloadCommand, PageloadOptions};
use headstart::base::failure::Failure;

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
