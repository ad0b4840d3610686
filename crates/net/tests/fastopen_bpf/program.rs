//! The loaded program, with its own maps and a clock set by the tests.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use headstart_emulation::Namespace;
use headstart_net::fastopen::{
    Program, ServerMaps, ServerOptions, Stats, TestRun, attach_server, detach_server,
    unix_minus_boot,
};
use headstart_proto::cookie::{Cookie, CookieKey, CookieRing};

use crate::frame::{Frame, Link, PORT};
use crate::support::{self, bpf};

/// Default time in these checks.
pub(crate) const NOW: u64 = 1_790_000_000;

/// Lifetime of cookies here, in seconds.
pub(crate) const LIFE: u64 = 3600;

/// `TC_ACT_UNSPEC` of linux/pkt_cls.h: the next program decides.
pub(crate) const PASS: i32 = -1;

/// One load of the program.
pub(crate) struct Loaded {
    dir: PathBuf,
    namespace: Namespace,
    programs: [Program; 2],
    maps: Option<ServerMaps>,
}

impl Loaded {
    /// Loads it with [`key`](support::key) 1 and the clock at [`NOW`].
    pub(crate) fn new() -> Self {
        let mut loaded = Self::with(|_| {});
        loaded.set_keys(&support::ring(support::key(1)), LIFE);
        loaded
    }

    /// Loads it with other options, and without keys.
    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let dir = bpf().join(format!("check-{:016x}", rand::random::<u64>()));
        let mut options = ServerOptions {
            dir: dir.clone(),
            age: Duration::from_secs(10 * LIFE),
            ..ServerOptions::new(Vec::new(), PORT)
        };
        change(&mut options);
        let namespace = Namespace::new().unwrap();
        namespace.run(|| attach(&options)).unwrap();
        let programs = ["steer_ethernet", "steer_bare"]
            .map(|name| Program::open(&dir.join("server").join(name)).unwrap());
        let maps = Some(ServerMaps::open(&dir).unwrap());
        Self { dir, namespace, programs, maps }
    }

    pub(crate) fn maps(&mut self) -> &mut ServerMaps {
        self.maps.as_mut().unwrap()
    }

    /// Drops the maps, as when the edge ends.
    pub(crate) fn drop_maps(&mut self) {
        self.maps = None;
    }

    pub(crate) fn open_maps(&mut self) {
        self.maps = Some(ServerMaps::open(&self.dir).unwrap());
    }

    pub(crate) fn set_keys(&mut self, ring: &CookieRing, life: u64) {
        self.maps().set_keys(ring, Duration::from_secs(life)).unwrap();
        self.set_clock(NOW);
    }

    pub(crate) fn set_clock(&mut self, unix: u64) {
        set_clock(self.maps(), unix);
    }

    /// Returns the directory of the server's pins.
    pub(crate) fn pins(&self) -> PathBuf {
        self.dir.join("server")
    }

    /// Opens the maps once more, as another edge would.
    pub(crate) fn more_maps(&self) -> ServerMaps {
        ServerMaps::open(&self.dir).unwrap()
    }

    /// Runs the program on a frame `times` times.
    pub(crate) fn run(&self, frame: &Frame, times: u32) -> TestRun {
        self.within(|runs| runs.run(frame, times))
    }

    /// Runs `work` in the network namespace where packets arrive.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce(&Runs<'_>) -> T + Send) -> T {
        self.namespace.run(|| work(&Runs(&self.programs))).unwrap()
    }

    /// Runs it once; returns the packet as the program left it, and what it counted besides the
    /// SYN, which must be counted if anything is.
    pub(crate) fn pass(&mut self, frame: &Frame) -> (Vec<u8>, Vec<&'static str>) {
        let before = self.maps().stats().unwrap();
        let run = self.run(frame, 1);
        let after = self.maps().stats().unwrap();
        assert_eq!(run.verdict, PASS, "{frame:?}");
        (run.packet, difference(&before, &after))
    }

    /// Returns the counter for a cookie in an ordinary SYN.
    pub(crate) fn outcome(&mut self, cookie: &Cookie, from: IpAddr) -> &'static str {
        let frame = Frame::syn(from).fast_open(cookie.as_bytes());
        let (packet, counted) = self.pass(&frame);
        // The cookie leaves the SYN, accepted or not.
        assert_eq!(packet, frame.stripped().bytes());
        match counted[..] {
            ["syns", outcome] => outcome,
            _ => panic!("{counted:?}"),
        }
    }

    /// Does the same for a fresh cookie of a key that expires at `expiry`.
    pub(crate) fn fresh(&mut self, key: &CookieKey, expiry: u64, from: IpAddr) -> &'static str {
        let cookie = support::mint(key, expiry, from);
        self.outcome(&cookie, from)
    }
}

/// The program in its two forms, for a thread in the right network namespace.
pub(crate) struct Runs<'a>(&'a [Program; 2]);

impl Runs<'_> {
    pub(crate) fn run(&self, frame: &Frame, times: u32) -> TestRun {
        self.run_bytes(frame.link, &frame.bytes(), times)
    }

    pub(crate) fn run_bytes(&self, link: Link, frame: &[u8], times: u32) -> TestRun {
        self.0[usize::from(link == Link::Bare)].test_run(frame, times).unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.maps = None;
        let detached = detach_server(&self.dir, &[]);
        if !std::thread::panicking() {
            assert!(detached.unwrap());
        }
    }
}

/// Counter of an accepted cookie, since there is no hidden listener here.
pub(crate) const TAKEN: &str = "no_listener";

fn attach(options: &ServerOptions) {
    std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
    let status = attach_server(options).unwrap_or_else(|error| panic!("{error}: {}", error.hint()));
    assert_eq!(status.port, PORT);
}

/// Sets the clock to the beginning of a second, so that the second lasts while a check runs.
pub(crate) fn set_clock(maps: &mut ServerMaps, unix: u64) {
    const MARGIN: u64 = 1_000_000;
    let wanted = unix * 1_000_000_000 + MARGIN;
    let ahead = wanted.wrapping_sub(system_nanos());
    maps.set_clock(unix_minus_boot().wrapping_add(ahead)).unwrap();
}

/// Returns the counters that went up, each by one.
fn difference(before: &Stats, after: &Stats) -> Vec<&'static str> {
    let both = before.iter().zip(after.iter());
    both.flat_map(|((name, before), (_, after))| {
        assert!(after - before <= 1, "{name}");
        (after > before).then_some(name)
    })
    .collect()
}

fn system_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}
