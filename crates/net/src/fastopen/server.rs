//! The edge's view of the server's program: maps that it may write without privilege.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{CookieKey, CookieRing};
use headstart_proto::limits::COOKIE_LIFE_MAX;
use rustix::time::{ClockId, clock_gettime};
use zeroize::{Zeroize, Zeroizing};

use super::hidden::HiddenListener;
use super::layout::{
    CONFIG, Config, FIRST, HIDDEN, KEYS, KeyBytes, LAYOUT, LISTENERS, PUBLIC, SERVER_COUNTS,
    SERVER_STATS, SETUP, SPENT, Setup, server_stats, sums,
};
use super::owner;
use super::stats::Stats;
use super::unavailable::{Unavailable, check_syn_cookies};
use crate::sys::{self, Access, Map};

/// Subdirectory of the server's pins.
pub(super) const SIDE: &str = "server";

/// Interval for calling [`ServerMaps::refresh`]: meanwhile a clock step goes unnoticed, and expired
/// cookies still use memory.
pub const REFRESH: Duration = Duration::from_secs(60);

/// The maps of the attached program, for the process whose hidden listener it feeds.
///
/// Call in this order: [`open`](Self::open), [`set_keys`](Self::set_keys),
/// [`set_hidden`](Self::set_hidden) and [`set_public`](Self::set_public), then
/// [`refresh`](Self::refresh) every [`REFRESH`]. Until then, and once this is dropped, the program
/// accepts no cookie. The listeners and their connections do not need this value.
///
/// If several processes have the maps open, as when one edge takes over from another, the last
/// write counts.
#[derive(Debug)]
pub struct ServerMaps {
    dir: PathBuf,
    setup: Setup,
    config: Map,
    listeners: Map,
    spent: [Map; 2],
    stats: Map,
    now: Config,
    /// True if the kernel answers every SYN with a SYN cookie: then the hidden listener gets none.
    syn_cookies: bool,
    keys: Keys,
    published: Stats,
}

/// Secrets by slot, wiped when they are replaced or dropped.
#[derive(Default)]
struct Keys([Option<KeyBytes>; KEYS]);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        for (tag, mask) in self.0.iter_mut().flatten() {
            tag.zeroize();
            mask.zeroize();
        }
    }
}

impl Keys {
    fn from_ring(ring: &CookieRing) -> Self {
        // The current key first: the program tries them in this order.
        let keys = [Some(&ring.current), ring.previous.as_ref(), ring.next.as_ref()];
        Self(keys.map(|key| key.map(secrets)))
    }
}

fn secrets(key: &CookieKey) -> KeyBytes {
    let (tag, mask) = key.secrets();
    (*tag, *mask)
}

impl ServerMaps {
    /// Opens the maps that `headstart fastopen attach server` pinned in this directory, by default
    /// [`PIN_DIR`](super::PIN_DIR).
    ///
    /// # Errors
    /// [`Unavailable::NoMaps`] if nothing is pinned there, [`Unavailable::Denied`] if this user may
    /// not open it, [`Unavailable::Foreign`] if another user could have pinned it,
    /// [`Unavailable::Layout`] if another version did.
    pub fn open(dir: &Path) -> Result<Self, Unavailable> {
        check_owner(dir, SIDE)?;
        let dir = dir.join(SIDE);
        let setup = read_setup(&open(dir.join(SETUP), Access::Read)?)?;
        if setup.layout != LAYOUT {
            return Err(Unavailable::Layout);
        }
        let [even, odd] = SPENT;
        let config = open(dir.join(CONFIG), Access::ReadWrite)?;
        let (now, _) = read_config(&config)?;
        let mut maps = Self {
            setup,
            config,
            listeners: open(dir.join(LISTENERS), Access::ReadWrite)?,
            spent: [
                open(dir.join(even), Access::ReadWrite)?,
                open(dir.join(odd), Access::ReadWrite)?,
            ],
            stats: open(dir.join(SERVER_STATS), Access::Read)?,
            // Another edge's ports and keys are not ours; the swept time stays.
            now: Config { swept: now.swept, ..Config::default() },
            syn_cookies: false,
            keys: Keys::default(),
            published: Stats::default(),
            dir,
        };
        maps.published = maps.stats().map_err(Unavailable::system("reading counters"))?;
        Ok(maps)
    }

    /// Returns the port whose SYNs the program inspects: that of the public listener.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.setup.port
    }

    /// Accepts cookies of these keys, minted to live for `life`, at most [`COOKIE_LIFE_MAX`]; also
    /// sets the program's clock.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn set_keys(&mut self, ring: &CookieRing, life: Duration) -> io::Result<()> {
        self.keys = Keys::from_ring(ring);
        self.now.life = u32::try_from(life.min(COOKIE_LIFE_MAX).as_secs()).unwrap_or(0);
        self.now.unix_minus_boot = unix_minus_boot();
        self.write()
    }

    /// Returns true if these maps belong to the program now attached: false after it was detached
    /// or attached again.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        let pinned = Map::open(&self.dir.join(CONFIG), Access::Read);
        pinned.is_ok_and(|pinned| pinned.is_same(&self.config))
    }

    /// Sends valid SYNs of the listener's family to it, instead of one that was set before.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn set_hidden(&mut self, listener: &HiddenListener) -> io::Result<()> {
        self.mark(listener.listener.as_fd(), HIDDEN)?;
        let local = listener.local_addr();
        let port = if local.is_ipv4() { &mut self.now.hidden4 } else { &mut self.now.hidden6 };
        *port = local.port();
        self.write()
    }

    /// Sends valid SYNs for this listener, on the protected port, to the hidden one. May be called
    /// for several listeners.
    ///
    /// Turns the kernel's own Fast Open off for it: `net.ipv4.tcp_fastopen` can turn it on for all
    /// listeners (0x400), even without cookies (0x200), and then unchecked data would come in.
    ///
    /// # Errors
    /// Errors of setsockopt(2) and bpf(2).
    pub fn set_public(&self, listener: impl AsFd) -> io::Result<()> {
        let (listener, off) = (listener.as_fd(), 0_i32.to_ne_bytes());
        // F-SERVER-4
        sys::set_option(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &off)?;
        self.mark(listener, PUBLIC)
    }

    /// Sets the program's clock, forgets expired cookies, and does what [`publish`](Self::publish)
    /// does. Returns how many cookies were forgotten.
    ///
    /// Takes some milliseconds for every ten thousand cookies remembered, so call it from a thread
    /// that may block, in the network namespace of the listeners.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn refresh(&mut self) -> io::Result<usize> {
        self.publish()?;
        self.check_forced_syn_cookies();
        self.set_clock(unix_minus_boot())?;
        self.sweep()
    }

    /// Sets the program's clock: unix time minus the time since boot, in nanoseconds.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn set_clock(&mut self, unix_minus_boot: u64) -> io::Result<()> {
        self.now.unix_minus_boot = unix_minus_boot;
        self.write()
    }

    /// Forgets cookies that have expired by the program's clock; returns how many.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn sweep(&mut self) -> io::Result<usize> {
        let now = self.now.unix_minus_boot.wrapping_add(since_boot()) / 1_000_000_000;
        if now < self.now.swept {
            let seconds = self.now.swept - now;
            tracing::warn!(
                seconds,
                hint = "if that is long: `headstart fastopen detach server`, attach it, \
                        and start the edge again",
                "the clock was set back: cookies that expire in between are refused"
            );
        }
        // Before anything is forgotten: a clock set back must not make these valid again.
        self.now.swept = self.now.swept.max(now.saturating_sub(1));
        self.write()?;
        let mut forgotten = 0;
        for map in &self.spent {
            forgotten += sweep(map, self.now.swept)?;
        }
        Ok(forgotten)
    }

    /// Returns the program's counters since it was attached.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn stats(&self) -> io::Result<Stats> {
        Ok(server_stats(&read_counts(&self.stats, SERVER_COUNTS)?))
    }

    /// Returns the number of used cookies remembered.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn spent(&self) -> io::Result<usize> {
        let [even, odd] = &self.spent;
        Ok(count(even)? + count(odd)?)
    }

    /// Adds the program's counts since the last call to the metrics
    /// (`headstart_fastopen_syns_total`).
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn publish(&mut self) -> io::Result<()> {
        let stats = self.stats()?;
        for ((outcome, now), (_, before)) in stats.iter().zip(self.published.iter()) {
            // `syns` is the sum of the others, and more.
            if outcome != "syns" {
                metrics::counter!("headstart_fastopen_syns_total", "outcome" => outcome)
                    .increment(now.saturating_sub(before));
            }
        }
        self.published = stats;
        Ok(())
    }

    fn mark(&self, listener: BorrowedFd<'_>, mark: [u8; 4]) -> io::Result<()> {
        self.listeners.set(&listener.as_raw_fd().to_ne_bytes(), &mark)
    }

    /// Handles SYN cookies forced after the start; at the start they are refused.
    fn check_forced_syn_cookies(&mut self) {
        let forced = check_syn_cookies();
        if let (Err(why), false) = (&forced, self.syn_cookies) {
            tracing::warn!(hint = why.hint(), "no connection opens by Fast Open: {why}");
        }
        self.syn_cookies = forced.is_err();
    }

    fn write(&mut self) -> io::Result<()> {
        self.keep_swept();
        let value = Zeroizing::new(self.config_for_program().to_bytes(&self.keys.0));
        self.config.set(&FIRST, value.as_slice())
    }

    /// Returns the configuration for the program.
    fn config_for_program(&self) -> Config {
        match self.syn_cookies {
            true => Config { hidden4: 0, hidden6: 0, ..self.now },
            false => self.now,
        }
    }

    /// Keeps the later swept time, since another edge may have swept after this one.
    fn keep_swept(&mut self) {
        if let Ok((there, _)) = read_config(&self.config) {
            self.now.swept = self.now.swept.max(there.swept);
        }
    }
}

/// Accepts no cookie for a listener that is about to close, and leaves no key behind.
impl Drop for ServerMaps {
    fn drop(&mut self) {
        // Unless another process has taken over and set its own ports.
        self.keep_swept();
        let config_for_program = self.config_for_program();
        let is_ours = read_config(&self.config).is_ok_and(|(config, _)| {
            (config.hidden4, config.hidden6)
                == (config_for_program.hidden4, config_for_program.hidden6)
        });
        if is_ours {
            let swept = Config { swept: self.now.swept, ..Config::default() };
            // If even that fails, closing the listener alone keeps the program from steering.
            let _ = self.config.set(&FIRST, &swept.to_bytes(&[None; KEYS]));
        }
    }
}

/// Opens a pinned map; explains why if that fails.
pub(super) fn open(path: PathBuf, access: Access) -> Result<Map, Unavailable> {
    Map::open(&path, access).map_err(no_pin(path))
}

/// Checks that only root and this user could have made the pins.
pub(super) fn check_owner(dir: &Path, side: &str) -> Result<(), Unavailable> {
    match owner::foreign_directory(dir, side).map_err(no_pin(dir.join(side)))? {
        None => Ok(()),
        Some(directory) => Err(Unavailable::Foreign(directory)),
    }
}

fn no_pin(path: PathBuf) -> impl FnOnce(io::Error) -> Unavailable {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => Unavailable::NoMaps(path),
        io::ErrorKind::PermissionDenied => Unavailable::Denied(path),
        _ => Unavailable::System { what: "opening a pin", source: error },
    }
}

pub(super) fn read_setup(map: &Map) -> Result<Setup, Unavailable> {
    let value = map.get(&FIRST).map_err(Unavailable::system("reading a pinned map"))?;
    value.and_then(|value| Setup::parse(&value)).ok_or(Unavailable::Layout)
}

/// Returns the edge's configuration, and how many keys it has.
pub(super) fn read_config(map: &Map) -> Result<(Config, usize), Unavailable> {
    let value = map.get(&FIRST).map_err(Unavailable::system("reading a pinned map"))?;
    let value = value.map(Zeroizing::new);
    value.and_then(|value| Config::parse(&value)).ok_or(Unavailable::Layout)
}

/// Returns the counters of a per-processor array.
pub(super) fn read_counts(map: &Map, counters: u32) -> io::Result<Vec<u64>> {
    let values: io::Result<Vec<_>> = (0..counters)
        .map(|counter| Ok(map.get(&counter.to_ne_bytes())?.unwrap_or_default()))
        .collect();
    Ok(sums(values?))
}

/// Returns the number of entries of a hash map.
pub(super) fn count(map: &Map) -> io::Result<usize> {
    let mut entries = 0;
    for_each(map, |_, _| entries += 1)?;
    Ok(entries)
}

/// Removes cookies that expired until `swept`; returns how many.
fn sweep(map: &Map, swept: u64) -> io::Result<usize> {
    let mut expired = Vec::new();
    for_each(map, |tag, expiry| {
        if expiry <= swept {
            expired.push(tag);
        }
    })?;
    let mut removed = 0;
    for tag in expired {
        removed += usize::from(map.remove(&tag)?);
    }
    Ok(removed)
}

/// Calls `show` with each tag, as it is in the map, and its expiry.
fn for_each(map: &Map, mut show: impl FnMut([u8; 8], u64)) -> io::Result<()> {
    let mut from = None;
    loop {
        let batch = map.batch(from)?;
        let (tags, _) = batch.keys.as_chunks::<8>();
        let (expiries, _) = batch.values.as_chunks::<8>();
        for (tag, expiry) in tags.iter().zip(expiries) {
            show(*tag, u64::from_le_bytes(*expiry));
        }
        if batch.next.is_none() {
            return Ok(());
        }
        from = batch.next;
    }
}

/// Returns unix time minus time since boot in nanoseconds, by the current clocks.
#[must_use]
pub fn unix_minus_boot() -> u64 {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    nanos(unix).wrapping_sub(since_boot())
}

/// Converts `boot` nanoseconds since boot to unix time by the current clocks, as the program does.
pub(super) fn unix_at(boot: u64) -> UnixSeconds {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let age = since_boot().wrapping_sub(boot);
    UnixSeconds(nanos(unix).saturating_sub(age) / 1_000_000_000)
}

/// Returns the value of `bpf_ktime_get_boot_ns`, which includes time asleep.
pub(super) fn since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(rest)
}

/// Converts a time to nanoseconds; enough until the year 2554.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
