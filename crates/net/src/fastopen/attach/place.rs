//! The directory of pins of one side, held against others who attach or detach at the same time.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::error::AttachError;
use super::mounts;
use crate::sys;

/// Others may pass through to what is theirs. Who could open a directory could lock it, and have everybody
/// wait who attaches.
const DIRECTORY_MODE: u32 = 0o711;

/// A directory of pins, locked while this lives.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the directories that are missing.
    pub(super) fn make(dir: &Path, side: &str) -> Result<Self, AttachError> {
        if !mounts::is_in(dir, "bpf") {
            return Err(AttachError::NoBpfFs(dir.to_owned()));
        }
        let inner = dir.join(side);
        for dir in [dir, inner.as_path()] {
            make_directory(dir).map_err(at("making the directory", dir))?;
        }
        Self::lock(inner)
    }

    /// Opens what is there; none if nothing is.
    pub(super) fn find(dir: &Path, side: &str) -> Result<Option<Self>, AttachError> {
        let inner = dir.join(side);
        match inner.try_exists() {
            Ok(true) => Self::lock(inner).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(at("looking at", &inner)(error)),
        }
    }

    fn lock(dir: PathBuf) -> Result<Self, AttachError> {
        let lock = File::open(&dir).and_then(|file| file.lock().map(|()| file));
        Ok(Self { _lock: lock.map_err(at("locking", &dir))?, dir })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(super) fn pin(&self, object: BorrowedFd<'_>, name: &str) -> Result<(), AttachError> {
        let path = self.path(name);
        sys::pin(object, &path).map_err(at("pinning", &path))
    }

    /// Gives a pin to a user, if one is named, and sets who may use it.
    pub(super) fn give(
        &self,
        name: &str,
        owner: Option<u32>,
        mode: u32,
    ) -> Result<(), AttachError> {
        let path = self.path(name);
        if owner.is_some() {
            chown(&path, owner, None).map_err(|source| AttachError::System {
                what: format!("giving {} to another user (this takes CAP_CHOWN)", path.display()),
                source,
            })?;
        }
        match fs::set_permissions(&path, Permissions::from_mode(mode)) {
            // It was given away before, and this process is not root.
            Err(error) if owner.is_none() && error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(())
            }
            other => other.map_err(at("setting the mode of", &path)),
        }
    }

    /// Removes a pin; whether it was there.
    pub(super) fn remove(&self, name: &str) -> Result<bool, AttachError> {
        let path = self.path(name);
        // Not of a map or a program; and a link may have ended with what it was attached to.
        let _ = sys::detach_link(&path);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at("removing", &path)(error)),
        }
    }

    /// The names of all pins.
    pub(super) fn names(&self) -> Result<Vec<String>, AttachError> {
        let entries = fs::read_dir(&self.dir).map_err(at("reading", &self.dir))?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes all pins, so that what only they kept ends.
    pub(super) fn clear(&self) -> Result<(), AttachError> {
        self.names()?.iter().try_for_each(|name| self.remove(name).map(drop))
    }

    /// Removes all pins, and the directories if they are empty then.
    pub(super) fn dissolve(self) -> Result<(), AttachError> {
        self.clear()?;
        match fs::remove_dir(&self.dir) {
            Ok(()) => {}
            // Somebody else's; or the one above is not ours to write.
            Err(error) if is_in_use(&error) => {}
            Err(error) => return Err(at("removing", &self.dir)(error)),
        }
        // Not if the other side is there, or if it was made for us by root.
        let _ = self.dir.parent().map(fs::remove_dir);
        Ok(())
    }
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotFound
    )
}

fn make_directory(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(DIRECTORY_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn at(what: &str, path: &Path) -> impl FnOnce(io::Error) -> AttachError + use<> {
    AttachError::system(format!("{what} {}", path.display()))
}
