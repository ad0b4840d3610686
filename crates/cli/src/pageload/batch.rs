//! Many files: which, what came of each, and which could not be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::recordings::{self, Contents};
use super::show::summary::Unreadable;
use crate::failure::{Failure, USAGE};

/// Ends of the names of files that are taken out of a folder.
const ENDS: [&str; 6] = [".har", ".har.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz"];

/// What came of files.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// In the order of the files.
    pub(super) of: Vec<T>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl<T: Send> Batch<T> {
    /// Reads files and folders on all cores. Of several files, those that cannot be read are named on standard error.
    ///
    /// # Errors
    /// None can be read.
    pub(super) fn read(
        files: &[PathBuf],
        of: impl Fn(Contents) -> T + Sync,
    ) -> Result<Self, Failure> {
        let files = expanded(files)?;
        let mut batch = Self { of: Vec::new(), unreadable: Vec::new() };
        let mut last = None;
        for (file, read) in recordings::read_all(&files, of) {
            match read {
                Ok(of) => batch.of.push(of),
                Err(failure) => {
                    if files.len() > 1 {
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

/// With the files of each folder in its place, by name.
///
/// # Errors
/// A folder cannot be read, or has no recordings.
pub(super) fn expanded(files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::with_capacity(files.len());
    for path in files {
        if path != Path::new("-") && path.is_dir() {
            all.extend(files_of(path)?);
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage(format!("cannot read {}: {error}", folder.display()))
            .hint("name a folder that you may read, or the files in it")
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        if name.is_some_and(|name| ENDS.iter().any(|end| name.ends_with(end))) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Failure::usage(format!("there is no recording in {}", folder.display()))
            .hint("recordings are files that end in .har, .json or .jsonl, also with .gz"));
    }
    files.sort();
    Ok(files)
}
