//! Rules of the store that its model (`tests/store.rs`) does not cover: boundaries, limits, lists
//! and counts; and the rules of contexts, by example.

use zeroize::Zeroizing;

use super::*;
use crate::limits::{ALPN_MAX, HOST_MAX, LAST_MOMENT};
use crate::names::CertificateNames;
use crate::origin::Server;
use crate::policy::Sharing;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const SETTINGS: [u8; 32] = [7; 32];

/// A store, the properties of a connection, and a moment.
struct Bench {
    store: SessionStore,
    context: Context,
    alpn: Vec<Vec<u8>>,
    settings: [u8; 32],
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::with(StoreLimits::default())
    }

    fn with(limits: StoreLimits) -> Self {
        Self {
            store: SessionStore::new(limits),
            context: Context::user(1000),
            alpn: vec![b"h2".to_vec()],
            settings: SETTINGS,
            now: Instant::now(),
        }
    }

    /// Switches the bench to another user.
    fn user(&mut self, user: u32) -> &mut Self {
        self.context = Context::user(user);
        self
    }

    fn label(&mut self, label: &str) -> &mut Self {
        self.context = Context { label: Some(label.into()), ..Context::user(1000) };
        self
    }

    fn policy(&mut self, sharing: Sharing) {
        let policy = Policy { sharing, ..Policy::default() };
        self.store.set_policy(&self.context, Some(policy)).unwrap();
    }

    /// Returns a ticket that arrived now in a full handshake.
    fn ticket(&self, session: impl AsRef<[u8]>) -> Ticket {
        Ticket {
            session: Zeroizing::new(session.as_ref().to_vec()),
            alpn: Some(b"h2".to_vec()),
            early_data_max: 100,
            lifetime: HOUR,
            received: self.now,
            verified: self.now,
            opened: self.store.stamp(),
            reusable: false,
        }
    }

    /// Calls the store for a connection to `server`.
    fn at<T>(
        &mut self,
        server: Server<'_>,
        act: impl FnOnce(&mut SessionStore, &Origin<'_>, Instant) -> T,
    ) -> T {
        let (alpn, settings, context) = (&*self.alpn, &self.settings, &self.context);
        let origin = Origin { server, alpn, settings, context };
        act(&mut self.store, &origin, self.now)
    }

    fn put_ticket(&mut self, server: Server<'_>, ticket: Ticket) -> Result<(), NotKept> {
        self.at(server, |store, origin, now| store.put(origin, ticket, now))
    }

    fn put(&mut self, host: &str, session: &str) -> Result<(), NotKept> {
        let ticket = self.ticket(session);
        self.put_ticket(Server::Name(host), ticket)
    }

    fn take_one(&mut self, server: Server<'_>) -> Option<Taken> {
        self.at(server, SessionStore::take)
    }

    /// Takes a session, as text.
    fn take(&mut self, host: &str) -> Option<String> {
        let taken = self.take_one(Server::Name(host))?;
        Some(String::from_utf8(taken.session().to_vec()).unwrap())
    }

    fn wanted(&mut self, host: &str) -> (u8, u8) {
        let wanted = self.at(Server::Name(host), |store, origin, now| store.wanted(origin, now));
        (wanted.new_session, wanted.resumption)
    }

    fn tickets(&self) -> usize {
        self.store.counts().tickets
    }

    /// Returns the servers listed for a user, sorted.
    fn servers(&self, uid: Option<u32>) -> Vec<String> {
        let listed = self.store.list(uid, self.now);
        let mut servers: Vec<_> = listed.map(|listed| format!("{:?}", listed.server)).collect();
        servers.sort();
        servers
    }
}

fn names(names: &[&str]) -> CertificateNames {
    CertificateNames::new(names).unwrap()
}

#[test]
fn a_ticket_is_taken_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("a.example"), None);
    bench.put("a.example", "one").unwrap();
    let taken = bench.take_one(Server::Name("A.example.")).unwrap();
    assert_eq!((taken.session(), taken.alpn()), (&b"one"[..], Some(&b"h2"[..])));
    assert_eq!((taken.early_data_max(), taken.verified()), (100, bench.now));
    assert_eq!(taken.server(), Server::Name("a.example"));
    assert_eq!(*taken.context(), bench.context);
    assert_eq!(bench.take("a.example"), None);
    assert_eq!(bench.put("a.example", "one"), Err(NotKept::Known), "it was spent");
    assert_eq!(bench.tickets(), 0);
}

/// Returns what is taken of one ticket after a change.
fn taken_after(change: impl FnOnce(&mut Bench)) -> Option<String> {
    let mut bench = Bench::new();
    bench.put("a.example", "one").unwrap();
    change(&mut bench);
    bench.take("a.example")
}

#[test]
fn any_difference_prevents_sharing() {
    assert_eq!(taken_after(|_| ()).as_deref(), Some("one"));
    assert_eq!(taken_after(|bench| bench.settings[31] = 8), None);
    assert_eq!(taken_after(|bench| bench.alpn.push(b"http/1.1".to_vec())), None);
    assert_eq!(taken_after(|bench| bench.alpn.clear()), None);
    assert_eq!(taken_after(|bench| bench.context = Context::user(1001)), None);
    let label = Some("".into());
    assert_eq!(taken_after(|bench| bench.context = Context { label, ..Context::user(1000) }), None);
    assert_eq!(taken_after(|bench| bench.context = Context::UNKNOWN), None);
}

#[test]
fn an_unknown_user_keeps_nothing() {
    let mut bench = Bench::new();
    bench.context = Context::UNKNOWN;
    assert_eq!(bench.put("a.example", "one"), Err(NotKept::Context));
    assert_eq!(bench.take("a.example"), None);
    assert_eq!(bench.wanted("a.example"), (0, 0));
}

#[test]
fn limits_the_length_of_hosts() {
    let mut bench = Bench::new();
    let longest = "x".repeat(HOST_MAX);
    assert_eq!(bench.put(&longest, "one"), Ok(()));
    assert_eq!(bench.put(&format!("{longest}x"), "two"), Err(NotKept::Host));
    assert_eq!(bench.put("", "three"), Err(NotKept::Host));
}

#[test]
fn protocols_must_match() {
    let mut bench = Bench::new();
    let other = Ticket { alpn: Some(b"http/1.1".to_vec()), ..bench.ticket("one") };
    assert_eq!(bench.put_ticket(Server::Name("a.example"), other), Err(NotKept::Alpn));
    let none = Ticket { alpn: None, ..bench.ticket("two") };
    assert_eq!(bench.put_ticket(Server::Name("a.example"), none), Ok(()));
    bench.alpn = vec![b"h2".to_vec(); ALPN_MAX];
    assert_eq!(bench.put("a.example", "three"), Err(NotKept::Alpn));
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn limits_the_size_of_a_ticket() {
    let mut bench = Bench::new();
    let most = TICKET_BYTES_MAX - b"h2".len();
    for (session, kept) in [(most, Ok(())), (most + 1, Err(NotKept::Size)), (0, Err(NotKept::Size))]
    {
        let ticket = bench.ticket(vec![1; session]);
        assert_eq!(bench.put_ticket(Server::Name("a.example"), ticket), kept, "{session} bytes");
    }
}

#[test]
fn a_ticket_is_not_taken_near_its_end() {
    let mut bench = Bench::new();
    for lifetime in [Duration::ZERO, LAST_MOMENT] {
        let ticket = Ticket { lifetime, ..bench.ticket("short") };
        let kept = bench.put_ticket(Server::Name("a.example"), ticket);
        assert_eq!(kept, Err(NotKept::Lifetime), "zero forbids use in TLS 1.3");
    }
    bench.put("a.example", "one").unwrap();
    bench.put("a.example", "two").unwrap();
    bench.now += HOUR - LAST_MOMENT - SECOND;
    assert_eq!(bench.take("a.example").as_deref(), Some("one"));
    bench.now += SECOND;
    assert_eq!(bench.take("a.example"), None);
    assert_eq!(bench.store.counts().expired, 1);
}

#[test]
fn times_in_the_future_gain_nothing() {
    let mut bench = Bench::new();
    let later = bench.now + HOUR * 100;
    let ticket = Ticket { received: later, verified: later, ..bench.ticket("one") };
    bench.put_ticket(Server::Name("a.example"), ticket).unwrap();
    bench.now += HOUR - LAST_MOMENT;
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn limits_lifetimes_from_the_server() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let policy = Policy { lifetime: SESSION_LIFE_MAX * 2, ..Policy::default() };
    bench.store.set_policy(&bench.context, Some(policy)).unwrap();
    for (lifetime, reusable, kept) in [
        (SESSION_LIFE_MAX, false, SESSION_LIFE_MAX),
        (SESSION_LIFE_MAX + SECOND, false, SESSION_LIFE_MAX),
        (Duration::MAX, true, SESSION_LIFE_MAX),
        (Duration::ZERO, true, SESSION_LIFE_UNKNOWN),
    ] {
        bench.now = begin;
        let session = format!("{lifetime:?} {reusable}");
        let ticket = Ticket { lifetime, reusable, ..bench.ticket(session) };
        bench.put_ticket(Server::Name("a.example"), ticket).unwrap();
        let listed = bench.store.list(None, begin).next().unwrap();
        assert_eq!(listed.expires, kept, "{lifetime:?} {reusable}");
        bench.store.forget(&Filter { server: None, whose: Whose::Everybody });
    }
}

#[test]
fn a_session_of_tls_1_2_is_reused_and_only_the_newest_is_kept() {
    let mut bench = Bench::new();
    for session in ["old", "new", "new"] {
        let ticket = Ticket { reusable: true, ..bench.ticket(session) };
        bench.put_ticket(Server::Name("a.example"), ticket).unwrap();
        bench.now += SECOND;
    }
    assert_eq!(bench.tickets(), 1);
    bench.put("a.example", "once").unwrap();
    assert_eq!(bench.take("a.example").as_deref(), Some("once"));
    for _ in 0..3 {
        let taken = bench.take_one(Server::Name("a.example")).unwrap();
        assert_eq!(taken.session(), b"new");
        bench.store.give_back(taken, bench.now);
    }
    assert_eq!((bench.tickets(), bench.store.counts().given_back), (1, 0));
    let taken = bench.take_one(Server::Name("a.example")).unwrap();
    assert_eq!(bench.store.refused(taken), 1);
    assert_eq!(bench.take("a.example"), None);
}

#[test]
fn forgotten_tickets_do_not_come_back() {
    let forgets: [fn(&mut Bench); 4] = [
        |bench| {
            bench.store.end_context(&bench.context);
        },
        |bench| {
            let whose = Whose::User(1000);
            bench.store.forget(&Filter { server: Some("other.example"), whose });
        },
        |bench| {
            bench.store.forget(&Filter { server: None, whose: Whose::Everybody });
        },
        |bench| {
            bench.policy(Sharing::Off);
            bench.policy(Sharing::Share);
        },
    ];
    for (number, forget) in forgets.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.put("a.example", "one").unwrap();
        let taken = bench.take_one(Server::Name("a.example")).unwrap();
        let late = bench.ticket("late");
        forget(&mut bench);
        bench.store.give_back(taken, bench.now);
        assert_eq!(bench.tickets(), 0, "{number}");
        assert!(bench.store.was_forgotten(&bench.context, late.opened), "{number}");
        assert!(!bench.store.was_forgotten(&bench.context, bench.store.stamp()), "{number}");
        let kept = bench.put_ticket(Server::Name("a.example"), late);
        assert_eq!(kept, Err(NotKept::Forgotten), "{number}");
        assert_eq!(bench.put("a.example", "after"), Ok(()), "{number}");
    }
}

#[test]
fn a_refused_ticket_drops_older_ones() {
    let mut bench = Bench::new();
    for session in ["one", "two", "three"] {
        bench.put("a.example", session).unwrap();
    }
    bench.put("b.example", "other").unwrap();
    let taken = bench.take_one(Server::Name("a.example")).unwrap();
    bench.put("a.example", "of the full handshake").unwrap();
    assert_eq!(bench.store.refused(taken), 2);
    assert_eq!(bench.take("a.example").as_deref(), Some("of the full handshake"));
    assert_eq!(bench.take("b.example").as_deref(), Some("other"));
    let counts = bench.store.counts();
    assert_eq!((counts.refused, counts.outdated), (1, 2));
}

#[test]
fn off_and_isolate_keep_nothing() {
    for sharing in [Sharing::Off, Sharing::Isolate] {
        let mut bench = Bench::new();
        bench.put("a.example", "one").unwrap();
        bench.label("work").put("a.example", "two").unwrap();
        bench.user(1001).put("a.example", "three").unwrap();
        bench.user(1000).policy(sharing);
        assert_eq!(bench.tickets(), 1, "the other user's");
        assert_eq!(bench.put("a.example", "four"), Err(NotKept::Policy));
        assert_eq!(bench.take("a.example"), None);
        assert_eq!(bench.wanted("a.example"), (0, 0));
        assert_eq!(bench.label("work").put("a.example", "five"), Err(NotKept::Policy));
        bench.policy(Sharing::Share);
        assert_eq!(bench.put("a.example", "six"), Ok(()), "its own policy");
    }
}

#[test]
fn a_certificate_is_shared_only_by_choice_and_without_early_data() {
    let mut bench = Bench::new();
    let names = names(&["a.example", "*.example.org"]);
    let server = Server::Certificate(&names);
    let ticket = bench.ticket("one");
    assert_eq!(bench.put_ticket(server, ticket), Err(NotKept::Policy));
    bench.policy(Sharing::ShareCertificate);
    let ticket = bench.ticket("two");
    bench.put_ticket(server, ticket).unwrap();
    assert_eq!(bench.take("a.example"), None, "it has to be asked for");
    assert_eq!(bench.store.list(None, bench.now).next().unwrap().early_data, 0);
    let taken = bench.take_one(server).unwrap();
    assert_eq!((taken.session(), taken.early_data_max()), (&b"two"[..], 0));
    bench.store.give_back(taken, bench.now);
    bench.policy(Sharing::Share);
    assert_eq!(bench.tickets(), 0);
}

/// Returns the certificate under which a host's sessions are found.
fn find(bench: &mut Bench, host: &str) -> Option<CertificateNames> {
    bench.at(Server::Name(host), |store, origin, now| store.certificate(origin, now))
}

#[test]
fn a_certificate_for_a_host_is_found_in_its_context() {
    let mut bench = Bench::new();
    bench.policy(Sharing::ShareCertificate);
    let kept = names(&["a.example", "*.example.org"]);
    assert_eq!(find(&mut bench, "www.example.org"), None);
    let ticket = bench.ticket("one");
    bench.put_ticket(Server::Certificate(&kept), ticket).unwrap();
    bench.put("c.example", "two").unwrap();
    assert_eq!(find(&mut bench, "www.example.org").as_ref(), Some(&kept));
    assert_eq!(find(&mut bench, "c.example"), None);
    bench.label("other");
    assert_eq!(find(&mut bench, "a.example"), None);
    bench.user(1000).settings = [8; 32];
    assert_eq!(find(&mut bench, "a.example"), None);
    bench.settings = SETTINGS;
    bench.now += HOUR;
    assert_eq!(find(&mut bench, "a.example"), None, "it has expired");
}

/// Takes a ticket for a host; returns true if it allows early data.
fn take_across(bench: &mut Bench, host: &str) -> Option<bool> {
    let taken = bench.at(Server::Name(host), SessionStore::take_across_names)?;
    Some(taken.early_data_max() > 0)
}

#[test]
fn the_first_ticket_stays_with_its_name_and_others_serve_all_names() {
    let mut bench = Bench::new();
    let names = names(&["a.example", "*.example.org"]);
    for (sharing, elsewhere) in [(Sharing::Share, false), (Sharing::ShareCertificate, true)] {
        bench.policy(sharing);
        for number in 1..=2 {
            let ticket = bench.ticket(format!("{sharing:?} {number}"));
            bench
                .at(Server::Name("a.example"), |store, origin, now| {
                    store.put_across_names(origin, &names, ticket, now)
                })
                .unwrap();
        }
        assert_eq!(bench.wanted("a.example"), (TICKETS_WANTED, TICKETS_WANTED - 2));
        assert_eq!(take_across(&mut bench, "b.example"), None, "another certificate's");
        let other = take_across(&mut bench, "www.example.org");
        assert_eq!(other, elsewhere.then_some(false));
        assert_eq!(take_across(&mut bench, "a.example"), Some(true), "its own, with early data");
        assert_eq!(take_across(&mut bench, "a.example"), (!elsewhere).then_some(true));
        assert_eq!(bench.tickets(), 0);
    }
}

#[test]
fn asks_for_the_missing_tickets() {
    let mut bench = Bench::new();
    assert_eq!(bench.wanted("a.example"), (TICKETS_WANTED, TICKETS_WANTED));
    for number in 1..=TICKETS_WANTED + 1 {
        bench.put("a.example", &number.to_string()).unwrap();
        let missing = TICKETS_WANTED.saturating_sub(number).max(1);
        assert_eq!(
            bench.wanted("a.example"),
            (TICKETS_WANTED, missing),
            "one replaces the taken one"
        );
    }
    bench.now += HOUR;
    assert_eq!(bench.wanted("a.example"), (TICKETS_WANTED, TICKETS_WANTED));
}

#[test]
fn limits_tickets_per_server() {
    let mut bench = Bench::new();
    for number in 0..=TICKETS_PER_SERVER {
        assert_eq!(bench.tickets(), number);
        bench.put("a.example", &number.to_string()).unwrap();
        bench.now += SECOND;
    }
    assert_eq!(bench.tickets(), TICKETS_PER_SERVER);
    assert_eq!(bench.store.counts().evicted, 1);
    assert_eq!(bench.take("a.example").as_deref(), Some("1"), "the first to expire was evicted");
}

#[test]
fn limits_servers() {
    let mut bench = Bench::with(StoreLimits { servers: 3, ..StoreLimits::default() });
    for host in ["a", "b", "c"] {
        bench.put(host, host).unwrap();
        bench.put(host, &host.repeat(2)).unwrap();
    }
    assert_eq!(bench.take("a").as_deref(), Some("a"), "used after b");
    bench.put("d", "d").unwrap();
    assert_eq!((bench.store.counts().servers, bench.tickets()), (3, 4));
    assert_eq!(bench.take("b"), None);
    assert_eq!(bench.take("a").as_deref(), Some("aa"));
}

#[test]
fn limits_tickets() {
    let mut bench = Bench::with(StoreLimits { tickets: 3, ..StoreLimits::default() });
    for (host, session) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        bench.put(host, session).unwrap();
    }
    assert_eq!(bench.tickets(), 3);
    assert_eq!(bench.take("a").as_deref(), Some("2"), "one of its tickets, not all");
}

#[test]
fn limits_bytes() {
    for (bytes, kept) in [(60, (3, 60)), (59, (2, 50))] {
        let mut bench = Bench::with(StoreLimits { bytes, ..StoreLimits::default() });
        for (host, length) in [("a", 10), ("b", 20), ("c", 30)] {
            let ticket = Ticket { alpn: None, ..bench.ticket(vec![b'x'; length]) };
            bench.put_ticket(Server::Name(host), ticket).unwrap();
        }
        assert_eq!((bench.tickets(), bench.store.counts().bytes), kept);
    }
}

#[test]
fn expired_tickets_go_first() {
    let mut bench = Bench::with(StoreLimits { tickets: 2, ..StoreLimits::default() });
    bench.put("a", "1").unwrap();
    let short = Ticket { lifetime: SECOND * 3, ..bench.ticket("2") };
    bench.user(1001).put_ticket(Server::Name("a"), short).unwrap();
    bench.now += SECOND * 2;
    bench.user(1000).put("b", "3").unwrap();
    let counts = bench.store.counts();
    assert_eq!((counts.tickets, counts.expired, counts.evicted), (2, 1, 0));
    assert_eq!(bench.take("a").as_deref(), Some("1"));
}

#[test]
fn evicts_from_the_user_with_most() {
    let limits = StoreLimits { servers: 8, tickets: 8, ..StoreLimits::default() };
    let mut bench = Bench::with(limits);
    bench.put("a.example", "one").unwrap();
    bench.put("b.example", "two").unwrap();
    bench.context = Context::user(1001);
    for number in 0..100 {
        bench.put(&format!("h{number}"), &number.to_string()).unwrap();
        bench.label(&format!("label {number}")).context.uid = Some(1001);
    }
    assert_eq!(bench.tickets(), 8);
    bench.user(1000);
    assert_eq!(bench.take("a.example").as_deref(), Some("one"));
    assert_eq!(bench.take("b.example").as_deref(), Some("two"));
}

#[test]
fn a_user_who_alone_would_have_most_is_refused() {
    let mut bench = Bench::with(StoreLimits { bytes: 50, ..StoreLimits::default() });
    bench.put("a", &"x".repeat(20)).unwrap();
    let large = "y".repeat(40);
    assert_eq!(bench.user(1001).put("a", &large), Err(NotKept::Full));
    assert_eq!(bench.user(1000).take("a").map(|session| session.len()), Some(20));
    assert_eq!(bench.user(1001).put("a", &large), Ok(()), "the refused ticket is still new");
}

#[test]
fn a_store_without_room_keeps_nothing() {
    let none = [
        StoreLimits { servers: 0, ..StoreLimits::default() },
        StoreLimits { tickets: 0, ..StoreLimits::default() },
        StoreLimits { tickets_per_server: 0, ..StoreLimits::default() },
        StoreLimits { bytes: 0, ..StoreLimits::default() },
    ];
    for limits in none {
        assert_eq!(Bench::with(limits).put("a", "1"), Err(NotKept::Full), "{limits:?}");
    }
}

#[test]
fn expired_tickets_are_wiped_without_a_request() {
    let mut bench = Bench::new();
    bench.put("a.example", "one").unwrap();
    bench.put("b.example", "two").unwrap();
    bench.now += HOUR;
    assert_eq!(bench.store.expire(bench.now), 2);
    assert_eq!((bench.tickets(), bench.store.counts().servers), (0, 0));
    bench.put("a.example", "three").unwrap();
    bench.now += HOUR;
    bench.put("b.example", "four").unwrap();
    assert_eq!(bench.tickets(), 1, "other calls wipe too");
}

#[test]
fn expired_tickets_are_swept_at_an_interval() {
    let mut bench = Bench::new();
    let short = Ticket { lifetime: LAST_MOMENT + SECOND, ..bench.ticket("short") };
    bench.put_ticket(Server::Name("a.example"), short).unwrap();
    bench.now += SWEEP - SECOND;
    assert_eq!(bench.take("b.example"), None);
    assert_eq!(bench.tickets(), 1);
    bench.now += SECOND;
    assert_eq!(bench.take("b.example"), None);
    assert_eq!(bench.tickets(), 0);
}

#[test]
fn a_list_shows_a_users_live_tickets_only() {
    let mut bench = Bench::new();
    bench.put("a.example", "one").unwrap();
    bench.now += SECOND * 5;
    bench.put("a.example", "two").unwrap();
    bench.label("work").put("b.example", "three").unwrap();
    bench.user(1001).put("c.example", "four").unwrap();
    bench.now += SECOND;
    assert_eq!(bench.servers(Some(1001)), ["Name(\"c.example\")"]);
    assert_eq!(bench.servers(Some(1000)), ["Name(\"a.example\")", "Name(\"b.example\")"]);
    assert_eq!(bench.servers(None).len(), 3);
    let mut listed = bench.store.list(Some(1000), bench.now);
    let own = listed.find(|listed| listed.server == Server::Name("a.example")).unwrap();
    assert_eq!((own.tickets, own.newest, own.expires), (2, SECOND, HOUR - SECOND));
    assert_eq!((own.alpn.as_slice(), own.early_data), (&[&b"h2"[..]][..], 100));
    assert_eq!(*own.context, Context::user(1000));
    assert_eq!(bench.store.list(None, bench.now + HOUR).count(), 0);
}
