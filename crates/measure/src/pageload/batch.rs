//! Results of reading many files, and the files that could not be read.

use std::path::PathBuf;
use std::process::ExitCode;

use super::files::Files;
use super::show::summary::Unreadable;
use crate::recordings::{self, Contents};
use headstart::base::failure::{Failure, USAGE};

/// Results of the files that could be read, and the others.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// One for each readable file, in the order of the files.
    pub(super) results: Vec<T>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl<T: Send> Batch<T> {
    /// Reads files, folders and the matches of patterns on all cores, and calls `map` with the
    /// index and contents of each file. If there are several, standard error names those that
    /// cannot be read.
    ///
    /// # Errors
    /// No file could be read.
    pub(super) fn read(
        names: &[PathBuf],
        map: impl Fn(usize, Contents) -> T + Sync,
    ) -> Result<Self, Failure> {
        let Files { files, failures } = Files::from_names(names);
        let are_several = files.len() + failures.len() > 1;
        let mut batch = Self { results: Vec::new(), unreadable: Vec::new() };
        let mut last = None;
        let not_there = failures.into_iter().map(|(name, failure)| (name, Err(failure)));
        for (file, read) in not_there.chain(recordings::read_all(&files, map)) {
            match read {
                Ok(result) => batch.results.push(result),
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
            Some(failure) if batch.results.is_empty() => Err(failure),
            _ => Ok(batch),
        }
    }
}

impl<T> Batch<T> {
    /// Returns success if every file could be read.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
    }
}
