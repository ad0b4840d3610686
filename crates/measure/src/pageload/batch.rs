//! Many files: what came of each, and which could not be read.

use std::path::PathBuf;
use std::process::ExitCode;

use super::files::Files;
use super::show::summary::Unreadable;
use crate::recordings::{self, Contents};
use headstart::base::failure::{Failure, USAGE};

/// Results of files.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// In the order of the files.
    pub(super) of: Vec<T>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl<T: Send> Batch<T> {
    /// Reads files, folders and what matches patterns on all cores. Of several, those that cannot
    /// be read are named on standard error. `of` is told the place of a file among them.
    ///
    /// # Errors
    /// None can be read.
    pub(super) fn read(
        names: &[PathBuf],
        of: impl Fn(usize, Contents) -> T + Sync,
    ) -> Result<Self, Failure> {
        let Files { files, failures } = Files::from_names(names);
        let are_several = files.len() + failures.len() > 1;
        let mut batch = Self { of: Vec::new(), unreadable: Vec::new() };
        let mut last = None;
        let not_there = failures.into_iter().map(|(name, failure)| (name, Err(failure)));
        for (file, read) in not_there.chain(recordings::read_all(&files, of)) {
            match read {
                Ok(of) => batch.of.push(of),
                Err(failure) => {
                    if are_several {
                        eprintln!("warning: {}", failure.message());
                    }
                    let error = failure.message().to_owned();
                    batch.unreadable.push(Unreadable { file, error });
                    last = Some(failure);
                }
            }
        }
        match last {
            Some(failure) if batch.of.is_empty() => Err(failure),
            _ => Ok(batch),
        }
    }
}

impl<T> Batch<T> {
    /// The exit code of a command that has done what it could.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
    }
}
