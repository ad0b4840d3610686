//! Early data that several edges take once among them.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use headstart_proto::hello;
use headstart_tls::Session;

use crate::client::replay;
use crate::edge::{Edge, until};
use crate::proxy::{Mode, Proxy};
use crate::redis::{MARK, Redis, url};
use crate::site::Site;

/// Longer than an edge takes to pass a request on.
const SOON: Duration = Duration::from_millis(700);

/// Longer than edges take to see that something about Redis has changed.
const SEEN: Duration = Duration::from_millis(2500);

/// Pause between attempts: a new memory denies everything for 20 s.
const PAUSE: Duration = Duration::from_millis(500);

const FLAGS: [&str; 2] = ["--early-data-requests=on", "--early-data-filter"];

/// Edges that remember at `place` what keys at `url` were used for.
fn edges<const N: usize>(site: &Site, url: &str, place: &str) -> [Edge; N] {
    site.edges(url, &[FLAGS[0], FLAGS[1], place])
}

fn ticket(site: &Site, edge: SocketAddr) -> Session {
    site.client.visit(edge, "/head/visit", None, false).unwrap().ok().session()
}

/// Returns true if `to` takes early data with a ticket of `from`; the session is resumed in any
/// case, and the request answered.
fn takes(site: &Site, from: &Edge, to: &Edge) -> bool {
    let session = ticket(site, from.address);
    let visit = site.client.visit(to.address, "/head/early", Some(session), true).unwrap().ok();
    assert!(visit.resumed());
    visit.early()
}

fn until_taken(site: &Site, from: &Edge, to: &Edge) {
    until("early data is taken", || {
        let taken = takes(site, from, to);
        if !taken {
            thread::sleep(PAUSE);
        }
        taken
    });
}

/// Returns the filter's count of ClientHellos at an edge with this outcome.
fn counted(edge: &Edge, outcome: &str) -> u64 {
    edge.count("headstart_early_data_filter_total", &[&format!("outcome=\"{outcome}\"")])
}

/// Returns the number of ClientHellos whose early data the edges have taken.
fn taken(edges: &[Edge]) -> u64 {
    edges.iter().map(|edge| counted(edge, "first")).sum()
}

/// Has a request reach the origin as early data through `edge`; the flight that did it.
fn spent(site: &Site, edge: &Edge, path: &str) -> Vec<u8> {
    let mut flight = Vec::new();
    until("early data is taken", || {
        let before = counted(edge, "first");
        flight = site.client.flight(path, ticket(site, edge.address));
        let _open = replay(edge.address, &flight);
        // It asks before it answers.
        let taken = counted(edge, "first") > before;
        if taken {
            until("it is passed on", || site.origin.requests(&format!("GET {path}")) == 1);
        }
        taken
    });
    flight
}

#[test]
fn a_ticket_of_one_edge_brings_early_data_to_another_once() {
    let (_redis, site, url) = Site::with_redis();
    let edges: [Edge; 3] = edges(&site, &url, &url);
    until_taken(&site, &edges[0], &edges[1]);
    assert!(counted(&edges[1], "new") > 0, "a new memory denies everything at first");

    // An answer that a busy machine brings too late denies early data, too; so it is tried until
    // some were taken.
    let (mut came, mut round) = (0, 0);
    while came < 3 {
        round += 1;
        assert!(round < 30, "{came} were taken");
        let path = format!("/head/once/{round}");
        let flight = site.client.flight(&path, ticket(&site, edges[round % 3].address));
        let (get, before) = (format!("GET {path}"), taken(&edges));
        // Twice to each, all at once.
        let together = Barrier::new(6);
        let open: Vec<_> = thread::scope(|scope| {
            let (flight, together) = (&flight, &together);
            let replays = edges.iter().chain(&edges).map(|edge| {
                scope.spawn(move || {
                    together.wait();
                    replay(edge.address, flight)
                })
            });
            let replays: Vec<_> = replays.collect();
            replays.into_iter().map(|replay| replay.join().unwrap()).collect()
        });
        // Each edge asks before it answers.
        let times = taken(&edges) - before;
        assert!(times <= 1, "{times} times");
        until("it is passed on", || site.origin.requests(&get) as u64 == times);
        came += times;
        let again = edges.each_ref().map(|edge| replay(edge.address, &flight));
        thread::sleep(SOON);
        assert_eq!(site.origin.requests(&get) as u64, times, "later, too");
        drop((open, again));
    }
    let seen: u64 = edges.iter().map(|edge| counted(edge, "seen")).sum();
    assert!(seen > 0, "the others were known");
}

#[test]
fn nobody_elses_client_hellos_take_room_in_redis() {
    let (_redis, site, url) = Site::with_redis();
    let [edge]: [Edge; 1] = edges(&site, &url, &url);
    until_taken(&site, &edge, &edge);
    let mut flight = site.client.flight("/head/foreign", ticket(&site, edge.address));
    let hello::Progress::Complete(hello) = hello::read(&flight).unwrap() else {
        panic!("a whole ClientHello");
    };
    let ticket = &hello.psk_identities[0];
    let at = flight.windows(ticket.len()).position(|part| part == ticket).unwrap();
    flight[at + ticket.len() / 2] ^= 1;
    let before = edge.count("headstart_early_data_filter_total", &[]);
    let _open = replay(edge.address, &flight);
    thread::sleep(SOON);
    let after = edge.count("headstart_early_data_filter_total", &[]);
    assert_eq!(after, before, "nobody was asked");
    assert_eq!(site.origin.requests("GET /head/foreign"), 0);
}

#[test]
fn a_memory_that_begins_anew_denies_what_came_before() {
    let (mut redis, site, url) = Site::with_redis();
    let [one, other]: [Edge; 2] = edges(&site, &url, &url);
    until_taken(&site, &one, &other);

    // Flushed by an operator: the site's keys are gone, too, and the local ones stay in use.
    let flight = spent(&site, &one, "/head/flushed");
    let old = ticket(&site, one.address);
    redis.ask(&["FLUSHALL"]);
    assert_eq!(replayed(&site, [&other, &one], &flight, "/head/flushed"), 1);
    until_taken(&site, &one, &other);
    let visit = site.client.visit(other.address, "/head/old", Some(old), true).unwrap().ok();
    assert!(visit.resumed() && !visit.early(), "a ticket of before");

    // Killed and started again.
    let flight = spent(&site, &one, "/head/killed");
    redis.kill();
    assert!(!takes(&site, &one, &other), "nobody is there to ask");
    redis.restart();
    thread::sleep(SEEN);
    assert_eq!(replayed(&site, [&other, &one], &flight, "/head/killed"), 1);
    until_taken(&site, &one, &other);
}

#[test]
fn a_redis_that_may_forget_is_not_asked() {
    let (redis, site, url) = Site::with_redis();
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let [one, other]: [Edge; 2] = edges(&site, &url, &url);
    for edge in [&one, &other] {
        let words = "its maxmemory-policy is allkeys-lru and has to be noeviction";
        until(words, || edge.logged(words) >= 1);
    }
    assert!(!takes(&site, &one, &other));
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until_taken(&site, &one, &other);

    // Changed while in use: it may have forgotten entries meanwhile.
    let flight = spent(&site, &one, "/head/evicted");
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let words = "its maxmemory-policy is volatile-ttl";
    until(words, || other.logged(words) >= 1);
    assert!(!takes(&site, &one, &other));
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    thread::sleep(SEEN);
    assert!(!takes(&site, &one, &other), "the cache starts over");
    assert_eq!(replayed(&site, [&other], &flight, "/head/evicted"), 1);
    until_taken(&site, &one, &other);

    // When full, it accepts nothing more, and neither does the edge without it.
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    thread::sleep(SOON);
    assert!(!takes(&site, &one, &other));
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    until_taken(&site, &one, &other);
}

#[test]
fn a_replica_is_not_asked() {
    let (redis, site, url) = Site::with_redis();
    let [one, other]: [Edge; 2] = edges(&site, &url, &url);
    until_taken(&site, &one, &other);
    let flight = spent(&site, &one, "/head/replica");
    // Demoted and promoted again: it may have lost what its master did not have, and has another
    // line of replication.
    redis.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    thread::sleep(SEEN);
    assert!(!takes(&site, &one, &other));
    until("it is told", || {
        one.logged("early data is refused: Redis refuses: this is a replica") >= 1
    });
    redis.ask(&["REPLICAOF", "NO", "ONE"]);
    thread::sleep(SEEN);
    assert_eq!(replayed(&site, [&other], &flight, "/head/replica"), 1);
    until_taken(&site, &one, &other);
}

/// The replica has the mark, and nothing of what was used last: what failovers lose.
#[test]
fn after_a_failover_nothing_of_before_is_taken() {
    let (mut master, site) = (Redis::start(), Site::new());
    let proxy = Proxy::start(master.address);
    site.make_keys(&master.url());
    let [one, other]: [Edge; 2] = edges(&site, &master.url(), &url(proxy.address));
    until_taken(&site, &one, &other);
    let replica = Redis::replica_of(&master);
    let mark = replica.value(MARK);
    assert_eq!(mark, master.value(MARK));
    replica.promote();
    let flight = spent(&site, &one, "/head/failover");
    let old = ticket(&site, one.address);
    proxy.lead_to(replica.address);
    master.kill();
    let (edges, path) = ([&one, &other], "/head/failover");
    assert_eq!(replayed(&site, edges, &flight, path), 1, "nobody may have noticed yet");
    until("the replica has a mark of its own", || replica.value(MARK) != mark);
    assert_eq!(replayed(&site, edges, &flight, path), 1, "it knows nothing of it");
    until_taken(&site, &one, &other);
    until_taken(&site, &other, &one);
    assert_eq!(replayed(&site, edges, &flight, path), 1, "it says yes again");
    let visit = site.client.visit(other.address, "/head/old", Some(old), true).unwrap().ok();
    assert!(visit.resumed() && !visit.early(), "a ticket of before");
}

/// Plays a flight to edges; returns how often its request, for `path`, has reached the origin in
/// all.
fn replayed<const N: usize>(site: &Site, edges: [&Edge; N], flight: &[u8], path: &str) -> usize {
    let _open = edges.map(|edge| replay(edge.address, flight));
    thread::sleep(SOON);
    site.origin.requests(&format!("GET {path}"))
}

#[test]
fn of_two_masters_a_ticket_counts_with_one() {
    let (master, site) = (Redis::start(), Site::new());
    site.make_keys(&master.url());
    let replica = Redis::replica_of(&master);
    let [one, other] = [&master, &replica]
        .map(|redis| site.edge(&master.url(), &[FLAGS[0], FLAGS[1], &redis.url()]));
    until_taken(&site, &one, &one);
    until("it is told", || {
        other.logged("early data is refused: Redis refuses: this is a replica") >= 1
    });
    replica.promote();
    until_taken(&site, &other, &other);
    // Both may accept now, each only tickets that were issued while it was in use.
    let flights = [(&one, "/head/one"), (&other, "/head/other")]
        .map(|(edge, path)| (spent(&site, edge, path), path));
    for (flight, path) in flights {
        assert_eq!(replayed(&site, [&one, &other], &flight, path), 1, "{path}");
    }
    assert!(!takes(&site, &one, &other) && !takes(&site, &other, &one));
    until_taken(&site, &one, &one);
    until_taken(&site, &other, &other);
}

#[test]
fn whatever_redis_says_nothing_is_taken_that_it_did_not_mean() {
    let (redis, site) = (Redis::start(), Site::new());
    let proxy = Proxy::start(redis.address);
    site.make_keys(&redis.url());
    // The keys arrive separately.
    let [one, other]: [Edge; 2] = edges(&site, &redis.url(), &url(proxy.address));
    until_taken(&site, &one, &other);
    for mode in Mode::ALL {
        let path = format!("/head/{mode:?}");
        let flight = spent(&site, &one, &path);
        proxy.set(mode);
        let open = [(); 3].map(|()| {
            // Both earlier hellos and new ones.
            let open = replay(other.address, &flight);
            assert!(!takes(&site, &one, &other), "{mode:?}");
            open
        });
        thread::sleep(SEEN);
        assert!(!takes(&site, &one, &other), "{mode:?}");
        assert_eq!(site.origin.requests(&format!("GET {path}")), 1, "{mode:?}");
        drop(open);
        proxy.set(Mode::Pass);
        // It is the same memory, so nothing has to age first, unless its clock was set.
        until_taken(&site, &one, &other);
        assert_eq!(replayed(&site, [&other], &flight, &path), 1, "{mode:?} is over");
    }
}
