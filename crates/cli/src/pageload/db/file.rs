//! Files of databases: read within bounds, replaced at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use headstart_pageload::db::limits::FILE_BYTES;
use headstart_pageload::db::{Database, FileError, read_unverified};

use crate::failure::Failure;

/// The bytes of a file, if it has no more than databases may have.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES {
        return Err(io::Error::other(FileError::TooLarge.to_string()));
    }
    Ok(bytes)
}

/// Ditto, with advice.
///
/// # Errors
/// It cannot be read, or is too large.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    bytes(path).map_err(|error| {
        Failure::usage(format!("cannot read {}: {error}", path.display()))
            .hint("name a file that `headstart pageload db build` made, and that you may read")
    })
}

/// A database, whoever made it.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(super) fn database(path: &Path) -> Result<Database, Failure> {
    read_unverified(&read(path)?).map_err(|error| {
        Failure::usage(format!("cannot read {}: {error}", path.display())).hint(error.hint())
    })
}

/// Puts `bytes` in the place of a file: whoever opens it has the old or the new one, whole.
///
/// # Errors
/// It cannot be written; the old one is still there then.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    put(path, bytes).map_err(|error| {
        Failure::usage(format!("cannot write {}: {error}", path.display()))
            .hint("its folder has to exist and let you write; there has to be room for two files")
    })
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = beside(path, &format!(".new.{}", std::process::id()));
    let written = write(&fresh, bytes).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // What cannot be put in place is not left about.
        let _ = fs::remove_file(&fresh);
    }
    written?;
    // So that the new name is there after a power cut, too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The same name with something behind it.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
