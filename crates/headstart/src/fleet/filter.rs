//! Replay cache of early data in Redis, for all edges of a site (RFC 8446 section 8.2).
//!
//! TLS asks in the middle of a handshake, where nothing can be waited for. So the edge asks before:
//! the binder of a ClientHello is public, and names it as well as TLS could. What comes back is
//! handed to TLS, which takes early data if it is about the very binder it has checked, and the
//! ticket is of the scope that was asked in.
//!
//! **Scope.** A random mark lies in Redis beside what came; it names the process that keeps it
//! (`run_id`) and its line of replication (`master_replid`). The scope is a hash of it, and is
//! written into tickets. Each question is asked about the mark in the same transaction. So a memory
//! that begins anew (restarted, flushed, failed over to another process) has another scope, and
//! early data with tickets from before is refused; and where two processes both believe that they
//! are the master, a ticket counts with one of them only.
//!
//! **Time.** Beside that a new mark denies everything for as long as OpenSSL may find early data
//! fresh. What is fresh each edge says by its own clock: with one that is wrong, something may be
//! fresh that was forgotten long ago. So the answer has the time of Redis, and an edge whose clock
//! shows another one takes nothing ([`clock`](super::clock)).

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

use super::clock::{self, Look};
use super::redis::{ANSWER, Redis, RedisFailure};
use crate::fleet::place::RedisAddress;
use crate::metrics::{self, FilterAnswer};

/// Time that a handshake with early data waits for the answer.
///
/// A Redis near enough to be useful answers in a fraction of a millisecond; early data is to save
/// one round trip to the client, of which little would be left.
const WAIT: Duration = Duration::from_millis(5);

/// Questions at one time; more are denied. With [`WAIT`] that is 51,200 a second.
const ASKING: usize = 256;

/// Interval at which Redis is asked whether it is still the same.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Pause before Redis is connected to again, doubled with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A memory that was good for so long has not failed again; one that takes nothing more may look
/// good at each start.
const STEADY: Duration = Duration::from_secs(10);

/// The one setting under which Redis forgets nothing before its time.
const POLICY: &str = "noeviction";

/// Time that a ClientHello is remembered.
///
/// One edge finds it fresh for 10 s ([`REPLAY_LIFE`] is twice that), and two whose clocks are
/// [`CLOCK_SLACK`] off either way for twice as long. As much again is for an edge that stands still
/// between the question and the handshake.
const REMEMBERED: Duration = REPLAY_LIFE.saturating_add(CLOCK_SLACK.saturating_mul(4));

/// Finds the mark, or makes one where it is missing or of another process: the mark, and the time
/// there in seconds.
const MARK: &str = "\
local now = redis.call('TIME')[1]
local mark = redis.call('GET', KEYS[1])
if not mark or string.sub(mark, 1, #ARGV[1]) ~= ARGV[1] then
    mark = ARGV[1] .. ARGV[2] .. ':' .. now
    redis.call('SET', KEYS[1], mark)
end
return {mark, now}";

/// Script that tells whether a binder is new. It answers what was sent along, to match the answer
/// by; 1 or 0, or 2 if the mark is another one; and Redis's time in milliseconds.
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

/// Asks Redis about early data; early data is denied whenever it does not know.
pub(crate) struct RedisFilter {
    shared: Arc<Shared>,
    /// Keeps the connection; ends with the filter.
    _keeper: JoinSet<()>,
}

struct Shared {
    address: RedisAddress,
    state: Mutex<State>,
    asking: Semaphore,
}

struct State {
    /// Scope of the last mark; random and unique before there was one.
    scope: [u8; 16],
    /// Memory in Redis; `None` while Redis is away, or not as it should be.
    memory: Option<Arc<Memory>>,
}

/// State that belongs to one mark.
struct Memory {
    redis: Redis,
    mark: Vec<u8>,
    scope: [u8; 16],
    /// From when it may say yes.
    open: Instant,
    /// Its clock at the start.
    clock: Look,
    /// Something was wrong with an answer: the keeper is to connect again.
    broken: Notify,
}

impl RedisFilter {
    /// A filter that connects by itself, and again whenever that is needed.
    pub(crate) fn new(address: RedisAddress) -> Self {
        let state = State { scope: rand::random(), memory: None };
        let shared =
            Arc::new(Shared { address, state: Mutex::new(state), asking: Semaphore::new(ASKING) });
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(Arc::clone(&shared)));
        Self { shared, _keeper: keeper }
    }

    /// Where it remembers.
    pub(crate) fn address(&self) -> &RedisAddress {
        &self.shared.address
    }

    /// Asks whether the early data behind a ClientHello is new, if `ring` made its ticket: nobody
    /// else's ClientHellos take room in Redis.
    pub(crate) async fn first(&self, hello: &ClientHello, ring: &KeyRing) -> Option<FirstSeen> {
        let ticket = hello.psk_identities.first().filter(|_| hello.early_data && hello.tls13)?;
        let binder = binder_key(hello.binder.as_ref()?);
        if !ring.made(ticket) {
            return None;
        }
        let (asked, first) = self.ask(binder).await;
        metrics::early_data_filter(asked);
        first
    }

    async fn ask(&self, binder: [u8; 32]) -> (FilterAnswer, Option<FirstSeen>) {
        let Some(memory) = self.shared.lock().memory.clone() else {
            return (FilterAnswer::Away, None);
        };
        if Instant::now() < memory.open {
            return (FilterAnswer::New, None);
        }
        let Ok(_asking) = self.shared.asking.try_acquire() else {
            return (FilterAnswer::TooMany, None);
        };
        let nonce: [u8; 16] = rand::random();
        match memory.first(&self.shared.address.name, &binder, &nonce).await {
            Ok((echo, 0 | 1, now)) if echo == nonce && !clock::agrees(now) => {
                (FilterAnswer::Clock, None)
            }
            Ok((echo, 1, _)) if echo == nonce => {
                (FilterAnswer::First, Some(FirstSeen { scope: memory.scope, binder }))
            }
            Ok((echo, 0, _)) if echo == nonce => (FilterAnswer::Seen, None),
            // It may be slow for once; the keeper finds out whether it is gone.
            Err(RedisFailure::Slow) => (FilterAnswer::Slow, None),
            wrong => {
                tracing::debug!(?wrong, "no answer about early data");
                self.shared.give_up(&memory);
                (FilterAnswer::Failed, None)
            }
        }
    }
}

/// Answers TLS's own question: it was told before, or not at all.
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
    /// Asks nothing more of a memory that something is wrong with.
    fn give_up(&self, memory: &Arc<Memory>) {
        let was_known = self.lock().memory.take_if(|known| Arc::ptr_eq(known, memory)).is_some();
        if was_known {
            memory.broken.notify_one();
        }
    }

    /// No call can leave it half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a memory for as long as the filter lives.
async fn keep(shared: Arc<Shared>) {
    let (mut pause, mut logged, mut announced) = (PAUSE_MIN, None, false);
    loop {
        let why = match Memory::open(&shared.address).await {
            Ok(memory) => {
                if !announced {
                    tracing::info!(place = %shared.address, "early data is remembered in Redis");
                    announced = true;
                }
                let begun = Instant::now();
                let why = watch(&shared, memory).await;
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
        // Not all edges at once.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Has questions asked of `memory` until something is wrong with it, and says what.
async fn watch(shared: &Shared, memory: Memory) -> RedisFailure {
    let (mut clock, memory) = (memory.clock, Arc::new(memory));
    {
        let mut state = shared.lock();
        state.scope = memory.scope;
        state.memory = Some(Arc::clone(&memory));
    }
    let why = loop {
        tokio::select! {
            () = memory.broken.notified() => {
                break RedisFailure::Malformed("an answer about early data is none".into());
            }
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        match memory.check(&shared.address.name, &clock).await {
            Ok(now) => clock = now,
            Err(failure) => break failure,
        }
    };
    shared.lock().memory = None;
    why
}

impl Memory {
    /// Connects, checks that Redis is as it should be, and finds or makes the mark.
    async fn open(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let redis = Redis::connect(address).await?;
        let start = Server::ask(&redis, &address.name).await?.mark();
        let random: [u8; 16] = rand::random();
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = redis::cmd("EVAL");
        command.arg(MARK).arg(1).arg(mark_key(&address.name)).arg(&start).arg(random);
        let (mark, now): (Vec<u8>, u64) = redis.ask(&command, ANSWER).await?;
        let made = made(&mark, &start).ok_or_else(|| RedisFailure::Malformed("no mark".into()))?;
        // Rounded up: both are whole seconds.
        let age = Duration::from_secs(now.saturating_sub(made).saturating_sub(1));
        let open = Instant::now() + REPLAY_LIFE.saturating_sub(age);
        let mut hash = Sha256::new();
        hash.update(b"headstart early data\0");
        hash.update(&mark);
        let hash = hash.finish();
        let clock = Look::at(&redis).await?;
        clock.agrees()?;
        let scope = std::array::from_fn(|at| hash[at]);
        Ok(Self { redis, mark, scope, open, clock, broken: Notify::new() })
    }

    /// Checks that Redis is still the same, and that its clock went on since `before`; also that
    /// the mark is still there, since an edge that only makes tickets asks no question that would
    /// show it.
    async fn check(&self, name: &str, before: &Look) -> Result<Look, RedisFailure> {
        let start = Server::ask(&self.redis, name).await?.mark();
        if !self.mark.starts_with(start.as_bytes()) {
            let words = "it was restarted, or another one has taken over";
            return Err(RedisFailure::Refused(words.into()));
        }
        let clock = Look::at(&self.redis).await?;
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
            Err(RedisFailure::Refused("its memory began anew".into()))
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

/// Takes the mark away: what was forgotten until now nobody knows, so the memory begins anew.
async fn forget(redis: &Redis, name: &str) {
    let mut command = redis::cmd("DEL");
    // A replica refuses that; its mark names another line of replication anyway.
    let _ = redis.ask::<i64>(command.arg(mark_key(name)), ANSWER).await;
}

/// When a mark was made that begins with `start`: its last part, in seconds of Redis's clock.
fn made(mark: &[u8], start: &str) -> Option<u64> {
    let rest = mark.strip_prefix(start.as_bytes())?;
    std::str::from_utf8(rest).ok()?.rsplit_once(':')?.1.parse().ok()
}

/// Identity of a Redis, as INFO tells it.
struct Server {
    run_id: String,
    replication: String,
}

impl Server {
    /// # Errors
    /// Redis is not the master, or may forget keys before their time. What it forgot until then
    /// nobody knows, so whoever finds that out takes the mark away: the memory begins anew.
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

/// A field of INFO of letters and digits: marks are joined from such, with a separator.
fn word<'a>(info: &'a str, name: &str) -> Result<&'a str, RedisFailure> {
    field(info, name)
        .filter(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .ok_or_else(|| RedisFailure::Malformed(format!("INFO without {name}")))
}

/// A field of INFO.
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
    fn a_mark_names_the_process_and_its_line() {
        let server = Server::read(INFO).unwrap();
        assert_eq!(server.mark(), "1:0a1b:2c3d:");
        assert_eq!(made(b"1:0a1b:2c3d:ffff:1790000000", &server.mark()), Some(1_790_000_000));
        for wrong in [&b"1:0a1b:9999:ffff:1790000000"[..], b"1:0a1b:2c3d:ffff", b"", b"\xff"] {
            assert_eq!(made(wrong, &server.mark()), None);
        }
    }

    #[test]
    fn servers_that_evict_or_are_no_master_are_refused() {
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
