//! Cgroups, to which programs of sockets are attached.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::error::AttachError;
use super::pin_dir::PinDir;
use super::{at_path, mounts};
use crate::sys::{self, Hook, Target};

/// A cgroup of version 2.
pub(super) struct Cgroup {
    directory: File,
    /// Inode number of the directory.
    pub(super) id: u64,
}

impl Cgroup {
    pub(super) fn open(path: Option<PathBuf>) -> Result<Self, AttachError> {
        let path = path.or_else(mounts::cgroup2).ok_or(AttachError::NoCgroup2)?;
        if !mounts::is_in(&path, "cgroup2") {
            return Err(AttachError::NotCgroup2(path));
        }
        let directory = File::open(&path).map_err(at_path("opening", &path))?;
        let id = directory.metadata().map_err(at_path("looking at", &path))?.ino();
        Ok(Self { directory, id })
    }

    /// Returns the number of the cgroup to which a pinned link attaches; 0 once that is removed.
    pub(super) fn of_link(pins: &PinDir, name: &str) -> Result<Option<u64>, AttachError> {
        let path = pins.path(name);
        match sys::link_target(&path).map_err(at_path("opening", &path))? {
            Target::Cgroup(id) => Ok(Some(id)),
            Target::Interface(_) | Target::Other => Ok(None),
        }
    }

    /// Attaches a program, and pins the link.
    pub(super) fn link(
        &self,
        program: &OwnedFd,
        hook: Hook,
        name: &str,
        pins: &PinDir,
    ) -> Result<(), AttachError> {
        let directory: BorrowedFd<'_> = self.directory.as_fd();
        let link = sys::link_to_cgroup(program.as_fd(), directory, hook)
            .map_err(AttachError::system("attaching to the cgroup"))?;
        pins.pin(link.as_fd(), name)
    }
}
