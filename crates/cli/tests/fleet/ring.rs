//! Keys in Redis, with edges that use them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_tls::Session;
use headstart_tls::keyring::{Fleet, KeyRing, PERIOD};

use crate::edge::{Edge, until};
use crate::proxy::{Mode, Proxy};
use crate::redis::{RING, Redis, url};
use crate::site::Site;

/// Longer than edges take to find new keys.
const FOUND: Duration = Duration::from_secs(3);

/// What visits came to.
#[derive(Default)]
struct Count {
    resumed: AtomicUsize,
    full: AtomicUsize,
    failed: AtomicUsize,
}

impl Count {
    fn all(&self) -> [usize; 3] {
        [&self.resumed, &self.full, &self.failed].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Returning clients visit one edge after another, each with the ticket of the last one, while `meanwhile` happens.
fn load(site: &Site, edges: &[SocketAddr], meanwhile: impl FnOnce()) -> [usize; 3] {
    let (count, over) = (Count::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..4 {
            let (count, over) = (&count, &over);
            scope.spawn(move || {
                let first = site.client.visit(edges[number % edges.len()], "/head", None, false);
                let mut session: Option<Session> = first.unwrap().ok().session;
                let mut turn = number;
                while !over.load(Ordering::SeqCst) {
                    turn += 1;
                    let edge = edges[turn % edges.len()];
                    match site.client.visit(edge, "/head", session.clone(), false) {
                        Ok(visit) if visit.answer.starts_with("HTTP/1.1 200") => {
                            let which = if visit.resumed() { &count.resumed } else { &count.full };
                            which.fetch_add(1, Ordering::SeqCst);
                            session = visit.session.or(session);
                        }
                        _ => drop(count.failed.fetch_add(1, Ordering::SeqCst)),
                    }
                }
            });
        }
        meanwhile();
        over.store(true, Ordering::SeqCst);
    });
    count.all()
}

fn addresses(edges: &[Edge]) -> Vec<SocketAddr> {
    edges.iter().map(|edge| edge.address).collect()
}

/// A ticket of `from` is taken by `to`.
fn resumes(site: &Site, from: &Edge, to: &Edge) -> bool {
    let session = site.client.visit(from.address, "/head", None, false).unwrap().ok().session();
    site.client.visit(to.address, "/head", Some(session), false).unwrap().ok().resumed()
}

#[test]
fn no_rotation_under_load_costs_a_handshake() {
    let (redis, site) = (Redis::start(), Site::new());
    let url = redis.url();
    site.make_keys(&url);
    let edges: [Edge; 3] = site.edges(&url, &[]);
    let [resumed, full, failed] = load(&site, &addresses(&edges), || {
        for _ in 0..3 {
            thread::sleep(FOUND);
            site.rotate(&url);
        }
        thread::sleep(FOUND);
    });
    assert_eq!((full, failed), (0, 0), "beside {resumed} that were resumed");
    assert!(resumed > 100, "{resumed}");
    for edge in &edges {
        // The first keys, and three rotations.
        assert_eq!(edge.logged("new keys for session tickets"), 4);
        assert!(!edge.log().contains(crate::redis::PASSWORD));
    }
}

#[test]
fn without_redis_the_keys_at_hand_go_on() {
    let (mut redis, site) = (Redis::start(), Site::new());
    let url = redis.url();
    site.make_keys(&url);
    let edges: [Edge; 3] = site.edges(&url, &[]);
    let before = redis.value(RING);
    let [resumed, full, failed] = load(&site, &addresses(&edges), || {
        thread::sleep(Duration::from_secs(1));
        redis.kill();
        thread::sleep(FOUND);
        // It comes back and knows of no keys.
        redis.restart();
        thread::sleep(FOUND);
    });
    assert_eq!((full, failed), (0, 0), "beside {resumed} that were resumed");
    for edge in &edges {
        assert!(edge.logged("keys kept: Redis cannot be reached") >= 1);
        until("the loss is told", || edge.logged("keys kept: there are no keys yet") == 1);
    }
    // Put back and renewed, they are taken again.
    redis.ask_bytes(&[b"SET", RING.as_bytes(), &before]);
    site.rotate(&url);
    for edge in &edges {
        until("the new keys", || edge.logged("new keys for session tickets") == 2);
    }
    assert!(resumes(&site, &edges[0], &edges[2]));
}

#[test]
fn an_edge_that_starts_without_redis_serves_and_finds_the_keys_later() {
    let (mut redis, site) = (Redis::start(), Site::new());
    let url = redis.url();
    redis.kill();
    let [one, other]: [Edge; 2] = site.edges(&url, &[]);
    assert!(resumes(&site, &one, &one), "keys of its own");
    assert!(!resumes(&site, &one, &other));
    redis.restart();
    site.make_keys(&url);
    for edge in [&one, &other] {
        until("the keys", || edge.logged("new keys for session tickets") == 1);
    }
    assert!(resumes(&site, &one, &other));
}

#[test]
fn older_stale_foreign_and_malformed_rings_are_not_taken() {
    let (redis, site, stranger) = (Redis::start(), Site::new(), Site::new());
    let url = redis.url();
    let key = |site: &Site| Fleet::load(site.fleet().as_ref()).unwrap().key;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let set = |value: &[u8]| drop(redis.ask_bytes(&[b"SET", RING.as_bytes(), value]));

    // One that nobody has renewed for long is no ring to start with: it may be anybody's by now.
    let long_ago = UnixSeconds(now - 3 * PERIOD.as_secs());
    let stale = KeyRing::generate(long_ago, PERIOD).unwrap();
    set(&stale.seal(&key(&site), "www", 1, long_ago).unwrap());
    let [one, other]: [Edge; 2] = site.edges(&url, &[]);
    until("it is refused", || one.logged("should have been renewed more than a period ago") == 1);
    assert!(!resumes(&site, &one, &other));

    redis.ask(&["DEL", RING]);
    site.make_keys(&url);
    let first = redis.value(RING);
    until("the keys", || one.logged("new keys") == 1 && other.logged("new keys") == 1);
    site.rotate(&url);
    let second = redis.value(RING);
    until("the next keys", || one.logged("new keys") == 2 && other.logged("new keys") == 2);

    let foreign = KeyRing::generate(UnixSeconds(now), PERIOD).unwrap();
    let foreign = foreign.seal(&key(&stranger), "www", 9, UnixSeconds(now)).unwrap();
    let mut changed = second.clone();
    changed[11] ^= 1; // a later generation
    let text = foreign_text(now);
    for (value, why) in [
        (&first, "of generation 1 is older than that in use, of generation 2"),
        (&foreign, "was not sealed with this fleet key"),
        (&changed, "was not sealed with this fleet key"),
        (&b"no keys".to_vec(), "this is no sealed key ring"),
        (&text, "this is no sealed key ring"),
    ] {
        let before = one.logged(why);
        set(value);
        until("it is refused", || one.logged(why) > before || before > 0);
        assert!(resumes(&site, &one, &other), "{why}");
    }
    set(b"");
    thread::sleep(FOUND);
    assert_eq!((one.logged("new keys"), other.logged("new keys")), (2, 2));
    set(&second);
    site.rotate(&url);
    until("good keys are taken again", || {
        one.logged("new keys") == 3 && other.logged("new keys") == 3
    });
}

/// A ring as a file has it, not sealed.
fn foreign_text(now: u64) -> Vec<u8> {
    KeyRing::generate(UnixSeconds(now), PERIOD).unwrap().to_text().as_bytes().to_vec()
}

/// Redis that says something else than what was asked costs nothing but a line in the log.
#[test]
fn whatever_redis_says_sessions_are_resumed() {
    let (redis, site) = (Redis::start(), Site::new());
    let proxy = Proxy::start(redis.address);
    site.make_keys(&redis.url());
    let url = url(proxy.address);
    let [one, other]: [Edge; 2] = site.edges(&url, &[]);
    for mode in [
        Mode::Silent,
        Mode::Slow,
        Mode::Garbage,
        Mode::Ahead,
        Mode::Huge,
        Mode::Endless,
        Mode::Closed,
    ] {
        proxy.set(mode);
        thread::sleep(FOUND);
        assert!(resumes(&site, &one, &other), "{mode:?}");
    }
    proxy.set(Mode::Pass);
    site.rotate(&redis.url());
    until("new keys are found", || one.logged("new keys") == 2 && other.logged("new keys") == 2);
}
