//! The key ring of a site: from a file, from Redis, or made and renewed here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_tls::SharedRing;
use headstart_tls::keyring::{Epoch, Fleet, FleetKey, KeyRing, PERIOD, Role};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::terminate::files::{Complaint, LOOK_EVERY, Watch};
use crate::base::clock::wall_clock;
use crate::base::failure::Failure;
use crate::fleet::ring::own_are_due;
use crate::fleet::ring::{AtHand, RingWatch};
use crate::fleet::storage::{KeySource, RedisAddress};
use crate::metrics::{self, Cell, Reloaded, Table};

/// Time that a start waits for keys in Redis, so that its first clients get tickets that others
/// take. Without them it goes on with keys of its own, until Redis answers.
const START: Duration = Duration::from_secs(3);

/// The keys of a site, which live as long as the edge.
#[derive(Debug)]
pub(super) struct SiteKeys {
    ring: Arc<SharedRing>,
    keys: Mutex<Keys>,
}

impl SiteKeys {
    /// Reads the keys at `source`, or makes new ones; those in Redis are sealed with the key of
    /// `fleet`.
    ///
    /// # Errors
    /// A file that is no key ring or that others may read; no randomness.
    pub(super) fn start(
        source: Option<&KeySource>,
        fleet: Option<&Fleet>,
    ) -> Result<Arc<Self>, Failure> {
        let (mut keys, ring) = Keys::open(source, fleet)?;
        let ring = Arc::new(SharedRing::new(ring));
        keys.begin(&ring);
        let site = Arc::new(Self { ring, keys: Mutex::new(keys) });
        tokio::spawn(look(Arc::downgrade(&site)));
        Ok(site)
    }

    /// Returns the ring in use.
    pub(super) const fn ring(&self) -> &Arc<SharedRing> {
        &self.ring
    }

    /// Returns the table of the status page, without secrets and without the address of Redis.
    pub(super) fn table(&self) -> Table {
        let source = match &*self.lock() {
            Keys::Own => "own",
            Keys::File { .. } => "file",
            Keys::Redis { .. } => "Redis",
        };
        let ring = self.ring.current();
        let row = |(role, epoch): (Role, &Epoch)| {
            let from = i64::try_from(epoch.from.0).unwrap_or(i64::MAX);
            vec![Cell::Text(source.into()), Cell::Text(role.name().into()), Cell::Time(from)]
        };
        let rows = ring.roles().map(row).collect();
        Table { title: "Keys", columns: &["Source", "Epoch", "From"], rows }
    }

    /// Waits for keys from Redis, but not for long.
    pub(super) async fn settled(&self) {
        let Some(mut settled) = self.lock().settled() else { return };
        let _ = tokio::time::timeout(START, settled.wait_for(|settled| *settled)).await;
    }

    /// Prepares the change of a reload: none where the keys are the same in Redis, or own ones,
    /// since throwing tickets away would gain nothing.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(super) fn prepare(
        &self,
        source: Option<&KeySource>,
        fleet: Option<&Fleet>,
    ) -> Result<Prepared, Failure> {
        if self.lock().stay_with(source) {
            return Ok(Prepared(None));
        }
        let (keys, ring) = Keys::open(source, fleet)?;
        // Keys from Redis come later; until then the local ones are better than new ones.
        let ring = (!matches!(keys, Keys::Redis { .. })).then_some(ring);
        Ok(Prepared(Some((keys, ring))))
    }

    /// Makes the prepared change.
    pub(super) fn reload(&self, prepared: Prepared) {
        let Some((mut keys, ring)) = prepared.0 else { return };
        let mut place = self.lock();
        if let Some(ring) = ring {
            self.ring.replace(ring);
        }
        keys.follow(&place);
        keys.begin(&self.ring);
        *place = keys;
    }

    /// Locks the keys, poisoned or not: a panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of keys that can be done without an error.
pub(super) struct Prepared(Option<(Keys, Option<KeyRing>)>);

/// Looks at the keys as long as there are some.
async fn look(site: Weak<SiteKeys>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(site) = site.upgrade() else { return };
        // Reading files may block on a disk or a network.
        let looked = tokio::task::spawn_blocking(move || site.lock().look(&site.ring)).await;
        if let Err(error) = looked {
            tracing::error!(%error, "cannot look at the keys");
        }
    }
}

/// Where the ring comes from, and how it is kept up to date.
#[derive(Debug)]
enum Keys {
    /// Keys of this process alone.
    Own,
    /// Keys of a file that others renew.
    File { path: PathBuf, watch: Watch, complaint: Complaint, overdue: bool },
    /// Keys in Redis; a task keeps them up to date.
    Redis {
        address: RedisAddress,
        fleet: FleetKey,
        at_hand: AtHand,
        watch: JoinSet<()>,
        settled: watch::Receiver<bool>,
    },
}

impl Keys {
    /// Returns the first ring, from the file if there is one. No task watches Redis yet.
    ///
    /// # Errors
    /// A file that is no key ring or that others may read; no fleet; no randomness.
    fn open(source: Option<&KeySource>, fleet: Option<&Fleet>) -> Result<(Self, KeyRing), Failure> {
        match source {
            None => Ok((Self::Own, own()?)),
            Some(KeySource::Redis(address)) => {
                let Some(fleet) = fleet else {
                    return Err(Failure::usage("keys in Redis are sealed, and no fleet is given"));
                };
                let (address, fleet) = (address.clone(), fleet.key.clone());
                let (at_hand, watch) = (AtHand::default(), JoinSet::new());
                let settled = watch::channel(true).1;
                Ok((Self::Redis { address, fleet, at_hand, watch, settled }, own()?))
            }
            Some(KeySource::File(path)) => {
                let watch = Watch::new([path.clone()]);
                let ring = load(path)?;
                let (path, complaint) = (path.clone(), Complaint::default());
                Ok((Self::File { path, watch, complaint, overdue: false }, ring))
            }
        }
    }

    /// Starts to take keys from Redis; those of `before` stay in use until they come.
    fn follow(&mut self, before: &Self) {
        let Self::Redis { address, at_hand, .. } = self else { return };
        *at_hand = match before {
            Self::Own => AtHand::default(),
            Self::File { .. } => AtHand::of_site(),
            Self::Redis { address: old, at_hand, .. } if old.name == address.name => {
                at_hand.clone()
            }
            Self::Redis { at_hand, .. } => at_hand.elsewhere(),
        };
    }

    /// Starts the task that puts newer keys from Redis into `ring`.
    fn begin(&mut self, ring: &Arc<SharedRing>) {
        if let Self::Redis { address, fleet, at_hand, watch, settled } = self {
            let (tell, told) = watch::channel(false);
            let keeper = RingWatch::new(address.clone(), fleet.clone(), at_hand.clone());
            watch.spawn(keeper.run(Arc::downgrade(ring), tell));
            *settled = told;
        }
    }

    fn settled(&self) -> Option<watch::Receiver<bool>> {
        match self {
            Self::Redis { settled, .. } => Some(settled.clone()),
            Self::Own | Self::File { .. } => None,
        }
    }

    /// Returns true if a reload with `source` changes nothing. A file is reread.
    fn stay_with(&self, source: Option<&KeySource>) -> bool {
        match (self, source) {
            (Self::Own, None) => true,
            (Self::Redis { address, .. }, Some(KeySource::Redis(other))) => address == other,
            _ => false,
        }
    }

    /// Puts a newer ring into `shared` if there is one; keeps the old one if the file is malformed.
    fn look(&mut self, shared: &SharedRing) {
        let now = wall_clock();
        let current = shared.current();
        match self {
            Self::Own if own_are_due(&current, now) => {
                take(shared, rotated(&current, now), &mut Complaint::default());
            }
            Self::Own => {}
            Self::File { path, watch, complaint, overdue } => {
                if watch.changed() || complaint.is_open() {
                    take(shared, load(path), complaint);
                } else if current.is_due(now) && !*overdue {
                    let file = path.display();
                    tracing::warn!(%file, "the keys are old: `headstart keys rotate` renews them");
                }
                *overdue = shared.current().is_due(now);
            }
            Self::Redis { watch, .. } => {
                // It ends with the edge only.
                if watch.try_join_next().is_some() {
                    tracing::error!("keys in Redis are not looked at any more");
                }
            }
        }
    }
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
    KeyRing::generate(wall_clock(), PERIOD).map_err(|error| unmade(&error))
}

fn rotated(ring: &Arc<KeyRing>, now: UnixSeconds) -> Result<KeyRing, Failure> {
    ring.rotated(now).map_err(|error| unmade(&error))
}

fn unmade(error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("cannot make keys for session tickets: {error}"))
}

pub(super) fn load(path: &Path) -> Result<KeyRing, Failure> {
    KeyRing::load(path).map_err(|error| crate::keys::unusable(&error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    /// Returns the path of a file of new keys, and its directory.
    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        own().unwrap().store(&path).unwrap();
        (dir, path)
    }

    fn ids(shared: &SharedRing) -> Vec<u8> {
        shared.current().epochs().map(|epoch| epoch.id).collect()
    }

    fn open(path: &Path) -> Result<(Keys, KeyRing), Failure> {
        Keys::open(Some(&KeySource::File(path.to_owned())), None)
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_kept_when_it_is_wrong() {
        let (_dir, path) = file();
        let (mut keys, ring) = open(&path).unwrap();
        let shared = SharedRing::new(ring);
        let first = ids(&shared);
        keys.look(&shared);
        assert_eq!(ids(&shared), first);
        shared.current().rotated(wall_clock()).unwrap().store(&path).unwrap();
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
        let (mut keys, ring) = Keys::open(None, None).unwrap();
        let fresh = SharedRing::new(ring);
        let before = ids(&fresh);
        keys.look(&fresh);
        assert_eq!(ids(&fresh), before);
        let long_ago = UnixSeconds(wall_clock().0 - PERIOD.as_secs());
        let due = SharedRing::new(KeyRing::generate(long_ago, PERIOD).unwrap());
        let before = ids(&due);
        keys.look(&due);
        assert_eq!(ids(&due)[1], before[0]);
        assert!(due.current().rotation_due() > wall_clock() + Duration::from_secs(60));
    }

    #[test]
    fn own_keys_are_renewed_when_the_clock_is_set_back() {
        let (mut keys, _) = Keys::open(None, None).unwrap();
        let [far, near] = [10 * 86_400, 60].map(|ahead| {
            let from = wall_clock() + Duration::from_secs(ahead);
            SharedRing::new(KeyRing::generate(from, PERIOD).unwrap())
        });
        let before = [ids(&far), ids(&near)];
        for _ in 0..2 {
            keys.look(&far);
            keys.look(&near);
        }
        assert_eq!(ids(&far)[1], before[0][0], "once");
        assert!(far.current().rotation_due() <= wall_clock() + PERIOD);
        assert_eq!(ids(&near), before[1]);
    }

    #[test]
    fn a_file_that_cannot_be_used_says_what_to_do() {
        let message = open(Path::new("/nowhere/keys")).unwrap_err().to_string();
        assert!(
            message.contains("\nhint: `headstart keys new /nowhere/keys` makes one"),
            "{message}"
        );
        let (_dir, path) = file();
        allow(&path, 0o640);
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("\nhint: chmod 600 "), "{message}");
    }
}
