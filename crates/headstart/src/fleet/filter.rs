//! Replay cache of early data in Redis, for all edges of a site (RFC 8446 section 8.2).
//!
//! TLS asks in the middle of a handshake, where it cannot wait. So the edge asks before: the binder
//! of a ClientHello is public, and identifies it as well as TLS could. The edge hands the reply to
//! TLS, which accepts early data if the reply is about the very binder that TLS has checked, and
//! the ticket has the scope of the query.
//!
//! **Scope.** Redis holds a random mark beside the binders; it names the process that keeps them
//! (`run_id`) and its replication history (`master_replid`). The scope is a hash of the mark, and
//! is part of tickets. Each query checks the mark in the same transaction. So a cache that starts
//! empty (restarted, flushed, failed over to another process) has another scope, and rejects early
//! data with older tickets; and where two processes both believe that they are the master, a ticket
//! is valid with one of them only.
//!
//! **Time.** With a new mark, the filter also rejects all early data for as long as OpenSSL may
//! find it fresh. Each edge decides by its own clock what is fresh: with a wrong clock, early data
//! may seem fresh whose binder has expired. So the reply has Redis's time, and an edge whose clock
//! differs accepts nothing ([`clock`](super::clock)).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headstart_net::hello::ClientHello;
use headstart_tls::keyring::KeyRing;
use headstart_tls::limits::{CLOCK_SLACK, REPLAY_LIFE};
use headstart_tls::wire::binder_key;
use headstart_tls::{FirstSeen, ReplayFilter};
use openssl::sha::Sha256;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::{self, Reading};
use super::redis::{ANSWER, Redis, RedisFailure};
use crate::fleet::storage::RedisAddress;
use crate::metrics;

/// Time that a handshake with early data waits for the reply.
///
/// A Redis near enough to be useful replies in a fraction of a millisecond; a longer wait would use
/// up the round trip that early data saves.
const WAIT: Duration = Duration::from_millis(5);

/// Queries at one time; early data beyond them is rejected. With [`WAIT`] that is 51,200 a second.
const QUERIES: usize = 256;

/// Interval at which the filter checks that Redis is still the same process.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Pause before a reconnection, doubled with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A cache that worked for this long resets the pause; one that is full may seem to work at each
/// start.
const STEADY: Duration = Duration::from_secs(10);

/// The one policy under which Redis evicts nothing before it expires.
const POLICY: &str = "noeviction";

/// Time until a binder expires.
///
/// One edge finds a ClientHello fresh for 10 s ([`REPLAY_LIFE`] is twice that), and two whose
/// clocks are [`CLOCK_SLACK`] off either way for twice as long. As much again is for an edge that
/// is suspended between the query and the handshake.
const REMEMBERED: Duration = REPLAY_LIFE.saturating_add(CLOCK_SLACK.saturating_mul(4));

/// Script that finds the mark, or makes one if it is missing or another process's; returns it, and
/// Redis's time in seconds.
const MARK: &str = "\
local now = redis.call('TIME')[1]
local mark = redis.call('GET', KEYS[1])
if not mark or string.sub(mark, 1, #ARGV[1]) ~= ARGV[1] then
    mark = ARGV[1] .. ARGV[2] .. ':' .. now
    redis.call('SET', KEYS[1], mark)
end
return {mark, now}";

/// Script that adds a binder. It returns the nonce of the query; 1 if the binder is new, 0 if not,
/// 2 if the mark has changed; and Redis's time in milliseconds.
const FIRST: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {ARGV[2], 2, now}
end
if redis.call('SET', KEYS[2], '', 'NX', 'PX', ARGV[3]) then
    return {ARGV[2], 1, now}
end
return {ARGV[2], 0, now}";

/// Replay filter in Redis; early data is rejected whenever Redis does not confirm that it is new.
pub(crate) struct RedisFilter {
    shared: Arc<Shared>,
    /// Task that keeps the connection; ends with the filter.
    _keeper: JoinSet<()>,
}

struct Shared {
    address: RedisAddress,
    state: Mutex<State>,
    queries: Semaphore,
}

struct State {
    /// Scope of the last mark; random and unique before there was one.
    scope: [u8; 16],
    /// Cache in Redis; `None` while Redis is away or unfit.
    cache: Option<Arc<Cache>>,
}

/// Cache under one mark.
struct Cache {
    redis: Redis,
    mark: Vec<u8>,
    scope: [u8; 16],
    /// Time from which it may accept early data.
    open: Instant,
    /// Redis's clock at the start.
    clock: Reading,
    /// Notified of a bad reply: the keeper has to reconnect.
    broken: Notify,
}

impl RedisFilter {
    /// Makes a filter that connects, and reconnects, in a task of its own.
    pub(crate) fn new(address: RedisAddress) -> Self {
        let state = State { scope: rand::random(), cache: None };
        let shared = Arc::new(Shared {
            address,
            state: Mutex::new(state),
            queries: Semaphore::new(QUERIES),
        });
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(Arc::clone(&shared)));
        Self { shared, _keeper: keeper }
    }

    pub(crate) fn address(&self) -> &RedisAddress {
        &self.shared.address
    }

    /// Asks whether the early data behind a ClientHello is new, if `ring` made its ticket: other
    /// ClientHellos take no memory in Redis.
    pub(crate) async fn first(&self, hello: &ClientHello, ring: &KeyRing) -> Option<FirstSeen> {
        let ticket = hello.psk_identities.first().filter(|_| hello.early_data && hello.tls13)?;
        let binder = binder_key(hello.binder.as_ref()?);
        if !ring.made(ticket) {
            return None;
        }
        let first = self.query(binder).await;
        metrics::early_data_filter(first.as_ref().map_or_else(|why| *why, |_| "first"));
        first.ok()
    }

    /// # Errors
    /// The early data came before, or nobody knows: a word for the metrics says why.
    async fn query(&self, binder: [u8; 32]) -> Result<FirstSeen, &'static str> {
        let cache = self.shared.lock().cache.clone().ok_or("away")?;
        if Instant::now() < cache.open {
            return Err("new");
        }
        let _query = self.shared.queries.try_acquire().map_err(|_| "too_many")?;
        let nonce: [u8; 16] = rand::random();
        match cache.first(&self.shared.address.name, &binder, &nonce).await {
            Ok((echo, 0 | 1, now)) if echo == nonce && !clock::agrees(now) => Err("clock"),
            Ok((echo, 1, _)) if echo == nonce => Ok(FirstSeen { scope: cache.scope, binder }),
            Ok((echo, 0, _)) if echo == nonce => Err("seen"),
            // One reply may be slow; the keeper detects whether Redis is gone.
            Err(RedisFailure::Slow) => Err("slow"),
            wrong => {
                tracing::debug!(?wrong, "no reply about early data");
                self.shared.drop_cache(&cache);
                Err("failed")
            }
        }
    }
}

/// TLS's own query is always denied: TLS has the reply already, or there is none.
impl ReplayFilter for RedisFilter {
    fn scope(&self) -> [u8; 16] {
        self.shared.lock().scope
    }

    fn is_first(&self, _: [u8; 32]) -> bool {
        false
    }
}

impl fmt::Debug for RedisFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFilter").field("address", self.address()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Sends no more queries to a cache that gave a bad reply.
    fn drop_cache(&self, cache: &Arc<Cache>) {
        let was_current =
            self.lock().cache.take_if(|current| Arc::ptr_eq(current, cache)).is_some();
        if was_current {
            cache.broken.notify_one();
        }
    }

    /// No call can leave it half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a cache open for as long as the filter lives.
async fn keep(shared: Arc<Shared>) {
    let (mut pause, mut logged, mut announced) = (PAUSE_MIN, None, false);
    loop {
        let why = match Cache::open(&shared.address).await {
            Ok(cache) => {
                if !announced {
                    tracing::info!(place = %shared.address, "early data is remembered in Redis");
                    announced = true;
                }
                let begun = Instant::now();
                let why = watch(&shared, cache).await;
                if begun.elapsed() >= STEADY {
                    (pause, logged) = (PAUSE_MIN, None);
                }
                why
            }
            Err(failure) => {
                announced = false;
                failure
            }
        };
        let why = why.to_string();
        if logged.as_ref() != Some(&why) {
            tracing::error!(place = %shared.address, "early data is refused: {why}");
            logged = Some(why);
        }
        // Jitter: edges do not reconnect all at once.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Directs queries to `cache` until it fails; returns the failure.
async fn watch(shared: &Shared, cache: Cache) -> RedisFailure {
    let (mut clock, cache) = (cache.clock, Arc::new(cache));
    {
        let mut state = shared.lock();
        state.scope = cache.scope;
        state.cache = Some(Arc::clone(&cache));
    }
    let why = loop {
        tokio::select! {
            () = cache.broken.notified() => {
                break RedisFailure::Malformed("a reply about early data".into());
            }
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        match cache.check(&shared.address.name, &clock).await {
            Ok(now) => clock = now,
            Err(failure) => break failure,
        }
    };
    shared.lock().cache = None;
    why
}

impl Cache {
    /// Connects, checks that Redis is fit, and finds or makes the mark.
    async fn open(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let redis = Redis::connect(address).await?;
        let start = Server::ask(&redis, &address.name).await?.mark();
        let random: [u8; 16] = rand::random();
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = redis::cmd("EVAL");
        command.arg(MARK).arg(1).arg(mark_key(&address.name)).arg(&start).arg(random);
        let (mark, now): (Vec<u8>, u64) = redis.ask(&command, ANSWER).await?;
        let made = made(&mark, &start).ok_or_else(|| RedisFailure::Malformed("no mark".into()))?;
        // A second less: both are whole seconds.
        let age = Duration::from_secs(now.saturating_sub(made).saturating_sub(1));
        let open = Instant::now() + REPLAY_LIFE.saturating_sub(age);
        let mut hash = Sha256::new();
        hash.update(b"headstart early data\0");
        hash.update(&mark);
        let hash = hash.finish();
        let clock = Reading::at(&redis).await?;
        clock.agrees()?;
        let scope = std::array::from_fn(|at| hash[at]);
        Ok(Self { redis, mark, scope, open, clock, broken: Notify::new() })
    }

    /// Checks that Redis is still the same process, and that its clock has advanced since `before`;
    /// also that the mark is still there, since an edge that only makes tickets sends no query that
    /// would show it.
    async fn check(&self, name: &str, before: &Reading) -> Result<Reading, RedisFailure> {
        let start = Server::ask(&self.redis, name).await?.mark();
        if !self.mark.starts_with(start.as_bytes()) {
            let words = "it was restarted, or another one has taken over";
            return Err(RedisFailure::Refused(words.into()));
        }
        let clock = Reading::at(&self.redis).await?;
        if !clock.follows(before) {
            forget(&self.redis, name).await;
            return Err(RedisFailure::Refused(
                "its clock was set, or this machine stood still".into(),
            ));
        }
        clock.agrees()?;
        let mark: Option<Vec<u8>> =
            self.redis.ask(redis::cmd("GET").arg(mark_key(name)), ANSWER).await?;
        if mark.as_ref() == Some(&self.mark) {
            Ok(clock)
        } else {
            Err(RedisFailure::Refused("its memory was reset".into()))
        }
    }

    async fn first(
        &self,
        name: &str,
        binder: &[u8; 32],
        nonce: &[u8; 16],
    ) -> Result<(Vec<u8>, i64, u64), RedisFailure> {
        let mut seen = format!("headstart:{{{name}}}:seen:").into_bytes();
        seen.extend_from_slice(binder);
        let mut command = redis::cmd("EVAL");
        command.arg(FIRST).arg(2).arg(mark_key(name)).arg(seen);
        command.arg(&self.mark).arg(&nonce[..]).arg(REMEMBERED.as_secs() * 1000);
        self.redis.ask(&command, WAIT).await
    }
}

fn mark_key(name: &str) -> String {
    format!("headstart:{{{name}}}:filter")
}

/// Deletes the mark: binders may have expired too soon, so the cache starts over.
async fn forget(redis: &Redis, name: &str) {
    let mut command = redis::cmd("DEL");
    // A replica refuses that; its mark names another replication history anyway.
    let _ = redis.ask::<i64>(command.arg(mark_key(name)), ANSWER).await;
}

/// Returns the time at which a mark with the prefix `start` was made, in seconds of Redis's clock:
/// its last part.
fn made(mark: &[u8], start: &str) -> Option<u64> {
    let rest = mark.strip_prefix(start.as_bytes())?;
    std::str::from_utf8(rest).ok()?.rsplit_once(':')?.1.parse().ok()
}

/// Identity of a Redis, from INFO.
struct Server {
    run_id: String,
    replication: String,
}

impl Server {
    /// Reads the identity.
    ///
    /// # Errors
    /// Redis is not the master, or may evict keys before they expire. It may have evicted some
    /// already, so the mark is deleted: the cache starts over.
    async fn ask(redis: &Redis, name: &str) -> Result<Self, RedisFailure> {
        let info: String = redis.ask(&redis::cmd("INFO"), ANSWER).await?;
        let server = Self::read(&info);
        if let Err(RedisFailure::Refused(_)) = &server {
            forget(redis, name).await;
        }
        server
    }

    fn read(info: &str) -> Result<Self, RedisFailure> {
        if word(info, "role")? != "master" {
            return Err(RedisFailure::Refused("this is a replica".into()));
        }
        let policy = field(info, "maxmemory_policy");
        if policy != Some(POLICY) {
            let policy = policy.unwrap_or("not known");
            return Err(RedisFailure::Refused(format!(
                "its maxmemory-policy is {policy} and has to be {POLICY}"
            )));
        }
        let (run_id, replication) =
            (word(info, "run_id")?.into(), word(info, "master_replid")?.into());
        Ok(Self { run_id, replication })
    }

    /// Returns the prefix of this process's marks.
    fn mark(&self) -> String {
        format!("1:{}:{}:", self.run_id, self.replication)
    }
}

/// Returns a field of INFO that has letters and digits alone, as the parts of marks do.
fn word<'a>(info: &'a str, name: &str) -> Result<&'a str, RedisFailure> {
    field(info, name)
        .filter(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .ok_or_else(|| RedisFailure::Malformed(format!("INFO without {name}")))
}

/// Returns a field of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:0a1b\r\n\r\n# Memory\r\n\
                        maxmemory:0\r\nmaxmemory_policy:noeviction\r\n\r\n# Replication\r\n\
                        role:master\r\nmaster_replid:2c3d\r\n";

    #[test]
    fn a_mark_names_the_process_and_its_replication_history() {
        let server = Server::read(INFO).unwrap();
        assert_eq!(server.mark(), "1:0a1b:2c3d:");
        assert_eq!(made(b"1:0a1b:2c3d:ffff:1790000000", &server.mark()), Some(1_790_000_000));
        for wrong in [&b"1:0a1b:9999:ffff:1790000000"[..], b"1:0a1b:2c3d:ffff", b"", b"\xff"] {
            assert_eq!(made(wrong, &server.mark()), None);
        }
    }

    #[test]
    fn servers_that_evict_and_replicas_are_refused() {
        for (part, instead, expected) in [
            ("role:master", "role:slave", "this is a replica"),
            ("noeviction", "allkeys-lru", "is allkeys-lru and has to be noeviction"),
            ("maxmemory_policy", "other", "not known"),
        ] {
            match Server::read(&INFO.replace(part, instead)) {
                Err(RedisFailure::Refused(why)) => assert!(why.contains(expected), "{why}"),
                other => panic!("{:?}", other.map(|server| server.mark())),
            }
        }
    }

    #[test]
    fn other_replies_to_info_are_malformed() {
        for gone in ["run_id", "master_replid", "role"] {
            let read = Server::read(&INFO.replace(gone, "x"));
            assert!(matches!(read, Err(RedisFailure::Malformed(_))), "{gone}");
        }
        let read = Server::read(&INFO.replace("0a1b", "0a:1b"));
        assert!(matches!(read, Err(RedisFailure::Malformed(_))), "a run_id of other characters");
    }
}
