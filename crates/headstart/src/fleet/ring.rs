//! The key ring of a site in Redis, sealed with the fleet key.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_tls::SharedRing;
use headstart_tls::keyring::{FleetKey, KeyRing, Newest, RingRefused};
use redis::Cmd;
use tokio::sync::watch;

use super::redis::{ANSWER, Redis, RedisFailure};
use crate::base::clock::wall_clock;
use crate::fleet::storage::RedisAddress;
use crate::metrics::{self, Reloaded};

/// Interval at which the place is checked: that of files. One short command a look; notifications
/// of Redis would need a setting there, and are lost with the connection.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Puts a ring where another one is, if that is still the one that was read.
const EXCHANGE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
end
return 0";

/// Tolerance for clocks that are right: how far they may be off.
const CLOCK_ERROR: Duration = Duration::from_secs(60 * 60);

/// Returns true if a ring that nobody else renews has to be renewed `now`.
///
/// Also true if the ring was made before the clock was set back: it would not be due for long, and
/// the promised life of its keys would not hold.
pub(crate) fn own_are_due(ring: &KeyRing, now: UnixSeconds) -> bool {
    ring.is_due(now) || ring.rotation_due() > now + ring.period + CLOCK_ERROR
}

pub(crate) struct RingPlace {
    redis: Redis,
    key: String,
}

impl RingPlace {
    pub(crate) async fn open(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let redis = Redis::connect(address).await?;
        Ok(Self { redis, key: format!("headstart:{{{}}}:ring", address.name) })
    }

    /// Reads the place's contents, whatever they are.
    pub(crate) async fn read(&self) -> Result<Option<Vec<u8>>, RedisFailure> {
        self.redis.ask(redis::cmd("GET").arg(&self.key), ANSWER).await
    }

    /// Puts a ring where nothing is; false if something is there.
    pub(crate) async fn create(&self, sealed: &[u8]) -> Result<bool, RedisFailure> {
        let command = set(&self.key, sealed);
        let answer: Option<String> = self.redis.ask(&command, ANSWER).await?;
        match answer.as_deref() {
            Some("OK") => Ok(true),
            None => Ok(false),
            Some(_) => Err(RedisFailure::Malformed("neither OK nor nothing".into())),
        }
    }

    /// Puts a ring in place of `before`; false if that is not there any more. So of two who renew
    /// the same ring one does, and no two rings come of it.
    pub(crate) async fn exchange(
        &self,
        before: &[u8],
        sealed: &[u8],
    ) -> Result<bool, RedisFailure> {
        let mut command = redis::cmd("EVAL");
        command.arg(EXCHANGE).arg(1).arg(&self.key).arg(before).arg(sealed);
        match self.redis.ask::<i64>(&command, ANSWER).await? {
            1 => Ok(true),
            0 => Ok(false),
            _ => Err(RedisFailure::Malformed("neither yes nor no".into())),
        }
    }
}

fn set(key: &str, sealed: &[u8]) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(sealed).arg("NX");
    command
}

/// Knowledge of the keys at hand; it outlives a watch, so that a reload that names another place
/// does not forget which rings are older.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtHand(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    newest: Newest,
    /// True for keys of the site, false for those of this process alone.
    of_site: bool,
}

impl AtHand {
    /// Returns the keys of a site, not made by this process, of which none is known yet.
    pub(crate) fn of_site() -> Self {
        Self(Arc::new(Mutex::new(Known { newest: Newest::default(), of_site: true })))
    }

    /// Returns the same kind of keys for another source, of which none was taken yet.
    pub(crate) fn elsewhere(&self) -> Self {
        if self.lock().of_site { Self::of_site() } else { Self::default() }
    }

    /// No call can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a ring up to date from its place.
pub(crate) struct RingWatch {
    address: RedisAddress,
    fleet: FleetKey,
    at_hand: AtHand,
    place: Option<RingPlace>,
    /// Last complaint, to be logged once.
    logged: Option<String>,
    /// True once it was logged that the keys are old.
    overdue: bool,
}

impl RingWatch {
    pub(crate) fn new(address: RedisAddress, fleet: FleetKey, at_hand: AtHand) -> Self {
        Self { address, fleet, at_hand, place: None, logged: None, overdue: false }
    }

    /// Looks for newer keys as long as there is a ring. Tells `settled` once it has looked,
    /// whatever came of it.
    pub(crate) async fn run(mut self, ring: Weak<SharedRing>, settled: watch::Sender<bool>) {
        loop {
            let found = self.look().await;
            let Some(ring) = ring.upgrade() else { return };
            match found {
                Some(fresh) => {
                    ring.replace(fresh);
                    tracing::info!("new keys for session tickets");
                }
                None => self.renew(&ring),
            }
            drop(ring);
            settled.send_replace(true);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Renews own keys; those of the site have their own rotation, and this warns if it is late.
    fn renew(&mut self, ring: &SharedRing) {
        let (current, now) = (ring.current(), wall_clock());
        if !self.at_hand.lock().of_site {
            if own_are_due(&current, now)
                && let Ok(fresh) = current.rotated(now)
            {
                ring.replace(fresh);
            }
            return;
        }
        let due = current.is_due(now);
        if due && !self.overdue {
            let place = &self.address;
            tracing::warn!(%place, "the keys are old: `headstart keys rotate` renews them");
        }
        self.overdue = due;
    }

    /// A newer ring, if there is one.
    async fn look(&mut self) -> Option<KeyRing> {
        match self.read().await {
            Ok(ring) => {
                self.logged = None;
                ring.inspect(|_| metrics::reloaded(Reloaded::Keys, true))
            }
            Err(why) => {
                self.complain(why);
                None
            }
        }
    }

    async fn read(&mut self) -> Result<Option<KeyRing>, String> {
        let bytes = match self.bytes().await {
            Ok(bytes) => bytes,
            Err(failure) => {
                // The connection may be out of step by now.
                self.place = None;
                return Err(failure.to_string());
            }
        };
        let bytes = bytes.ok_or("there are no keys yet: `headstart keys new` makes them")?;
        self.take(&bytes, wall_clock()).map_err(|refused| refused.to_string())
    }

    fn take(&self, bytes: &[u8], now: UnixSeconds) -> Result<Option<KeyRing>, RingRefused> {
        let mut known = self.at_hand.lock();
        let taken = known.newest.take(bytes, &self.fleet, &self.address.name, now)?;
        known.of_site |= taken.is_some();
        Ok(taken)
    }

    async fn bytes(&mut self) -> Result<Option<Vec<u8>>, RedisFailure> {
        let place = match self.place.take() {
            Some(place) => place,
            None => RingPlace::open(&self.address).await?,
        };
        let bytes = place.read().await?;
        self.place = Some(place);
        Ok(bytes)
    }

    /// Once for each reason; it is looked every few seconds.
    fn complain(&mut self, why: String) {
        if self.logged.as_ref() == Some(&why) {
            return;
        }
        metrics::reloaded(Reloaded::Keys, false);
        tracing::error!(place = %self.address, "keys kept: {why}");
        self.logged = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use headstart_tls::keyring::PERIOD;

    use super::*;

    fn watch(key: &FleetKey, at_hand: AtHand) -> RingWatch {
        RingWatch::new("redis://localhost?name=www".parse().unwrap(), key.clone(), at_hand)
    }

    /// Two rings of one site, the second a rotation later.
    fn rings(key: &FleetKey) -> [Vec<u8>; 2] {
        let now = wall_clock();
        let first = KeyRing::generate(now, PERIOD).unwrap();
        let second = first.rotated(now).unwrap();
        [(first, 1), (second, 2)].map(|(ring, count)| ring.seal(key, "www", count, now).unwrap())
    }

    #[test]
    fn who_looks_at_another_place_takes_nothing_older() {
        let key = FleetKey::generate().unwrap();
        let ([first, second], at_hand) = (rings(&key), AtHand::default());
        let before = watch(&key, at_hand.clone());
        assert!(before.take(&second, wall_clock()).unwrap().is_some());
        let after = watch(&key, at_hand);
        assert!(matches!(after.take(&first, wall_clock()), Err(RingRefused::Older { .. })));
        assert!(after.take(&second, wall_clock()).unwrap().is_none(), "it is at hand");
    }

    #[test]
    fn only_keys_of_this_process_are_renewed_here() {
        let key = FleetKey::generate().unwrap();
        let found = AtHand::default();
        let [first, _] = rings(&key);
        watch(&key, found.clone()).take(&first, wall_clock()).unwrap();
        for (at_hand, renews, whose) in [
            (AtHand::default(), true, "of this process"),
            (AtHand::of_site(), false, "of the site"),
            (found.clone(), false, "the site's are there"),
            (found.elsewhere(), false, "they still are those of a site"),
            (AtHand::default().elsewhere(), true, "of this process, elsewhere"),
        ] {
            assert_eq!(is_renewed(&key, at_hand), renews, "{whose}");
        }
    }

    /// Returns true if keys that are due are renewed.
    fn is_renewed(key: &FleetKey, at_hand: AtHand) -> bool {
        let long_ago = UnixSeconds(wall_clock().0 - PERIOD.as_secs());
        let ring = SharedRing::new(KeyRing::generate(long_ago, PERIOD).unwrap());
        let before = ring.current().epochs().count();
        watch(key, at_hand).renew(&ring);
        ring.current().epochs().count() > before
    }
}
