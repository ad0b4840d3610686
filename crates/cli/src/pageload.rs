//! `headstart pageload`: what loading pages costs.

mod db;
mod progress;
pub(crate) mod recordings;
mod replay;
mod sharing;
mod show;
mod text;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::options::{PageloadCommand, PageloadOptions};

/// Does what is asked.
pub(crate) fn run(options: &PageloadOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        PageloadCommand::Sharing(options) => sharing::run(options),
        PageloadCommand::Db(options) => db::run(&options.command),
        PageloadCommand::Show(options) => show::run(options),
        PageloadCommand::Replay(options) => replay::run(options),
    }
}
