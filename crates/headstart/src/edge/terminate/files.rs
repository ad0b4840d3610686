//! Files that are reread when they change.
//!
//! It polls them every few seconds instead of using inotify (the notify crate). Certificates are
//! often symbolic links: certbot's point into another directory, Kubernetes's to a directory that
//! is itself a link and is switched as a whole. A watch on the file notices neither, network file
//! systems report nothing anyway, and a few calls of stat(2) cost nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval at which files are checked. Certificates are renewed days before they expire; this is
/// short for an operator who waits for it.
pub(in crate::edge) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Files, and their state at the last check.
#[derive(Debug, Default)]
pub(in crate::edge) struct Watch(Vec<(PathBuf, Option<Stamp>)>);

/// Attributes that change when a file is written, replaced, or gets other permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn from_metadata(file: &Metadata) -> Self {
        Self {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl Watch {
    /// Notes the state of `files`. Call it before they are read: a change during the read is then
    /// noticed at the next check.
    pub(in crate::edge) fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(
            files
                .into_iter()
                .map(|path: PathBuf| {
                    let stamp = stamp(&path);
                    (path, stamp)
                })
                .collect(),
        )
    }

    /// Returns true if any of the files differs from the last call.
    pub(in crate::edge) fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, before) in &mut self.0 {
            let now = stamp(path);
            changed |= *before != now;
            *before = now;
        }
        changed
    }
}

/// Last error of reading files, reported once.
///
/// They are reread at each check until that succeeds: the process may have had no descriptor left,
/// or a file may have been half written, and then the file itself does not change again.
#[derive(Debug, Default)]
pub(in crate::edge) struct Complaint(Option<String>);

impl Complaint {
    /// Returns true if the files have to be reread.
    pub(in crate::edge) const fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Notes an error; returns true if it is a new one.
    pub(in crate::edge) fn open(&mut self, message: &str) -> bool {
        let is_news = self.0.as_deref() != Some(message);
        self.0 = Some(message.to_owned());
        is_news
    }

    /// Notes that the files were read.
    pub(in crate::edge) fn close(&mut self) {
        self.0 = None;
    }
}

/// Returns the stamp of a link's target; `None` if there is no file.
fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().as_ref().map(Stamp::from_metadata)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_mistake_is_told_once_and_looked_at_until_it_is_mended() {
        let mut complaint = Complaint::default();
        assert!(!complaint.is_open());
        assert!(complaint.open("one") && !complaint.open("one"));
        assert!(complaint.is_open());
        assert!(complaint.open("two") && complaint.open("one"));
        complaint.close();
        assert!(!complaint.is_open() && complaint.open("one"));
    }

    #[test]
    fn what_is_written_exchanged_linked_or_made_readable_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "1").unwrap();
        symlink(&file, &link).unwrap();
        let mut watch = Watch::new([link.clone()]);
        assert!(!watch.changed());
        fs::write(&file, "22").unwrap();
        assert!(watch.changed() && !watch.changed());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(watch.changed() && !watch.changed());
        let other = dir.path().join("other");
        fs::write(&other, "22").unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(watch.changed() && !watch.changed());
        fs::remove_file(&file).unwrap();
        assert!(watch.changed() && !watch.changed());
        fs::write(&file, "22").unwrap();
        assert!(watch.changed());
        let (turned, elsewhere) = (dir.path().join("turned"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "22").unwrap();
        symlink(&elsewhere, &turned).unwrap();
        fs::rename(&turned, &link).unwrap();
        assert!(watch.changed() && !watch.changed());
    }
}
