//! Files that are meant by names of files, folders and patterns.

use std::path::{Path, PathBuf};
use std::{fs, io};

use glob::MatchOptions;

use crate::recordings::name_of;
use headstart::base::failure::Failure;

/// Ends of the names of files that are taken out of a folder.
const ENDS: [&str; 6] = [".har", ".har.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz"];

/// As a shell has it: names that begin with a dot are hidden.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Files named by the user.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// In the order in which they were named; those of a folder or a pattern by their names.
    pub(super) files: Vec<PathBuf>,
    /// Folders and patterns that give no files.
    pub(super) failures: Vec<(String, Failure)>,
}

impl Files {
    /// Files as they are; of a folder those that have the name of a recording; and what matches a
    /// pattern (`*`, `?`, `[a-z]`, `**` for any folders) that a shell has left as it is, because it
    /// was quoted or would have been too long.
    pub(super) fn from_names(names: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for path in names {
            match pattern(path) {
                Some(pattern) => all.add_matching(pattern),
                None => all.add(path.clone()),
            }
        }
        all
    }

    fn add(&mut self, path: PathBuf) {
        if path == Path::new("-") || !path.is_dir() {
            self.files.push(path);
            return;
        }
        match files_of(&path) {
            Ok(files) => self.files.extend(files),
            Err(failure) => self.failures.push((name_of(&path), failure)),
        }
    }

    fn add_matching(&mut self, pattern: &str) {
        let name = name_of(Path::new(pattern));
        let found = match glob::glob_with(pattern, MATCHING) {
            Ok(found) => found,
            Err(error) => {
                let failure = Failure::usage(format!("{name} is no pattern: {}", error.msg))
                    .hint("name the files themselves");
                return self.failures.push((name, failure));
            }
        };
        let mut paths = Vec::new();
        for path in found {
            match path {
                Ok(path) if is_other(&path) => {}
                Ok(path) => paths.push(path),
                Err(error) => {
                    let (path, why) = (name_of(error.path()), error.error());
                    let failure = Failure::usage(format!("cannot read {path}: {why}"))
                        .hint("leave out folders that you may not read");
                    self.failures.push((name.clone(), failure));
                }
            }
        }
        if paths.is_empty() {
            let failure = Failure::usage(format!("no file matches {name}"));
            self.failures.push((name, failure.hint("name files, or folders")));
        }
        paths.into_iter().for_each(|path| self.add(path));
    }
}

/// A name that is of no file, and of a pattern.
fn pattern(path: &Path) -> Option<&str> {
    let text = path.to_str().filter(|text| text.contains(['*', '?', '[']))?;
    path.symlink_metadata().is_err().then_some(text)
}

/// A pipe or a device, which may never end. What cannot be asked, such as a link to nowhere, is
/// named when it is read.
fn is_other(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
}

/// Folders within are left out.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = name_of(folder);
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| {
        Failure::usage(format!("cannot read {name}: {error}"))
            .hint("name a folder that you may read, or the files in it")
    })?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| is_recording(path) && !path.is_dir() && !is_other(path));
    if files.is_empty() {
        return Err(Failure::usage(format!("there is no recording in {name}"))
            .hint("recordings are files that end in .har, .json or .jsonl, also with .gz"));
    }
    files.sort();
    Ok(files)
}

fn is_recording(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    name.is_some_and(|name| ENDS.iter().any(|end| name.ends_with(end)))
}
