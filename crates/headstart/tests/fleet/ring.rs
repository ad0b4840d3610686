//! Keys in Redis, with edges that use them.

use std::thread;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{Fleet, KeyRing, PERIOD};
use rustix::process::Signal;

use crate::client::NAME;
use crate::edge::{Edge, until};
use crate::load::{Load, NOTHING};
use crate::proxy::{Mode, Proxy};
use crate::redis::{RING, Redis, url};
use crate::site::Site;

/// Longer than edges take to look for new keys.
const LOOKED: Duration = Duration::from_secs(3);

/// Metric that counts the answers about early data.
const FILTER: &str = "headstart_early_data_filter_total";

/// Log line of an edge that has found some.
const FOUND: &str = "new keys for session tickets";

fn all_logged(edges: &[Edge], words: &str, times: usize) {
    until(words, || edges.iter().all(|edge| edge.logged(words) >= times));
}

/// A ticket of `from` is taken by `to`.
fn resumes(site: &Site, from: &Edge, to: &Edge) -> bool {
    let session = site.client.visit(from.address, "/head", None, false).unwrap().ok().session();
    site.client.visit(to.address, "/head", Some(session), false).unwrap().ok().resumed()
}

#[test]
fn no_rotation_under_load_costs_a_handshake() {
    let (_redis, site, url) = Site::with_redis();
    let edges: [Edge; 3] = site.edges(&url, &[]);
    all_logged(&edges, FOUND, 1);
    let load = Load::on(&site, &edges);
    load.run(|| {
        load.goes_on();
        for rotation in 1..=3 {
            site.rotate(&url);
            all_logged(&edges, FOUND, 1 + rotation);
            // A period is an hour at least: all visitors come back within it.
            load.goes_on();
        }
    });
    assert_eq!(load.spoilt(), [NOTHING; 3]);
    for edge in &edges {
        assert!(!edge.log().contains(crate::redis::PASSWORD));
    }
}

/// ClientHellos with early data that each edge has taken.
fn taken(edges: &[Edge; 3]) -> [u64; 3] {
    edges.each_ref().map(|edge| edge.count(FILTER, &["outcome=\"first\""]))
}

/// Also with early data on its way, about which Redis is asked.
#[test]
fn without_redis_the_keys_at_hand_go_on() {
    let (mut redis, site, url) = Site::with_redis();
    let flags = ["--early-data-requests=safe", "--early-data-filter", &url];
    let edges: [Edge; 3] = site.edges(&url, &flags);
    all_logged(&edges, FOUND, 1);
    let before = redis.value(RING);
    let load = Load::on(&site, &edges);
    load.run(|| {
        load.goes_on();
        // Only then do handshakes ask Redis.
        until("early data is taken everywhere", || taken(&edges).iter().all(|count| *count > 0));
        redis.kill();
        all_logged(&edges, "keys kept: Redis cannot be reached", 1);
        all_logged(&edges, "early data is refused", 1);
        let before = taken(&edges);
        load.goes_on();
        assert_eq!(taken(&edges), before, "nobody is there to say yes");
        // It restarts without keys.
        redis.restart();
        all_logged(&edges, "keys kept: there are no keys yet", 1);
        load.goes_on();
    });
    assert_eq!(load.spoilt(), [NOTHING; 3]);
    // Put back and renewed, they are accepted again.
    redis.ask_bytes(&[b"SET", RING.as_bytes(), &before]);
    site.rotate(&url);
    all_logged(&edges, FOUND, 2);
    assert!(resumes(&site, &edges[0], &edges[2]));
}

/// Redis has nothing on disk: what it knew is gone with it, and somebody makes new keys.
#[test]
fn keys_made_in_place_of_lost_ones_are_taken_by_edges_that_run() {
    let (mut redis, site, url) = Site::with_redis();
    let edges: [Edge; 2] = site.edges(&url, &[]);
    all_logged(&edges, FOUND, 1);
    site.rotate(&url);
    all_logged(&edges, FOUND, 2);
    redis.kill();
    redis.restart();
    site.make_keys(&url);
    let fresh = site.edge(&url, &[]);
    all_logged(&edges, FOUND, 3);
    for edge in &edges {
        assert!(resumes(&site, edge, &fresh) && resumes(&site, &fresh, edge));
    }
}

/// Writes a configuration that names the place of the keys.
fn config(site: &Site, url: &str) -> String {
    site.files.write("edge.toml", format!("[edge]\nkeys = {url:?}\n").as_bytes(), 0o600)
}

/// Such as by another password; the ring there may be an older one.
#[test]
fn a_reload_that_names_another_place_brings_no_older_keys() {
    let (redis, moved, site) = (Redis::start(), Redis::start(), Site::new());
    let url = redis.url();
    site.make_keys(&url);
    let first = redis.value(RING);
    let config = config(&site, &url);
    let origin = format!("--origin={}", site.origin.http());
    let flags = [origin.as_str(), "--fleet", site.fleet(), "--config", &config];
    let [one, other]: [Edge; 2] =
        std::array::from_fn(|_| Edge::start(&site.files, &[NAME], &flags));
    site.rotate(&url);
    for edge in [&one, &other] {
        until("the next keys", || edge.logged(FOUND) == 2);
    }
    moved.ask_bytes(&[b"SET", RING.as_bytes(), &first]);
    self::config(&site, &moved.url());
    one.signal(Signal::HUP);
    until("it is refused", || one.logged("is older than the one in use") == 1);
    assert!(resumes(&site, &one, &other) && resumes(&site, &other, &one));
    assert_eq!(one.logged(FOUND), 2);
    moved.ask_bytes(&[b"SET", RING.as_bytes(), &redis.value(RING)]);
    site.rotate(&moved.url());
    until("newer keys are taken there", || one.logged(FOUND) == 3);
}

#[test]
fn an_edge_that_is_killed_takes_no_other_connection_with_it() {
    let (_redis, site, url) = Site::with_redis();
    let mut edges: Vec<Edge> = site.edges::<3>(&url, &[]).into();
    all_logged(&edges, FOUND, 1);
    let load = Load::on(&site, &edges);
    load.run(|| {
        load.goes_on();
        // As kill -9, with visits on their way.
        drop(edges.pop());
        load.goes_on();
    });
    // Tickets of the one that is gone are taken by the others, and all visits there are answered to
    // the end.
    assert_eq!(load.spoilt()[..2], [NOTHING; 2]);
    assert!(load.spoilt()[2].failed > 0, "it is gone");
}

#[test]
fn an_edge_that_starts_without_redis_serves_and_finds_the_keys_later() {
    let (mut redis, site) = (Redis::start(), Site::new());
    let url = redis.url();
    redis.kill();
    let [one, other]: [Edge; 2] = site.edges(&url, &[]);
    assert!(resumes(&site, &one, &one), "keys of its own");
    assert!(!resumes(&site, &one, &other), "which nobody else has");
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
    let [key, other_key] =
        [&site, &stranger].map(|site| Fleet::load(site.fleet().as_ref()).unwrap().key);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();

    // Do not start with a ring that has not been renewed for long: it may have leaked by now.
    let long_ago = UnixSeconds(now - 3 * PERIOD.as_secs());
    let stale = KeyRing::generate(long_ago, PERIOD).unwrap();
    set(&redis, &stale.seal(&key, "www", 1, long_ago).unwrap());
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
    let foreign = foreign.seal(&other_key, "www", 9, UnixSeconds(now)).unwrap();
    let mut changed = second.clone();
    changed[11] ^= 1; // a later generation
    let text = foreign_text(now);
    for (value, why) in [
        (&first, "is older than the one in use"),
        (&foreign, "was not sealed with this fleet key"),
        (&changed, "was not sealed with this fleet key"),
        (&b"no keys".to_vec(), "this is not a sealed key ring"),
        (&text, "this is not a sealed key ring"),
        (&Vec::new(), "this is not a sealed key ring"),
    ] {
        // Each complaint is logged once, unless another one came in between.
        let (none, edges) = ("keys kept: there are no keys yet", [&one, &other]);
        let [gone, before] = [none, why].map(|words| edges.map(|edge| edge.logged(words)));
        redis.ask(&["DEL", RING]);
        until_more(edges, none, gone);
        set(&redis, value);
        until_more(edges, why, before);
        assert!(resumes(&site, &one, &other), "{why}");
    }
    assert_eq!((one.logged("new keys"), other.logged("new keys")), (2, 2));
    set(&redis, &second);
    site.rotate(&url);
    until("good keys are taken again", || {
        one.logged("new keys") == 3 && other.logged("new keys") == 3
    });
}

fn set(redis: &Redis, ring: &[u8]) {
    redis.ask_bytes(&[b"SET", RING.as_bytes(), ring]);
}

/// Waits until both edges have logged `words` more often than before.
fn until_more(edges: [&Edge; 2], words: &str, before: [usize; 2]) {
    until(words, || edges.iter().zip(before).all(|(edge, before)| edge.logged(words) > before));
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
    for mode in Mode::ALL {
        proxy.set(mode);
        thread::sleep(LOOKED);
        assert!(resumes(&site, &one, &other), "{mode:?}");
    }
    proxy.set(Mode::Pass);
    site.rotate(&redis.url());
    until("new keys are found", || one.logged("new keys") == 2 && other.logged("new keys") == 2);
}
