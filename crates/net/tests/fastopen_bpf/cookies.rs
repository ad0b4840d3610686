//! Tests which cookies are accepted.

use std::fs;
use std::hint::spin_loop;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use headstart_proto::cookie::{Cookie, CookieKey, CookieRing};

use crate::blocks::{Block, read};
use crate::frame::{Frame, Link};
use crate::program::{LIFE, Loaded, NOW, TAKEN, set_clock};
use crate::support::{key, mint, ring};

/// The longest life of a cookie, which the vectors use.
const LIFE_MAX: u64 = 28_800;

/// A second at which the lower 16 bits of the time wrap: a multiple of 65,536, near [`NOW`].
const WRAP: u64 = NOW / 65_536 * 65_536;

/// Age of maps that are older than any clock, so that no cookie is older than they are.
const BEFORE_ANY_COOKIE: Duration = Duration::from_nanos(1 << 63);

fn client() -> IpAddr {
    [198, 51, 100, 7].into()
}

/// Runs the test vectors of headstart-proto.
pub(crate) fn vectors() {
    let mut loaded = Loaded::with(|options| options.age = BEFORE_ANY_COOKIE);
    let (mut taken, mut refused) = (0, 0);
    for block in &read("cookie_checks.txt") {
        let address: IpAddr = block.number("client");
        // On the wire there is no mapped IPv4 address in an IPv6 packet; elsewhere it means IPv4.
        let address = address.to_canonical();
        loaded.set_keys(&ring(key_of(block)), LIFE_MAX);
        loaded.set_clock(block.number("now"));
        let outcome = loaded.outcome(&Cookie::new(block.array("cookie")), address);
        match block.text("result") {
            "Expired" | "Tag" => {
                assert!(["expired", "forged"].contains(&outcome), "{outcome}: {block:?}");
                refused += 1;
            }
            // Some vectors occur twice, at different times.
            _ => {
                assert!([TAKEN, "replayed"].contains(&outcome), "{outcome}: {block:?}");
                taken += 1;
            }
        }
    }
    assert!(taken >= 5 && refused >= 10, "{taken} taken, {refused} refused");
    let mut minted = 0;
    for block in &read("cookies.txt") {
        let expiry: u64 = block.number("expiry");
        let client: IpAddr = block.number("client");
        // The clock here counts nanoseconds, and no cookie was minted before 1970.
        let has_clock = (LIFE_MAX + 1..u64::MAX / 1_000_000_000).contains(&expiry);
        // A key of zeros, which does not count as a key here.
        let is_zeros = block.array("tag_key") == [0; 16];
        if !has_clock || is_zeros {
            continue;
        }
        minted += 1;
        loaded.set_keys(&ring(key_of(block)), LIFE_MAX);
        loaded.set_clock(expiry - 1);
        let outcome = loaded.outcome(&Cookie::new(block.array("cookie")), client.to_canonical());
        assert!([TAKEN, "replayed"].contains(&outcome), "{outcome}: {block:?}");
    }
    assert!(minted >= 10, "{minted}");
}

fn key_of(block: &Block) -> CookieKey {
    CookieKey::new(block.array("tag_key"), block.array("mask_key"))
}

// F-SERVER-3
pub(crate) fn taken_once() {
    let mut loaded = Loaded::new();
    let cookie = mint(&key(1), NOW + LIFE, client());
    assert_eq!(loaded.outcome(&cookie, client()), TAKEN);
    for _ in 0..3 {
        assert_eq!(loaded.outcome(&cookie, client()), "replayed");
    }
    assert_eq!(loaded.fresh(&key(1), NOW + LIFE, client()), TAKEN);
    assert_eq!(loaded.maps().spent().unwrap(), 2);
    // From another address it is forged, used or not.
    assert_eq!(loaded.outcome(&cookie, [198, 51, 100, 8].into()), "forged");
}

/// Runs two packets with the same cookie as simultaneously as possible. A program that first checks
/// whether a cookie was used, and then marks it, accepted one in fifty twice here, with both
/// processors free.
pub(crate) fn taken_once_by_two_processors() {
    const COOKIES: usize = 10_000;
    let mut loaded = Loaded::new();
    let cookies = (0..COOKIES).map(|_| mint(&key(1), NOW + LIFE, client()));
    let syns = cookies.map(|cookie| Frame::syn(client()).fast_open(cookie.as_bytes()));
    let frames: Vec<_> = syns.map(|frame| frame.bytes()).collect();
    let arrived = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| run_in_step(&loaded, &frames, &arrived, 0));
        run_in_step(&loaded, &frames, &arrived, 1);
    });
    let stats = loaded.maps().stats().unwrap();
    let all = u64::try_from(COOKIES).unwrap();
    assert_eq!((stats.syns, stats.no_listener, stats.replayed), (2 * all, all, all));
}

/// Runs each frame when another thread is about to run it too, `later` times a little more delayed
/// each time, up to some microseconds.
fn run_in_step(loaded: &Loaded, frames: &[Vec<u8>], arrived: &AtomicUsize, later: usize) {
    loaded.within(|runs| {
        for (number, frame) in frames.iter().enumerate() {
            arrived.fetch_add(1, Ordering::SeqCst);
            while !(0..10_000).any(|_| arrived.load(Ordering::SeqCst) >= 2 * (number + 1)) {
                thread::yield_now();
            }
            (0..number % 256 * later).for_each(|_| spin_loop());
            runs.run_bytes(Link::Ethernet, frame, 1);
        }
    });
}

pub(crate) fn three_keys() {
    let mut loaded = Loaded::new();
    let ring = CookieRing { previous: Some(key(1)), current: key(2), next: Some(key(3)) };
    loaded.set_keys(&ring, LIFE);
    for number in 1..=3 {
        assert_eq!(loaded.fresh(&key(number), NOW + 60, client()), TAKEN, "{number}");
    }
    assert_eq!(loaded.fresh(&key(4), NOW + 60, client()), "forged");
    // A cookie of a retired key.
    let ring = CookieRing { previous: Some(key(2)), current: key(3), next: Some(key(4)) };
    loaded.set_keys(&ring, LIFE);
    assert_eq!(loaded.fresh(&key(1), NOW + 60, client()), "forged");
    assert_eq!(loaded.fresh(&key(4), NOW + 60, client()), TAKEN);
}

/// While keys are being written or wiped, another processor may see zeros.
pub(crate) fn zeros_are_no_key() {
    let mut loaded = Loaded::new();
    let [known, used] = [(); 2].map(|()| CookieKey::new([0; 16], [0; 16]));
    loaded.set_keys(&ring(known), LIFE);
    assert_eq!(loaded.fresh(&used, NOW + 60, client()), "forged");
}

/// Without keys, as before an edge starts or after it ends, no cookie is accepted.
pub(crate) fn no_keys() {
    let mut loaded = Loaded::with(|_| {});
    assert_eq!(loaded.fresh(&key(1), NOW + 60, client()), "forged");
    // Without keys, the program does not use a key of zeros.
    assert_eq!(loaded.fresh(&CookieKey::new([0; 16], [0; 16]), NOW + 60, client()), "forged");
    loaded.set_keys(&ring(key(1)), LIFE);
    assert_eq!(loaded.fresh(&key(1), NOW + 60, client()), TAKEN);
    loaded.drop_maps();
    loaded.open_maps();
    assert_eq!(loaded.fresh(&key(1), NOW + 60, client()), "forged");
    loaded.set_keys(&ring(key(1)), LIFE);
    assert_eq!(loaded.fresh(&key(1), NOW + 60, client()), TAKEN);
}

pub(crate) fn addresses_of_ipv6() {
    let mut loaded = Loaded::new();
    let [here, there, elsewhere] =
        ["2001:db8:1:2::7", "2001:db8:1:2:ffff::9", "2001:db8:1:3::7"].map(address);
    assert_eq!(loaded.fresh(&key(1), NOW + 60, here), TAKEN);
    let cookie = mint(&key(1), NOW + 60, here);
    assert_eq!(loaded.outcome(&cookie, elsewhere), "forged");
    assert_eq!(loaded.outcome(&cookie, there), TAKEN);
    assert_eq!(loaded.outcome(&cookie, here), "replayed");
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

// F-SERVER-2
pub(crate) fn life() {
    let mut loaded = Loaded::with(|options| options.age = BEFORE_ANY_COOKIE);
    loaded.set_keys(&ring(key(1)), LIFE);
    for (expiry, outcome) in [
        (NOW + LIFE, TAKEN),
        (NOW + LIFE + 1, "expired"),
        (NOW + LIFE_MAX, "expired"),
        (NOW, TAKEN),
        (NOW - 1, "expired"),
        (NOW - 36_000, "expired"),
        // Too far away for 16 bits to tell past from future: it reads as another time, for which
        // the tag is wrong.
        (NOW + LIFE_MAX + 1, "forged"),
        (NOW - 40_000, "forged"),
        (NOW + 65_536, "forged"),
        (NOW - 65_536, "forged"),
    ] {
        let left = expiry.wrapping_sub(NOW).cast_signed();
        assert_eq!(loaded.fresh(&key(1), expiry, client()), outcome, "{left} s left");
    }
    loaded.set_keys(&ring(key(1)), LIFE_MAX);
    assert_eq!(loaded.fresh(&key(1), NOW + LIFE_MAX, client()), TAKEN);
    // Across the wrap of the 16 bits.
    loaded.set_clock(WRAP - 10);
    assert_eq!(loaded.fresh(&key(1), WRAP + 10, client()), TAKEN);
    loaded.set_clock(WRAP + 10);
    assert_eq!(loaded.fresh(&key(1), WRAP - 1, client()), "expired");
}

/// A rebooted machine does not know which cookies were used before. The clock at boot plays no
/// part, since it may have been wrong.
pub(crate) fn older_than_the_maps() {
    let mut loaded = Loaded::with(|options| options.age = Duration::from_secs(1000));
    loaded.set_keys(&ring(key(1)), LIFE);
    for (known, now) in [NOW, NOW + 365 * 86_400, 1_000_000_000].into_iter().enumerate() {
        loaded.set_clock(now);
        for (minted_ago, outcome) in [(1100, "early"), (900, TAKEN), (0, TAKEN)] {
            let expiry = now - minted_ago + LIFE;
            assert_eq!(loaded.fresh(&key(1), expiry, client()), outcome, "{minted_ago}");
        }
        assert_eq!(loaded.maps().spent().unwrap(), 2 * (known + 1));
    }
}

/// The edge sets the clock. While it is wrong by more than a cookie's life, the program accepts no
/// cookie; once it is right, it accepts them again.
pub(crate) fn clock() {
    let mut loaded = Loaded::new();
    let cookie = mint(&key(1), NOW + LIFE, client());
    for wrong in [NOW + LIFE + 1, NOW - 1, NOW - LIFE, NOW + 36_000] {
        loaded.set_clock(wrong);
        assert_eq!(loaded.outcome(&cookie, client()), "expired", "{wrong}");
    }
    loaded.set_clock(0);
    assert_eq!(loaded.outcome(&cookie, client()), "forged");
    loaded.set_clock(NOW);
    assert_eq!(loaded.outcome(&cookie, client()), TAKEN);
}

pub(crate) fn spent_full() {
    let mut loaded = Loaded::with(|options| options.spent = 2);
    loaded.set_keys(&ring(key(1)), LIFE);
    for outcome in [TAKEN, TAKEN, "full", "full"] {
        assert_eq!(loaded.fresh(&key(1), NOW + LIFE, client()), outcome);
    }
    assert_eq!(loaded.maps().spent().unwrap(), 2);
    // Once there is room again, cookies are accepted again.
    loaded.set_clock(NOW + LIFE + 1);
    assert_eq!(loaded.maps().sweep().unwrap(), 2);
    assert_eq!(loaded.fresh(&key(1), NOW + LIFE + 60, client()), TAKEN);
}

pub(crate) fn sweep() {
    let mut loaded = Loaded::new();
    let [soon, later] = [10, 20].map(|life| mint(&key(1), NOW + life, client()));
    for cookie in [&soon, &later] {
        assert_eq!(loaded.outcome(cookie, client()), TAKEN);
    }
    loaded.set_clock(NOW + 10);
    // In the last second of its life it still counts.
    assert_eq!(loaded.maps().sweep().unwrap(), 0);
    assert_eq!(loaded.outcome(&soon, client()), "replayed");
    loaded.set_clock(NOW + 11);
    assert_eq!(loaded.maps().sweep().unwrap(), 1);
    assert_eq!(loaded.maps().spent().unwrap(), 1);
    assert_eq!(loaded.outcome(&later, client()), "replayed");
    // Neither a clock that is set back nor another edge makes it valid again.
    loaded.set_clock(NOW);
    assert_eq!(loaded.outcome(&soon, client()), "expired");
    loaded.drop_maps();
    loaded.open_maps();
    loaded.set_keys(&ring(key(1)), LIFE);
    assert_eq!(loaded.outcome(&soon, client()), "expired");
    assert_eq!(loaded.outcome(&later, client()), "replayed");
    assert_eq!(loaded.fresh(&key(1), NOW + 20, client()), TAKEN);
}

/// A cookie that one edge has forgotten does not become valid again through another edge that does
/// not know of it.
pub(crate) fn swept_by_another_edge() {
    let mut loaded = Loaded::new();
    let cookie = mint(&key(1), NOW + 10, client());
    assert_eq!(loaded.outcome(&cookie, client()), TAKEN);
    let mut other = loaded.more_maps();
    set_clock(&mut other, NOW + 11);
    assert_eq!(other.sweep().unwrap(), 1);
    // The clock was set back.
    loaded.set_clock(NOW);
    assert_eq!(loaded.outcome(&cookie, client()), "expired");
    drop(other);
    loaded.set_keys(&ring(key(1)), LIFE);
    assert_eq!(loaded.outcome(&cookie, client()), "expired");
    loaded.drop_maps();
    loaded.open_maps();
    loaded.set_keys(&ring(key(1)), LIFE);
    assert_eq!(loaded.outcome(&cookie, client()), "expired");
}

/// Another map is pinned in place of the set of used cookies.
pub(crate) fn another_map_for_spent() {
    let mut loaded = Loaded::new();
    let [setup, spent] = ["setup", "spent_even"].map(|name| loaded.pins().join(name));
    fs::remove_file(&spent).unwrap();
    fs::hard_link(setup, &spent).unwrap();
    loaded.open_maps();
    let error = loaded.maps().spent().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

/// Bit 15 of the expiry selects the map that remembers a cookie: a period of 32,768 s fills one of
/// the two (F-SERVER-5).
pub(crate) fn generations() {
    let half = WRAP + 32_768;
    let mut loaded = Loaded::with(|options| {
        options.spent = 2;
        options.age = BEFORE_ANY_COOKIE;
    });
    loaded.set_keys(&ring(key(1)), LIFE);
    loaded.set_clock(half - 100);
    for (expiry, outcome) in [
        (half - 1, TAKEN),
        (half - 1, TAKEN),
        (half - 1, "full"),
        (half, TAKEN),
        (half + 1, TAKEN),
        (half + 1, "full"),
    ] {
        assert_eq!(loaded.fresh(&key(1), expiry, client()), outcome, "{expiry}");
    }
    // The period is over: its remaining entries are removed, and the map serves the period after
    // the next one.
    loaded.set_clock(half + 10);
    assert_eq!(loaded.maps().sweep().unwrap(), 4);
    loaded.set_clock(half + 32_768 - 10);
    assert_eq!(loaded.fresh(&key(1), half + 32_768, client()), TAKEN);
}
