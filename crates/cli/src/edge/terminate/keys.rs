//! The key ring of session tickets: from a file, or made and renewed here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headstart_proto::UnixSeconds;
use headstart_tls::SharedRing;
use headstart_tls::keyring::{KeyRing, PERIOD};

use super::files::{Complaint, Watch};
use crate::failure::Failure;
use crate::metrics::{self, Reloaded};

/// How far clocks that are right may be off.
const CLOCK_ERROR: Duration = Duration::from_secs(60 * 60);

/// Where the ring comes from, and how it is kept up to date.
#[derive(Debug)]
pub(super) enum Keys {
    /// Of this process alone.
    Own,
    /// Of a file that others renew.
    File { path: PathBuf, watch: Watch, complaint: Complaint, overdue: bool },
}

impl Keys {
    /// The ring to begin with, of the file at `path` if there is one.
    ///
    /// # Errors
    /// A file that is no key ring or that others may read; no randomness.
    pub(super) fn open(path: Option<PathBuf>) -> Result<(Self, KeyRing), Failure> {
        match path {
            None => Ok((Self::Own, own()?)),
            Some(path) => {
                let watch = Watch::new([path.clone()]);
                let ring = load(&path)?;
                let complaint = Complaint::default();
                Ok((Self::File { path, watch, complaint, overdue: false }, ring))
            }
        }
    }

    /// The file, if the ring is from one.
    pub(super) const fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Own => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// Puts a newer ring into `shared` if there is one; a file with a mistake leaves the old one.
    pub(super) fn look(&mut self, shared: &SharedRing) {
        let now = now();
        let due = shared.current().is_due(now);
        match self {
            Self::Own if due || is_from_the_future(&shared.current(), now) => {
                take(shared, rotated(&shared.current(), now), &mut Complaint::default());
            }
            Self::Own => {}
            Self::File { path, watch, complaint, overdue } => {
                if watch.changed() || complaint.is_open() {
                    take(shared, load(path), complaint);
                } else if due && !*overdue {
                    let file = path.display();
                    tracing::warn!(%file, "the keys are old: `headstart keys rotate` renews them");
                }
                *overdue = shared.current().is_due(now);
            }
        }
    }
}

/// Whether `ring` was made before the clock was set back: it would not be due for long, and what is promised of its
/// life would not hold.
fn is_from_the_future(ring: &KeyRing, now: UnixSeconds) -> bool {
    ring.rotation_due() > now + ring.period + CLOCK_ERROR
}

fn take(shared: &SharedRing, ring: Result<KeyRing, Failure>, complaint: &mut Complaint) {
    match ring {
        Ok(ring) => {
            shared.replace(ring);
            complaint.close();
            metrics::reloaded(Reloaded::Keys, true);
            tracing::info!("new keys for session tickets");
        }
        Err(failure) if complaint.open(failure.message()) => {
            metrics::reloaded(Reloaded::Keys, false);
            tracing::error!(hint = failure.advice(), "keys kept: {}", failure.message());
        }
        Err(_) => {}
    }
}

fn own() -> Result<KeyRing, Failure> {
    KeyRing::generate(now(), PERIOD).map_err(|error| unmade(&error))
}

fn rotated(ring: &Arc<KeyRing>, now: UnixSeconds) -> Result<KeyRing, Failure> {
    ring.rotated(now).map_err(|error| unmade(&error))
}

fn unmade(error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("cannot make keys for session tickets: {error}"))
}

fn load(path: &Path) -> Result<KeyRing, Failure> {
    KeyRing::load(path).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
}

/// The wall clock; a clock before 1970 shows its start.
pub(super) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Some keys, their file, and the ids of their current epochs as a look finds them.
    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        own().unwrap().store(&path).unwrap();
        (dir, path)
    }

    fn ids(shared: &SharedRing) -> Vec<u8> {
        shared.current().epochs().map(|epoch| epoch.id).collect()
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_kept_when_it_is_wrong() {
        let (_dir, path) = file();
        let (mut keys, ring) = Keys::open(Some(path.clone())).unwrap();
        let shared = SharedRing::new(ring);
        let first = ids(&shared);
        keys.look(&shared);
        assert_eq!(ids(&shared), first);
        shared.current().rotated(now()).unwrap().store(&path).unwrap();
        keys.look(&shared);
        let second = ids(&shared);
        assert_eq!(second.len(), 3);
        assert_eq!(second[1], first[0], "what was current is previous");
        fs::write(&path, "no keys").unwrap();
        keys.look(&shared);
        assert_eq!(ids(&shared), second);
        own().unwrap().store(&path).unwrap();
        allow(&path, 0o644);
        keys.look(&shared);
        assert_eq!(ids(&shared), second, "others may read it");
        allow(&path, 0o600);
        keys.look(&shared);
        assert_eq!(ids(&shared).len(), 2, "it was made right");
    }

    #[test]
    fn own_keys_are_renewed_when_that_is_due() {
        let (mut keys, ring) = Keys::open(None).unwrap();
        let fresh = SharedRing::new(ring);
        let before = ids(&fresh);
        keys.look(&fresh);
        assert_eq!(ids(&fresh), before);
        let long_ago = UnixSeconds(now().0 - PERIOD.as_secs());
        let due = SharedRing::new(KeyRing::generate(long_ago, PERIOD).unwrap());
        let before = ids(&due);
        keys.look(&due);
        assert_eq!(ids(&due)[1], before[0]);
        assert!(due.current().rotation_due() > now() + Duration::from_secs(60));
    }

    #[test]
    fn own_keys_are_renewed_when_the_clock_is_set_back() {
        let (mut keys, _) = Keys::open(None).unwrap();
        let made = |ahead| {
            SharedRing::new(KeyRing::generate(now() + Duration::from_secs(ahead), PERIOD).unwrap())
        };
        let (far, near) = (made(10 * 86_400), made(60));
        let before = [ids(&far), ids(&near)];
        for _ in 0..2 {
            keys.look(&far);
            keys.look(&near);
        }
        assert_eq!(ids(&far)[1], before[0][0], "once");
        assert!(far.current().rotation_due() <= now() + PERIOD);
        assert_eq!(ids(&near), before[1]);
    }

    #[test]
    fn a_file_that_cannot_be_used_says_what_to_do() {
        let said = Keys::open(Some("/nowhere/keys".into())).unwrap_err().to_string();
        assert!(said.contains("\nhint: `headstart keys new /nowhere/keys` makes one"), "{said}");
        let (_dir, path) = file();
        allow(&path, 0o640);
        let said = Keys::open(Some(path)).unwrap_err().to_string();
        assert!(said.contains("\nhint: chmod 600 "), "{said}");
    }
}
