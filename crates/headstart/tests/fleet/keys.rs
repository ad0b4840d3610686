//! `headstart keys` with a place in Redis.

use std::thread;

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{Fleet, FleetKey, KeyRing, PERIOD, Sealed};

use crate::ports::free;
use crate::redis::{self, PASSWORD, RING, Redis};
use crate::site::{Site, keys};

/// The ring at its place, opened.
fn ring(redis: &Redis, fleet: &str) -> Sealed {
    let key: FleetKey = Fleet::load(fleet.as_ref()).unwrap().key;
    Sealed::open(&redis.value(RING), &key, "www").unwrap()
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}

#[test]
fn keys_are_made_once_shown_and_renewed() {
    let (redis, site) = (Redis::start(), Site::new());
    let (url, fleet) = (redis.url(), site.fleet());
    let missing = keys(&["show", &url, "--fleet", fleet]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("there are no keys at redis://"), "{}", missing.err);
    site.make_keys(&url);
    let again = keys(&["new", &url, "--fleet", fleet]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("there are keys already"), "{}", again.err);
    let before = keys(&["show", &url, "--fleet", fleet]).ok();
    assert!(before.starts_with("rotated every 12h, due "), "{before}");
    let first = ring(&redis, fleet).generation;
    keys(&["rotate", "--if-due", &url, "--fleet", fleet]).ok();
    assert_eq!(keys(&["show", &url, "--fleet", fleet]).ok(), before);
    site.rotate(&url);
    let after = keys(&["show", &url, "--fleet", fleet]).ok();
    let [before, after_it] = [&before, &after]
        .map(|text| text.lines().nth(3).unwrap().split_whitespace().last().unwrap());
    assert_eq!(after_it, before, "what was current is previous");
    assert_eq!((ring(&redis, fleet).generation, after.lines().count()), (first + 1, 6));
    // The content of Redis reveals none of it.
    let sealed = redis.value(RING);
    for epoch in ring(&redis, fleet).ring.epochs() {
        let name = epoch.ticket_name();
        assert!(!sealed.windows(16).any(|part| part == name));
    }
}

#[test]
fn without_the_right_fleet_there_are_no_keys() {
    let (redis, site, stranger) = (Redis::start(), Site::new(), Site::new());
    let url = redis.url();
    site.make_keys(&url);
    let before = redis.value(RING);
    let none = keys(&["show", &url]);
    assert!(none.err.contains("--fleet is missing\nhint: "), "{}", none.err);
    for arguments in [["show", &url], ["rotate", &url]] {
        let output = keys(&[&arguments[..], &["--fleet", stranger.fleet()]].concat());
        assert_eq!(output.code, Some(2));
        assert!(output.err.contains("was not sealed with this fleet key"), "{}", output.err);
    }
    assert_eq!(redis.value(RING), before, "nothing was changed");
    let elsewhere = keys(&["show", &url.replace("=www", "=api"), "--fleet", site.fleet()]);
    assert!(elsewhere.err.contains("there are no keys at"), "{}", elsewhere.err);
    // A ring of another site, put in this one's place.
    redis.ask_bytes(&[b"SET", b"headstart:{api}:ring", &redis.value(RING)]);
    let moved = keys(&["show", &url.replace("=www", "=api"), "--fleet", site.fleet()]);
    assert!(moved.err.contains("was not sealed with"), "{}", moved.err);
}

#[test]
fn redis_that_does_not_answer_is_explained() {
    let (mut redis, site) = (Redis::start(), Site::new());
    let url = redis.url();
    let wrong = keys(&["show", &url.replace("pass-of", "word-of"), "--fleet", site.fleet()]);
    let refused = "Redis refuses: Password authentication failed";
    assert!(wrong.err.contains(refused) && wrong.err.contains("\nhint: "), "{}", wrong.err);
    redis.kill();
    let away = keys(&["show", &url, "--fleet", site.fleet()]);
    assert_eq!(away.code, Some(2));
    assert!(away.err.contains("Redis cannot be reached"), "{}", away.err);
    let file = site.files.write("password", b"pass-of-redis\n", 0o600);
    redis.restart();
    let url = format!("redis://{}?name=www&password-file={file}", redis.address);
    site.make_keys(&url);
    assert_eq!(ring(&redis, site.fleet()).ring.period, PERIOD);
    for (mode, why) in [(0o644, "a secret that others may read"), (0o620, "others may write to it")]
    {
        site.files.write("password", b"pass-of-redis\n", mode);
        let refused = keys(&["show", &url, "--fleet", site.fleet()]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.err.contains(why), "{}", refused.err);
    }
}

#[test]
fn inside_tls_the_certificate_of_redis_is_checked() {
    let site = Site::new();
    site.files.issue("localhost");
    let [certificate, key] = ["pem", "key"].map(|end| site.files.path(&format!("localhost.{end}")));
    let port = free().port().to_string();
    let flags = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let more = ["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"];
    let flags = flags.into_iter().chain(more).map(str::to_owned).collect();
    let redis = Redis::start_with(flags);
    let ca = format!("&ca={certificate}");
    let [good, unknown, other] =
        [("localhost", ca.as_str()), ("localhost", ""), ("127.0.0.1", ca.as_str())]
            .map(|(host, ca)| format!("rediss://:{PASSWORD}@{host}:{port}?name=www{ca}"));
    site.make_keys(&good);
    assert_eq!(ring(&redis, site.fleet()).ring.period, PERIOD);
    for (wrong, why) in [(unknown, "unknown issuer"), (other, "is for another name")] {
        let output = keys(&["show", &wrong, "--fleet", site.fleet()]);
        assert_eq!(output.code, Some(2));
        assert!(output.err.contains(why), "{}", output.err);
    }
}

/// A ring that should have been renewed; several timers find that out at once.
#[test]
fn of_several_who_renew_keys_that_are_due_one_does() {
    let (redis, site) = (Redis::start(), Site::new());
    let key = Fleet::load(site.fleet().as_ref()).unwrap().key;
    for round in 0..3 {
        let due = KeyRing::generate(UnixSeconds(now() - PERIOD.as_secs()), PERIOD).unwrap();
        let sealed = due.seal(&key, "www", 5, UnixSeconds(now())).unwrap();
        redis.ask_bytes(&[b"SET", RING.as_bytes(), &sealed]);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    keys(&["rotate", "--if-due", &redis.url(), "--fleet", site.fleet()]).ok()
                });
            }
        });
        let renewed = ring(&redis, site.fleet());
        assert_eq!(renewed.generation, 6, "round {round}");
        assert_eq!(renewed.ring.current.id, due.next.id);
        assert_eq!(renewed.ring.current.ticket_name(), due.next.ticket_name());
    }
}

/// Somebody may know its keys, by an old backup of a machine; he needs no more than a place in
/// Redis to put it back.
#[test]
fn nothing_goes_on_from_keys_of_long_ago() {
    let (redis, site) = (Redis::start(), Site::new());
    let (url, fleet) = (redis.url(), site.fleet());
    let key = Fleet::load(fleet.as_ref()).unwrap().key;
    let long_ago = UnixSeconds(now() - 3 * PERIOD.as_secs());
    let old = KeyRing::generate(long_ago, PERIOD).unwrap();
    redis.ask_bytes(&[b"SET", RING.as_bytes(), &old.seal(&key, "www", 5, long_ago).unwrap()]);
    let file = site.files.path("haproxy.keys");
    let export = ["export", "--haproxy", &file, &url, "--fleet", fleet];
    let output = keys(&export);
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("renewed more than a period ago\nhint: "), "{}", output.err);
    assert!(!std::path::Path::new(&file).exists());
    keys(&["rotate", "--if-due", &url, "--fleet", fleet]).ok();
    let Sealed { ring, generation, .. } = ring(&redis, fleet);
    assert_eq!((generation, ring.epochs().count(), ring.period), (6, 2, PERIOD));
    for epoch in ring.epochs() {
        assert!(old.epochs().all(|other| other.ticket_name() != epoch.ticket_name()));
    }
    keys(&export).ok();
}

/// Whatever order several come in, each renewal is of the ring that was there.
#[test]
fn of_several_who_renew_keys_none_forks_them() {
    let (redis, site, url) = Site::with_redis();
    let Sealed { ring: KeyRing { current: first, .. }, generation: made, .. } =
        ring(&redis, site.fleet());
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| site.rotate(&url));
        }
    });
    let last = ring(&redis, site.fleet());
    let steps = last.generation - made;
    assert!((1..=6).contains(&steps), "{steps}");
    assert_eq!(u64::from(last.ring.current.id.wrapping_sub(first.id)), steps);
    assert_eq!(last.ring.previous.unwrap().id, last.ring.current.id.wrapping_sub(1));
    let nobody = redis::url(free());
    assert_eq!(keys(&["rotate", &nobody, "--fleet", site.fleet()]).code, Some(2));
}

#[test]
fn a_fleet_is_made_once() {
    let site = Site::new();
    let again = keys(&["new", "--fleet", site.fleet()]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("exists already\nhint: "), "{}", again.err);
    let none = keys(&["new"]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("\nhint: "), "{}", none.err);
}
