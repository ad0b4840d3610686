//! `headstart pageload db`: databases of what pages load.

mod build;
mod export;
mod fetch;
mod file;
mod keys;
pub(crate) mod options;
mod proven;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headstart_pageload::db::Database;

pub(super) use show::date;

use crate::pageload::db::options::DbCommand;
use headstart::base::failure::Failure;

/// Does what is asked.
pub(super) fn run(command: &DbCommand) -> Result<ExitCode, Failure> {
    match command {
        DbCommand::Keygen(options) => keys::generate(&options.file)?,
        DbCommand::Build(options) => return build::run(options),
        DbCommand::Show(options) => return show::run(options),
        DbCommand::Check(options) => show::check(options)?,
        DbCommand::Export(options) => export::run(options)?,
        DbCommand::Fetch(options) => return fetch::run(options),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a database that one of the keys in these files signed.
pub(super) fn signed(path: &Path, keys: &[PathBuf]) -> Result<Database, Failure> {
    Ok(file::judged(path, None, &keys::public(keys)?)?.1)
}
