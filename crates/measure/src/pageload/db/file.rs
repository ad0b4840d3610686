//! Files of databases: read within bounds, replaced at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use headstart_pageload::db::limits::FILE_BYTES;
use headstart_pageload::db::update::{InUse, UpdateError, Wanted, judge_header};
use headstart_pageload::db::{Database, FileError, PublicKey, read_unverified};

use headstart::base::clock::wall_clock;
use headstart::base::failure::Failure;

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
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    bytes(path).map_err(|error| {
        Failure::usage(format!("cannot read {}: {error}", path.display()))
            .hint("name a file that `headstart pageload db build` made, and that you may read")
    })
}

/// A database, whoever made it.
pub(super) fn database(path: &Path) -> Result<Database, Failure> {
    read_unverified(&read(path)?).map_err(|error| {
        Failure::usage(format!("cannot read {}: {error}", path.display())).hint(error.hint())
    })
}

/// A database that `fetch` would take, or take for the one in use.
pub(super) fn judged(
    path: &Path,
    in_use: Option<InUse>,
    keys: &[PublicKey],
) -> Result<(Wanted, Database), Failure> {
    let bytes = read(path)?;
    judge_header(&bytes, in_use, keys, wall_clock())
        .and_then(|wanted| {
            let database = headstart_pageload::db::read(&bytes, keys).map_err(UpdateError::File)?;
            Ok((wanted, database))
        })
        .map_err(|error| {
            Failure::negative(format!("{} is not good: {error}", path.display())).hint(error.hint())
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
    let path = &place(path)?;
    // An unpredictable name, so that others who may write to the folder cannot plant a link.
    let fresh = beside(path, &format!(".new.{:016x}", rand::random::<u64>()));
    let written = write(&fresh, bytes, path).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // A file that cannot be put in place is deleted.
        let _ = fs::remove_file(&fresh);
    }
    written?;
    // So that the new name survives a power failure.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The file itself: where there is a link, it stays, and what it leads to is replaced.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?,
    };
    let place = fs::canonicalize(path)?;
    // The rename would replace a folder, a device or a pipe.
    match fs::metadata(&place)?.is_file() {
        true => Ok(place),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// A new file that those may read who may read the one that it will replace.
fn write(path: &Path, bytes: &[u8], old: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    if let Ok(old) = fs::metadata(old) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// The same name with something behind it.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_where_it_is_and_for_whom_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        replace(&file, b"first").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        replace(&link, b"second").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["file", "link"], "nothing is left about");
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::create_dir(at.join("folder")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
        symlink("socket", at.join("link")).unwrap();
        symlink("nowhere", at.join("dangling")).unwrap();
        let before = names(folder.path());
        for name in ["folder", "socket", "link", "dangling", "missing/file"] {
            let failure = replace(&at.join(name), b"bytes").unwrap_err();
            assert!(failure.message().starts_with("cannot write "), "{name}");
        }
        assert_eq!(names(folder.path()), before);
        drop(socket);
    }
}
