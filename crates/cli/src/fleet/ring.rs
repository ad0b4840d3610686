//! The key ring of a site in Redis, sealed with the fleet key.

use std::sync::{Arc, Weak};
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_tls::SharedRing;
use headstart_tls::keyring::{FleetKey, KeyRing, Newest, RingRefused};
use redis::Cmd;
use tokio::sync::watch;

use super::redis::{ANSWER, Redis, RedisFailure};
use crate::keys::{own_are_due, wall_clock};
use crate::metrics::{self, Reloaded};
use crate::options::RedisAddress;

/// How often the place is looked at: as often as files are. One short command a look; notifications of Redis would need
/// a setting there, and are lost with the connection.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Puts a ring where another one is, if that is still the one that was read.
const EXCHANGE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
end
return 0";

/// The place of a ring.
pub(crate) struct RingPlace {
    redis: Redis,
    key: String,
}

impl RingPlace {
    pub(crate) async fn open(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let redis = Redis::connect(address).await?;
        Ok(Self { redis, key: format!("headstart:{{{}}}:ring", address.name) })
    }

    /// What is there, whatever it is.
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

    /// Puts a ring in place of `before`; false if that is not there any more. So of two who renew the same ring one
    /// does, and no two rings come of it.
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

/// Keeps a ring up to date from its place.
pub(crate) struct RingWatch {
    address: RedisAddress,
    fleet: FleetKey,
    newest: Newest,
    place: Option<RingPlace>,
    /// What was complained of last, to be said once.
    said: Option<String>,
    /// Whether it was said that the keys are old.
    overdue: bool,
}

impl RingWatch {
    pub(crate) fn new(address: RedisAddress, fleet: FleetKey) -> Self {
        Self { address, fleet, newest: Newest::default(), place: None, said: None, overdue: false }
    }

    /// Looks for newer keys as long as there is a ring, which is `own` of this process until some were found. Tells
    /// `settled` once it has looked, whatever came of it.
    pub(crate) async fn run(mut self, ring: Weak<SharedRing>, settled: watch::Sender<bool>) {
        let mut own = true;
        loop {
            let found = self.look().await;
            let Some(ring) = ring.upgrade() else { return };
            match found {
                Some(fresh) => {
                    ring.replace(fresh);
                    own = false;
                    tracing::info!("new keys for session tickets");
                }
                None => self.renew(&ring, own),
            }
            drop(ring);
            settled.send_replace(true);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Own keys are renewed here; those of the site by whoever has to, and late ones are complained of.
    fn renew(&mut self, ring: &Arc<SharedRing>, own: bool) {
        let (current, now) = (ring.current(), wall_clock());
        if own {
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
                self.said = None;
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
                // What was said on the connection so far may be out of step.
                self.place = None;
                return Err(failure.to_string());
            }
        };
        let bytes = bytes.ok_or("there are no keys yet: `headstart keys new` makes them")?;
        self.take(&bytes, wall_clock()).map_err(|refused| refused.to_string())
    }

    fn take(&mut self, bytes: &[u8], now: UnixSeconds) -> Result<Option<KeyRing>, RingRefused> {
        self.newest.take(bytes, &self.fleet, &self.address.name, now)
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
        if self.said.as_ref() == Some(&why) {
            return;
        }
        metrics::reloaded(Reloaded::Keys, false);
        tracing::error!(place = %self.address, "keys kept: {why}");
        self.said = Some(why);
    }
}
