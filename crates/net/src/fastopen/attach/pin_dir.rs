//! The directory of one side's pins, locked against concurrent attaching and detaching.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::fstatfs;

use super::error::AttachError;
use super::{at_path, mounts};
use crate::fastopen::Unavailable;
use crate::fastopen::server::check_owner;
use crate::sys;

/// Mode of directories: other users may pass through to their own pins, but not open a directory.
/// Anyone who could open it could lock it, and block every attach.
const DIRECTORY_MODE: u32 = 0o711;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS: u64 = 0xcafe_4a11;

/// Attempts to make a directory that is being removed. Each time another process completes its own
/// operation, so more than a few attempts mean a conflict.
const TRIES: usize = 16;

/// A directory of pins, locked while this lives.
#[derive(Debug)]
pub(super) struct PinDir {
    dir: PathBuf,
    _lock: File,
}

impl PinDir {
    /// Opens the directory, and makes the missing directories.
    pub(super) fn make(dir: &Path, side: &str) -> Result<Self, AttachError> {
        if !mounts::is_in(dir, "bpf") {
            return Err(AttachError::NoBpfFs(dir.to_owned()));
        }
        let inner = dir.join(side);
        for _ in 0..TRIES {
            make_directory(dir).map_err(at_path("making the directory", dir))?;
            match make_directory(&inner) {
                // Another process, detaching, has just removed the parent.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                made => made.map_err(at_path("making the directory", &inner))?,
            }
            if let Some(pins) = Self::lock(&inner)? {
                check_owner(dir, side)?;
                return Ok(pins);
            }
        }
        Err(at_path("making the directory", &inner)(io::ErrorKind::ResourceBusy.into()))
    }

    /// Opens the directory if it exists.
    pub(super) fn find(dir: &Path, side: &str) -> Result<Option<Self>, AttachError> {
        // Anyone who may write to its parent could have replaced it with a link.
        if dir.is_symlink() {
            return Err(Unavailable::Foreign(dir.to_owned()).into());
        }
        Self::lock(&dir.join(side))
    }

    /// Locks a directory; `None` if it does not exist, or is removed while this waits for the lock.
    fn lock(dir: &Path) -> Result<Option<Self>, AttachError> {
        let directory = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = File::options().read(true).custom_flags(directory).open(dir);
        let lock = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Unavailable::Foreign(dir.to_owned()).into());
            }
            opened => opened.map_err(at_path("opening", dir))?,
        };
        // Everything in it may be removed, so it must not be an ordinary directory.
        let system = fstatfs(&lock).map_err(|error| at_path("inspecting", dir)(error.into()))?;
        if u64::try_from(system.f_type) != Ok(BPF_FS) {
            return Err(AttachError::NoBpfFs(dir.to_owned()));
        }
        lock.lock().map_err(at_path("locking", dir))?;
        let locked = lock.metadata().map_err(at_path("inspecting", dir))?;
        let is_there = fs::symlink_metadata(dir)
            .is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino()));
        Ok(is_there.then(|| Self { dir: dir.to_owned(), _lock: lock }))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(super) fn pin(&self, object: BorrowedFd<'_>, name: &str) -> Result<(), AttachError> {
        let path = self.path(name);
        sys::pin(object, &path).map_err(at_path("pinning", &path))
    }

    /// Changes the owner of a pin, if one is named, and sets its mode.
    pub(super) fn give(
        &self,
        name: &str,
        owner: Option<u32>,
        mode: u32,
    ) -> Result<(), AttachError> {
        let path = self.path(name);
        if owner.is_some() {
            chown(&path, owner, None).map_err(|source| AttachError::System {
                what: format!("changing the owner of {} (needs CAP_CHOWN)", path.display()),
                source,
            })?;
        }
        match fs::set_permissions(&path, Permissions::from_mode(mode)) {
            // An earlier call changed the owner, and this process is not root.
            Err(error) if owner.is_none() && error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(())
            }
            other => other.map_err(at_path("setting the mode of", &path)),
        }
    }

    /// Removes a pin, which detaches its object; returns true if the pin existed.
    pub(super) fn remove(&self, name: &str) -> Result<bool, AttachError> {
        let path = self.path(name);
        // Fails for a map or a program, and for a link that ended with its interface or cgroup.
        let _ = sys::detach_link(&path);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at_path("removing", &path)(error)),
        }
    }

    /// Returns the names of all pins.
    pub(super) fn names(&self) -> Result<Vec<String>, AttachError> {
        let entries = fs::read_dir(&self.dir).map_err(at_path("reading", &self.dir))?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes all pins, so that objects kept only by them end.
    pub(super) fn clear(&self) -> Result<(), AttachError> {
        self.names()?.iter().try_for_each(|name| self.remove(name).map(drop))
    }

    /// Removes all pins, and then the directories if they are empty.
    pub(super) fn dissolve(self) -> Result<(), AttachError> {
        self.clear()?;
        match fs::remove_dir(&self.dir) {
            Ok(()) => {}
            // Another process uses it, or its parent is not ours to write.
            Err(error) if is_in_use(&error) => {}
            Err(error) => return Err(at_path("removing", &self.dir)(error)),
        }
        // Fails if the other side has pins, or if root made it for us.
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
