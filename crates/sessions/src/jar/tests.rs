//! Rules of the jar that its model (`tests/model.rs`) does not cover: names, order, and the limits.

use super::*;
use crate::limits::HOST_MAX;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const ME: Option<u32> = Some(1000);

fn network(number: u8) -> Network {
    Network {
        local: [10, 0, 0, number].into(),
        interface: 2,
        gateway: Some([10, 0, 0, 254].into()),
    }
}

fn cookie(number: u8) -> Cookie {
    Cookie::new([number; 16])
}

/// A jar, a context and a moment.
struct Bench {
    jar: CookieJar,
    context: Context,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { jar: CookieJar::new(), context: Context::user(1000), now: Instant::now() }
    }

    fn put(&mut self, host: &str, number: u8, lifetime: Duration) -> Result<(), NotKept> {
        let context = self.context.clone();
        let visit = Visit { host, context: &context, network: network(1) };
        self.jar.put(&visit, cookie(number), lifetime, self.now)
    }

    fn take(&mut self, host: &str) -> Option<Cookie> {
        let context = self.context.clone();
        let visit = Visit { host, context: &context, network: network(1) };
        self.jar.take(&visit, self.now)
    }
}

// F-CLIENT-2
#[test]
fn a_cookie_is_taken_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("a.example"), None);
    bench.put("a.example", 1, HOUR).unwrap();
    assert_eq!(bench.take("a.example"), Some(cookie(1)));
    assert_eq!(bench.take("a.example"), None);
    assert_eq!(bench.put("a.example", 1, HOUR), Err(NotKept::Known), "it was spent");
}

#[test]
fn a_host_has_one_spelling() {
    let mut bench = Bench::new();
    bench.put("WWW.Example.COM.", 1, HOUR).unwrap();
    assert_eq!(bench.take("example.com"), None);
    assert_eq!(bench.take("www.example.com"), Some(cookie(1)));
}

#[test]
fn limits_the_length_of_names() {
    let mut bench = Bench::new();
    let longest = "x".repeat(HOST_MAX);
    assert_eq!(bench.put(&longest, 1, HOUR), Ok(()));
    assert_eq!(bench.put(&format!("{longest}x"), 2, HOUR), Err(NotKept::Host));
    assert_eq!(bench.take(&format!("{longest}x")), None);
}

#[test]
fn the_cookie_that_expires_first_is_taken_first() {
    let mut bench = Bench::new();
    for (number, hours) in [(2, 2), (3, 3), (1, 1)] {
        bench.put("a.example", number, HOUR * hours).unwrap();
    }
    let taken: Vec<_> = std::iter::from_fn(|| bench.take("a.example")).collect();
    assert_eq!(taken, [cookie(1), cookie(2), cookie(3)]);
}

// F-CLIENT-3
#[test]
fn a_cookie_is_not_taken_near_its_end() {
    let mut bench = Bench::new();
    assert_eq!(bench.put("a.example", 1, LAST_MOMENT), Err(NotKept::Lifetime));
    assert_eq!(bench.put("a.example", 1, Duration::ZERO), Err(NotKept::Lifetime));
    bench.put("a.example", 1, HOUR).unwrap();
    bench.put("a.example", 2, HOUR).unwrap();
    bench.now += HOUR - LAST_MOMENT - SECOND;
    assert_eq!(bench.take("a.example"), Some(cookie(1)));
    bench.now += SECOND;
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn no_cookie_outlives_the_maximum() {
    let mut bench = Bench::new();
    bench.put("a.example", 1, COOKIE_LIFE_MAX * 1000).unwrap();
    bench.now += COOKIE_LIFE_MAX;
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn an_unknown_user_keeps_nothing() {
    let mut bench = Bench::new();
    bench.context = Context::UNKNOWN;
    assert_eq!(bench.put("a.example", 1, HOUR), Err(NotKept::Context));
    assert_eq!(bench.take("a.example"), None);
    let visit = Visit { host: "a.example", context: &Context::UNKNOWN, network: network(1) };
    assert_eq!(bench.jar.visit(&visit, bench.now), Visited::Never);
    assert_eq!(bench.jar.visit(&visit, bench.now), Visited::Never);
    assert_eq!(bench.jar.hosts(), 0);
}

// F-CLIENT-4
#[test]
fn another_network_drops_the_cookies() {
    let address = network(2);
    let interface = Network { interface: 3, ..network(1) };
    let gateway = Network { gateway: None, ..network(1) };
    for other in [address, interface, gateway] {
        let mut bench = Bench::new();
        bench.put("a.example", 1, HOUR).unwrap();
        let context = bench.context.clone();
        let elsewhere = Visit { host: "a.example", context: &context, network: other };
        assert_eq!(bench.jar.take(&elsewhere, bench.now), None);
        assert_eq!(bench.take("a.example"), None, "still gone when the machine is back");
    }
}

fn visit(context: &Context, number: u8) -> Visit<'_> {
    Visit { host: "a.example", context, network: network(number) }
}

#[test]
fn a_context_that_ends_leaves_nothing() {
    let mut bench = Bench::new();
    bench.put("a.example", 1, HOUR).unwrap();
    let ended = bench.context.clone();
    bench.jar.forget_context(&ended);
    assert_eq!((bench.jar.hosts(), bench.take("a.example")), (0, None));
    bench.put("a.example", 2, HOUR).unwrap();
    bench.jar.clear();
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn limits_cookies_per_host() {
    let mut bench = Bench::new();
    let most = u8::try_from(COOKIES_PER_HOST).unwrap();
    for number in 0..=most {
        bench.put("a.example", number, HOUR + SECOND * u32::from(number)).unwrap();
    }
    assert_eq!(bench.jar.cookies(), COOKIES_PER_HOST);
    assert_eq!(bench.take("a.example"), Some(cookie(1)), "the first to expire was evicted");
}

#[test]
fn limits_hosts() {
    let mut bench = Bench::new();
    let context = bench.context.clone();
    for number in 0..HOSTS {
        let host = format!("h{number}");
        let visit = Visit { host: &host, context: &context, network: network(1) };
        bench.jar.visit(&visit, bench.now);
    }
    bench.put("h0", 1, HOUR).unwrap();
    bench.put("one.over", 2, HOUR).unwrap();
    assert_eq!(bench.jar.hosts(), HOSTS);
    assert_eq!(bench.take("h0"), Some(cookie(1)), "used more recently than h1");
    let h1 = Visit { host: "h1", context: &context, network: network(1) };
    assert_eq!(bench.jar.visit(&h1, bench.now), Visited::Never);
}

#[test]
fn a_user_with_many_hosts_evicts_its_own() {
    let limits = Limits { hosts: 4, ..Limits::default() };
    let mut bench = Bench { jar: CookieJar::with_limits(limits), ..Bench::new() };
    bench.put("a.example", 1, HOUR).unwrap();
    bench.context = Context::user(1001);
    for number in 0..20 {
        bench.put(&format!("h{number}"), 10 + number, HOUR).unwrap();
    }
    bench.context = Context::user(1000);
    assert_eq!(bench.take("a.example"), Some(cookie(1)));
}

#[test]
fn nothing_is_taken_while_spending_cannot_be_recorded() {
    let limits = Limits { spent: 1, ..Limits::default() };
    let mut bench = Bench { jar: CookieJar::with_limits(limits), ..Bench::new() };
    bench.put("a.example", 1, HOUR).unwrap();
    bench.put("a.example", 2, COOKIE_LIFE_MAX).unwrap();
    assert_eq!(bench.take("a.example"), Some(cookie(1)));
    assert_eq!(bench.take("a.example"), None);
    assert_eq!(bench.jar.cookies(), 1, "it stays until there is room again");
    assert_eq!(bench.jar.spend(cookie(3), ME, bench.now), Err(Unspendable::Full));
}

/// Users, not contexts, share the entries for spent cookies.
#[test]
fn a_user_does_not_use_up_the_entries_of_others() {
    let limits = Limits { spent: 4, ..Limits::default() };
    let mut bench = Bench { jar: CookieJar::with_limits(limits), ..Bench::new() };
    bench.put("a.example", 1, HOUR).unwrap();
    for number in 10..12 {
        bench.jar.spend(cookie(number), Some(1001), bench.now).unwrap();
    }
    assert_eq!(bench.jar.spend(cookie(12), Some(1001), bench.now), Err(Unspendable::Full));
    assert_eq!(bench.take("a.example"), Some(cookie(1)));
}

#[test]
fn forgetting_users_and_contexts_spares_others() {
    let work = Context { label: Some("work".into()), ..Context::user(1) };
    let whose = [Context::user(1), work, Context::user(2)];
    for (forgotten, left) in [
        (Whose::Context(&whose[1]), 2),
        (Whose::User(1), 1),
        (Whose::User(3), 3),
        (Whose::Everybody, 0),
    ] {
        let (mut jar, now) = (CookieJar::new(), Instant::now());
        for (number, context) in (1..).zip(&whose) {
            jar.put(&visit(context, 1), cookie(number), HOUR, now).unwrap();
        }
        jar.forget(forgotten);
        assert_eq!(jar.hosts(), left, "{forgotten:?}");
    }
}
