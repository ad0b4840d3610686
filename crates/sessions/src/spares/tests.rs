use std::time::Duration;

use super::*;
use crate::limits::{SPARE_HOLD, SPARE_HOLD_MIN, SPARES_PER_HOST};

const RTT: Duration = Duration::from_millis(50);
const LIMIT: usize = 8;

struct World(SparePool<u64>);

fn at(seconds: u64) -> Moment {
    let at = Duration::from_secs(seconds);
    Moment { at, of_day: at }
}

fn key(host: &str) -> SpareKey {
    SpareKey::new(&Context::user(1), host, 443).unwrap()
}

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

impl World {
    fn new(limit: usize) -> Self {
        Self(SparePool::new(limit))
    }

    /// Connects what is due. Returns how many spares were opened.
    fn connect(&mut self, seconds: u64) -> usize {
        let mut opened = 0;
        while let Some((id, _)) = self.0.poll_open(at(seconds)) {
            assert_eq!(self.0.put(id, id, at(seconds)), None);
            opened += 1;
        }
        opened
    }

    /// Opens a connection, with a spare if there is one. Returns true if there was.
    fn open(&mut self, key: &SpareKey, seconds: u64) -> bool {
        self.0.expire(at(seconds));
        let taken = self.0.take(key, at(seconds), |_| true).is_some();
        if taken {
            self.0.on_used(key);
        }
        self.0.on_opening(key, address(), RTT, at(seconds));
        taken
    }
}

#[test]
fn a_host_seen_once_gets_none() {
    let mut world = World::new(LIMIT);
    assert!(!world.open(&key("a.example"), 0));
    assert_eq!((world.connect(0), world.0.timeout()), (0, None));
}

#[test]
fn a_second_opening_in_time_earns_a_spare() {
    let mut world = World::new(LIMIT);
    world.open(&key("a.example"), 0);
    world.open(&key("a.example"), 10);
    assert_eq!((world.connect(10), world.0.held()), (1, 1));
    assert!(world.open(&key("a.example"), 20));
    assert_eq!(world.connect(20), 1, "the one that was used is replaced");
    let end = 20 + SPARE_HOLD.as_secs();
    assert_eq!(world.0.timeout(), Some(Duration::from_secs(end)));
    assert_eq!((world.0.expire(at(end)), world.0.held()), (1, 0));
}

#[test]
fn rare_openings_get_none() {
    let mut world = World::new(LIMIT);
    for minute in 0..60 {
        // Never after the same interval.
        let at = minute * (300 + 90 * (minute % 7));
        assert!(!world.open(&key("a.example"), at));
        assert_eq!(world.connect(at), 0);
    }
}

#[test]
fn a_program_that_polls_finds_a_spare_opened_shortly_before() {
    let mut world = World::new(LIMIT);
    let mut used = 0;
    for round in 0..10_u64 {
        let now = round * 300 + round % 3;
        for second in now.saturating_sub(299)..now {
            world.0.expire(at(second));
            world.connect(second);
            assert!(world.0.held() <= 1);
        }
        used += u64::from(world.open(&key("a.example"), now));
    }
    assert_eq!(used, 7, "all but those by which it is learnt");
}

#[test]
fn what_follows_another_is_ready_for_it() {
    let mut world = World::new(LIMIT);
    let (page, other) = (key("page.example"), key("cdn.example"));
    for visit in [0, 1000] {
        world.open(&page, visit);
        assert_eq!(world.connect(visit), usize::from(visit > 0), "learnt at the first visit");
        assert_eq!(world.open(&other, visit + 1), visit > 0);
    }
}

#[test]
fn addresses_of_a_network_that_is_left_get_no_spares() {
    type Change = fn(&mut SparePool<u64>);
    let changes: [Change; 2] = [
        |pool| assert_eq!(pool.leave(at(1001), |_| true), 1),
        |pool| assert_eq!(pool.reset(LIMIT, at(1001)), 1),
    ];
    for change in changes {
        let mut world = World::new(LIMIT);
        let (page, other) = (key("page.example"), key("cdn.example"));
        world.open(&page, 0);
        world.open(&other, 1);
        world.open(&page, 1000);
        assert_eq!(world.connect(1000), 1);
        change(&mut world.0);
        assert_eq!((world.0.held(), world.0.timeout()), (0, None));
        world.open(&page, 2000);
        assert_eq!(world.connect(2000), 0, "the address may be another host's by now");
        world.open(&other, 2001);
        world.open(&page, 3000);
        assert_eq!(world.connect(3000), 1, "known again");
    }
}

#[test]
fn a_spare_waits_for_the_answer_that_names_its_address() {
    let mut world = World::new(LIMIT);
    let host = key("a.example");
    world.open(&host, 0);
    world.open(&host, 10);
    assert_eq!(world.connect(10), 1);
    // AAAA comes before A.
    assert!(world.0.take(&host, at(11), |address| address.is_ipv6()).is_none());
    assert!(world.0.take(&host, at(11), |address| address.is_ipv4()).is_some());
}

#[test]
fn contexts_do_not_share_what_is_learnt() {
    let mut world = World::new(LIMIT);
    let theirs = SpareKey::new(&Context::user(2), "a.example", 443).unwrap();
    world.open(&key("a.example"), 0);
    world.open(&theirs, 10);
    assert_eq!(world.connect(10), 0);
    world.open(&key("a.example"), 20);
    assert_eq!(world.connect(20), 1);
    assert!(!world.open(&theirs, 21), "not theirs");
    assert_eq!(SpareKey::new(&Context::UNKNOWN, "a.example", 443), None);
}

#[test]
fn a_server_that_closes_spares_shortens_them_and_then_gets_none() {
    let mut world = World::new(LIMIT);
    let host = key("a.example");
    world.open(&host, 0);
    world.open(&host, 10);
    assert_eq!(world.connect(10), 1);
    // A server that waits for ten seconds.
    assert_eq!(world.0.drop_if(at(20), |_, age| Some(Vain::Closed(age))), 1);
    world.open(&host, 21);
    world.open(&host, 22);
    assert!(world.connect(22) > 0);
    let end = Duration::from_secs(22) + Duration::from_secs(10) * 3 / 4;
    assert_eq!(world.0.timeout(), Some(end));
    let soon = 22 + SPARE_HOLD_MIN.as_secs();
    assert!(world.0.drop_if(at(soon), |_, age| Some(Vain::Closed(age))) > 0);
    for second in 0..10 {
        world.open(&host, 30 + second);
        assert_eq!(world.connect(30 + second), 0, "it closes them too soon");
    }
}

#[test]
fn limits_spares_per_host_and_in_all_and_per_user() {
    for (limit, most) in [(1, 1), (3, 2), (7, 4), (8, SPARES_PER_HOST), (64, SPARES_PER_HOST)] {
        let mut world = World::new(limit);
        for second in 0..100 {
            // A burst each second, of more than may be held.
            for _ in 0..6 {
                world.open(&key("a.example"), second);
                world.connect(second);
                assert!(world.0.held() <= most, "{limit}");
            }
        }
        assert_eq!(world.0.held(), most, "{limit}");
    }
}

/// Labels come from the user, who has as many as it likes.
#[test]
fn a_user_with_many_labels_leaves_room_for_others() {
    let mut world = World::new(LIMIT);
    // Each is to have a spare by the next interval.
    for second in [0, 50, 100] {
        for label in 0..4 * LIMIT {
            let context = Context { label: Some(label.to_string()), ..Context::user(2) };
            world.open(&SpareKey::new(&context, "a.example", 443).unwrap(), second);
        }
    }
    world.open(&key("a.example"), 100);
    world.open(&key("a.example"), 101);
    assert_eq!(world.connect(101), 1, "what they wait for leaves room");
    assert_eq!(world.connect(130), LIMIT / 2, "and what they have does");
}

#[test]
fn a_context_with_too_many_in_vain_gets_no_more() {
    let mut world = World::new(LIMIT);
    let mut vain = 0;
    for host in 0..12 {
        let (key, now) = (key(&format!("{host}.example")), host * 100);
        world.open(&key, now);
        world.open(&key, now + 10);
        world.connect(now + 10);
        vain += world.0.expire(at(now + 99));
        world.connect(now + 99);
    }
    // The fifth after ten minutes without any.
    assert_eq!(vain, usize::from(SPARE_BALANCE) + 1);
}

#[test]
fn what_is_forgotten_is_closed() {
    let mut world = World::new(LIMIT);
    world.open(&key("a.example"), 0);
    world.open(&key("a.example"), 10);
    assert_eq!(world.connect(10), 1);
    assert_eq!(world.0.forget(Whose::User(2), at(11)), 0);
    assert_eq!(world.0.forget(Whose::User(1), at(11)), 1);
    world.open(&key("a.example"), 12);
    assert_eq!((world.connect(12), world.0.held()), (0, 0));
}

#[test]
fn what_is_forgotten_is_not_connected() {
    let mut world = World::new(LIMIT);
    world.open(&key("a.example"), 0);
    world.open(&key("a.example"), 10);
    let (id, _) = world.0.poll_open(at(10)).unwrap();
    assert!(world.0.is_wanted(id));
    assert_eq!(world.0.forget(Whose::User(1), at(11)), 1);
    assert!(!world.0.is_wanted(id));
    assert_eq!((world.0.put(id, id, at(11)), world.0.held()), (Some(id), 0));
}

#[test]
fn a_pool_of_none_learns_nothing() {
    let mut world = World::new(0);
    world.open(&key("a.example"), 0);
    world.open(&key("a.example"), 1);
    assert_eq!((world.connect(1), world.0.timeout()), (0, None));
}

#[test]
fn hours_are_those_of_the_day() {
    let now = Moment { at: Duration::from_secs(10_000), of_day: Duration::from_secs(3 * 3600) };
    assert_eq!((now.hour(), now.hour_of(Duration::from_secs(9_999))), (3, 2));
    assert_eq!(now.hour_of(Duration::ZERO), 0);
    assert_eq!(now.hour_of(Duration::from_secs(10_000 + 21 * 3600)), 0);
}
