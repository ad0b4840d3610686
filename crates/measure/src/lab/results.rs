//! The folder of a run: written beside its place, and put there when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use super::raw;
use super::trial::Row;
use crate::folder;
use headstart::base::failure::Failure;

const SAMPLES: &str = "samples.csv";
const SUMMARY: &str = "summary.json";
const BARS: &str = "bars.json";
const ENVIRONMENT: &str = "environment.json";
const EXPERIMENT: &str = "experiment.toml";
const CAPTURES: &str = "captures";

/// Loads of pages, a line of JSON each: the times of every resource.
const LOADS: &str = "loads.jsonl";

/// Keys and configurations of programs; removed before the results are put in place.
const WORK: &str = "work";

/// Held by the run that writes, and let go by the kernel however that ends; it also marks a folder
/// as ours.
const LOCK: &str = "lock";

/// Extension of packet captures.
const CAPTURE: &str = "pcapng";

/// A results folder that is being written.
#[derive(Debug)]
pub(crate) struct Folder {
    place: PathBuf,
    partial: PathBuf,
    samples: csv::Writer<File>,
    loads: Option<BufWriter<File>>,
    rows: u64,
    finished: bool,
    _lock: File,
}

impl Folder {
    /// Begins the results of `place`, which must not exist yet.
    pub(crate) fn create(place: &Path) -> Result<Self, Failure> {
        folder::check_new(place)?;
        let partial = partial_of(place);
        let lock = lock(&partial)?;
        let samples = fs::create_dir(partial.join(WORK))
            .and_then(|()| File::create(partial.join(SAMPLES)))
            .map_err(|error| unwritable(&partial, &error))?;
        let samples = csv::Writer::from_writer(samples);
        let place = place.to_owned();
        let loads = None;
        Ok(Self { place, partial, samples, loads, rows: 0, finished: false, _lock: lock })
    }

    /// Directory for keys and configurations of programs, as an absolute path.
    pub(crate) fn work(&self) -> Result<PathBuf, Failure> {
        self.partial.join(WORK).canonicalize().map_err(|error| self.failed(&error))
    }

    /// Directory for packet captures.
    pub(crate) fn captures(&self) -> Result<PathBuf, Failure> {
        self.subfolder(CAPTURES)
    }

    /// A folder in this one.
    pub(crate) fn subfolder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.partial.join(name);
        fs::create_dir_all(&folder).map_err(|error| self.failed(&error))?;
        Ok(folder)
    }

    /// Writes a further file.
    pub(crate) fn add_file(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        write_json(&self.partial.join(name), value).map_err(|error| self.failed(&error))
    }

    /// Writes a further table, compressed.
    pub(crate) fn add_table(&self, name: &str, rows: &[impl Serialize]) -> Result<(), Failure> {
        self.write_table(&self.partial.join(name), rows).map_err(|error| self.failed(&error))
    }

    fn write_table(&self, file: &Path, rows: &[impl Serialize]) -> io::Result<()> {
        let mut table = csv::Writer::from_path(file).map_err(io::Error::other)?;
        rows.iter().try_for_each(|row| table.serialize(row)).map_err(io::Error::other)?;
        table.flush()?;
        raw::compress(file)
    }

    /// Writes what belongs to the captures of a stage beside them.
    pub(crate) fn add_to_captures(
        &self,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), Failure> {
        let file = self.captures()?.join(name);
        write_json(&file, value).map_err(|error| self.failed(&error))
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn add(&mut self, row: &Row) -> Result<(), Failure> {
        self.rows += 1;
        let written = self.samples.serialize(row);
        written.map_err(|error| self.failed(&io::Error::other(error)))
    }

    /// Adds what is known of one load of a page beside its sample.
    pub(crate) fn add_load(&mut self, load: &impl Serialize) -> Result<(), Failure> {
        self.write_load(load).map_err(|error| self.failed(&error))
    }

    fn write_load(&mut self, load: &impl Serialize) -> io::Result<()> {
        let file = match &mut self.loads {
            Some(file) => file,
            none => none.insert(BufWriter::new(File::create(self.partial.join(LOADS))?)),
        };
        serde_json::to_writer(&mut *file, load)?;
        file.write_all(b"\n")
    }

    /// Makes sure that the samples so far are in the file.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.samples.flush();
        let flushed = flushed.and_then(|()| self.loads.as_mut().map_or(Ok(()), Write::flush));
        flushed.map_err(|error| self.failed(&error))
    }

    /// Writes the rest and puts the folder in its place.
    pub(crate) fn finish(
        mut self,
        summary: &impl Serialize,
        bars: &impl Serialize,
        environment: &impl Serialize,
        experiment: &str,
    ) -> Result<PathBuf, Failure> {
        self.flush()?;
        write_json(&self.partial.join(SUMMARY), summary)
            .and_then(|()| write_json(&self.partial.join(BARS), bars))
            .and_then(|()| write_json(&self.partial.join(ENVIRONMENT), environment))
            .and_then(|()| fs::write(self.partial.join(EXPERIMENT), experiment))
            .and_then(|()| self.put_in_place())
            .map_err(|error| self.failed(&error))?;
        self.finished = true;
        Ok(self.place.clone())
    }

    fn put_in_place(&self) -> io::Result<()> {
        raw::compress(&self.partial.join(SAMPLES))?;
        raw::compress_all(&self.partial.join(CAPTURES), CAPTURE)?;
        fs::remove_dir_all(self.partial.join(WORK))?;
        fs::remove_file(self.partial.join(LOCK))?;
        // Files must reach the disk before the rename, or a crash could leave empty ones.
        for entry in fs::read_dir(&self.partial)? {
            File::open(entry?.path())?.sync_all()?;
        }
        fs::rename(&self.partial, &self.place)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::usage(format!("cannot write {}: {error}", self.partial.display()))
            .hint("is the disk full?")
    }
}

/// A run that did not come to its end leaves its samples, under a name that no report takes, and no
/// keys.
impl Drop for Folder {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let _ = self.samples.flush();
        let _ = fs::remove_dir_all(self.partial.join(WORK));
        if self.rows == 0 {
            let _ = fs::remove_dir_all(&self.partial);
        } else {
            let (partial, rows) = (self.partial.display(), self.rows);
            eprintln!(
                "note: {partial} keeps {rows} samples of a run that did not end; it is no result"
            );
        }
    }
}

/// A place for the results of `name` that is free: lab-results/NAME-DATE.
pub(crate) fn default_place(name: &str) -> PathBuf {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date: String = date.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let mut places = (1..).map(|number: u32| {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        Path::new("lab-results").join(format!("{name}-{date}{again}"))
    });
    places
        .find(|place: &PathBuf| !place.exists() && !partial_of(place).exists())
        .unwrap_or_default()
}

fn partial_of(place: &Path) -> PathBuf {
    // Without the slash at its end, as shells complete names.
    let mut name = place.components().collect::<PathBuf>().into_os_string();
    name.push(".partial");
    name.into()
}

/// Makes a folder this run's own, and removes what a killed one has left in it.
fn lock(partial: &Path) -> Result<File, Failure> {
    folder::make(partial, "--out")?;
    let left_behind = partial.join(LOCK).exists();
    let empty = fs::read_dir(partial)
        .map(|mut entries| entries.next().is_none())
        .map_err(|error| unwritable(partial, &error))?;
    if !left_behind && !empty {
        return Err(Failure::usage(format!("{} holds other files", partial.display()))
            .hint("name another folder with --out"));
    }
    let mut options = File::options();
    let lock = options.create(true).truncate(false).write(true).open(partial.join(LOCK));
    let lock = lock.map_err(|error| unwritable(partial, &error))?;
    lock.try_lock().map_err(|_| busy(partial))?;
    if left_behind {
        eprintln!("note: removing what a run that did not end left in {}", partial.display());
        clear(partial).map_err(|error| unwritable(partial, &error))?;
    }
    Ok(lock)
}

fn unwritable(partial: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", partial.display()))
        .hint("name a folder that can be written with --out")
}

fn busy(partial: &Path) -> Failure {
    Failure::usage(format!("another run writes {}", partial.display()))
        .hint("wait for its end, or name another folder with --out")
}

/// Removes the remains of a killed run.
fn clear(partial: &Path) -> io::Result<()> {
    for entry in fs::read_dir(partial)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    File::create(path)?.write_all(&text)
}

#[cfg(test)]
mod tests;
