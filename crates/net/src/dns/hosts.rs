//! The hosts file, read again when it changes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hickory_resolver::Hosts;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::proto::op::Query;

/// The entries of a hosts file as it is now.
pub(super) struct HostsFile {
    /// None: no file, whose only name is localhost.
    path: Option<PathBuf>,
    read: Mutex<(Option<Stamp>, Hosts)>,
}

/// Inode, size and time of modification, in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl HostsFile {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// Returns the answer to `query`; one call of stat(2) if the file has not changed.
    pub(super) fn look_up(&self, query: &Query) -> Option<Lookup> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.stamp();
        if read.0 != stamp {
            *read = (stamp, self.load());
        }
        read.1.lookup_static_host(query)
    }

    fn stamp(&self) -> Option<Stamp> {
        let file = fs::metadata(self.path.as_ref()?).ok()?;
        Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    }

    /// Reads the file; lines that are malformed, or a file that cannot be read, have no entries.
    fn load(&self) -> Hosts {
        let mut hosts = Hosts::default();
        if let Some(file) = self.path.as_ref().and_then(|path| File::open(path).ok()) {
            let _ = hosts.read_hosts_conf(file);
        }
        hosts
    }
}
