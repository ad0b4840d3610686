//! The store against a model that keeps everything in one list and searches all of it.

#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use headstart_sessions::limits::LAST_MOMENT;
use headstart_sessions::{
    CertificateNames, Context, Filter, NotKept, Origin, Policy, Server, SessionStore, Sharing,
    Stamp, StoreLimits, Taken, Ticket, Whose,
};
use proptest::collection::vec;
use proptest::prelude::*;
use zeroize::Zeroizing;

const STEPS: usize = 90;

/// Number of contexts: users 0 and 1, user 0 under two labels, and an unknown user.
const CONTEXTS: u8 = 5;
const UNKNOWN: u8 = 4;

fn context(number: u8) -> Context {
    match number {
        0 | 1 => Context::user(number.into()),
        2 | 3 => Context { label: Some(number.to_string()), ..Context::user(0) },
        _ => Context::UNKNOWN,
    }
}

/// Returns true if both belong to one user.
fn same_user(one: u8, other: u8) -> bool {
    context(one).uid == context(other).uid
}

/// Everything that must match, by number. Servers 0 and 1 are names, 2 is a certificate with name
/// 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    server: u8,
    alpn: u8,
    settings: u8,
    context: u8,
}

const CERTIFICATE: u8 = 2;

fn host(server: u8) -> String {
    format!("host{server}.example")
}

/// Returns true if a filter for `server` covers the server `own`; `None` covers all.
fn names_server(server: Option<u8>, own: u8) -> bool {
    server.is_none_or(|server| server == own || (server, own) == (1, CERTIFICATE))
}

fn certificate() -> CertificateNames {
    CertificateNames::new(["host1.example", "elsewhere.example"]).unwrap()
}

#[derive(Clone, Copy, Debug)]
struct Brought {
    /// The session in the ticket.
    session: u8,
    lifetime: u64,
    /// Seconds since the full handshake.
    verified: u64,
    reusable: bool,
    /// Index of the connection that brings it; the last one if there are fewer.
    connection: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A connection begins.
    Open,
    Put(Place, Brought),
    Take(Place),
    /// Gives back the ticket taken this many takes ago.
    GiveBack(usize),
    Refused(usize),
    Pass(u64),
    Forget {
        server: Option<u8>,
        whose: Set,
    },
    EndContext(u8),
    SetPolicy(u8, Option<Policy>),
}

#[derive(Clone, Copy, Debug)]
enum Set {
    Everybody,
    User(u8),
    Context(u8),
}

impl Set {
    fn includes(self, number: u8) -> bool {
        match self {
            Self::Everybody => true,
            Self::User(user) => context(number).uid == Some(user.into()),
            Self::Context(one) => one == number,
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    // Mostly the same protocols and settings, so that tickets match at all.
    let [alpn, settings] = [(); 2].map(|()| prop_oneof![5 => Just(0u8), 1 => Just(1u8)]);
    (0u8..3, alpn, settings, 0..CONTEXTS).prop_map(|(server, alpn, settings, context)| Place {
        server,
        alpn,
        settings,
        context,
    })
}

fn brought() -> impl Strategy<Value = Brought> {
    let often = prop::bool::weighted(0.9);
    let rarely = prop::bool::weighted(0.1);
    (any::<u8>(), 0u64..4000, 0u64..2000, rarely, (often, 0usize..20)).prop_map(
        |(session, lifetime, verified, reusable, (last, connection))| Brought {
            session,
            lifetime,
            verified,
            reusable,
            connection: if last { usize::MAX } else { connection },
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let sharing = prop_oneof![
        3 => Just(Sharing::Share),
        5 => Just(Sharing::ShareCertificate),
        1 => Just(Sharing::Isolate),
        1 => Just(Sharing::Off),
    ];
    (sharing, 0u64..6000, any::<bool>()).prop_map(|(sharing, lifetime, early_data)| Policy {
        sharing,
        lifetime: Duration::from_secs(lifetime),
        early_data,
    })
}

fn set() -> impl Strategy<Value = Set> {
    prop_oneof![
        Just(Set::Everybody),
        (0u8..2).prop_map(Set::User),
        (0..CONTEXTS).prop_map(Set::Context),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Open),
        20 => (place(), brought()).prop_map(|(place, brought)| Step::Put(place, brought)),
        20 => place().prop_map(Step::Take),
        3 => (0usize..4).prop_map(Step::GiveBack),
        2 => (0usize..4).prop_map(Step::Refused),
        6 => (0u64..600).prop_map(Step::Pass),
        1 => (prop::option::of(0u8..2), set())
            .prop_map(|(server, whose)| Step::Forget { server, whose }),
        1 => (0..CONTEXTS).prop_map(Step::EndContext),
        3 => (0..CONTEXTS, prop::option::of(policy()))
            .prop_map(|(context, policy)| Step::SetPolicy(context, policy)),
    ]
}

/// A ticket in the model.
#[derive(Clone, Copy, Debug)]
struct Item {
    place: Place,
    session: u8,
    end: Instant,
    verified: Instant,
    reusable: bool,
    /// Number of the step that put it.
    put: usize,
}

impl Item {
    fn is_alive(&self, now: Instant) -> bool {
        now + LAST_MOMENT < self.end
    }
}

/// An unlimited store.
#[derive(Default)]
struct Model {
    kept: Vec<Item>,
    /// Single-use tickets ever kept.
    known: HashSet<u8>,
    policies: HashMap<u8, Policy>,
    /// Contexts forgotten, and the step.
    forgotten: Vec<(Set, usize)>,
    /// Steps so far.
    steps: usize,
}

impl Model {
    fn policy(&self, number: u8) -> Policy {
        let user = (0..2).find(|user| same_user(*user, number));
        let inherited = user.and_then(|user| self.policies.get(&user));
        self.policies.get(&number).or(inherited).copied().unwrap_or_default()
    }

    fn allows(&self, place: Place) -> bool {
        match self.policy(place.context).sharing {
            Sharing::ShareCertificate => true,
            Sharing::Share => place.server != CERTIFICATE,
            Sharing::Isolate | Sharing::Off => false,
        }
    }

    fn was_forgotten(&self, number: u8, since: usize) -> bool {
        self.forgotten.iter().any(|(set, at)| *at > since && set.includes(number))
    }

    fn put(
        &mut self,
        place: Place,
        brought: Brought,
        opened: usize,
        now: Instant,
    ) -> Result<(), NotKept> {
        let seconds = Duration::from_secs;
        let verified = now.checked_sub(seconds(brought.verified)).unwrap_or(now);
        let own_end = match (brought.lifetime, brought.reusable) {
            (0, true) => now + seconds(24 * 60 * 60),
            (lifetime, _) => now + seconds(lifetime),
        };
        let end = own_end.min(verified + self.policy(place.context).lifetime);
        let Brought { session, reusable, .. } = brought;
        let item = Item { place, session, end, verified, reusable, put: self.steps };
        if place.context == UNKNOWN {
            return Err(NotKept::Context);
        } else if !self.allows(place) {
            return Err(NotKept::Policy);
        } else if self.was_forgotten(place.context, opened) {
            return Err(NotKept::Forgotten);
        } else if !item.is_alive(now) {
            return Err(NotKept::Lifetime);
        } else if !reusable && self.known.contains(&session) {
            return Err(NotKept::Known);
        } else if !reusable {
            self.known.insert(session);
        }
        self.kept.retain(|kept| !(reusable && kept.reusable && kept.place == place));
        self.kept.push(item);
        Ok(())
    }

    /// Returns all tickets that may be taken now: a session of TLS 1.2 only if there is no ticket.
    fn available(&self, place: Place, now: Instant) -> Vec<Item> {
        let here = self.kept.iter().filter(|kept| kept.place == place && kept.is_alive(now));
        let (again, once): (Vec<Item>, _) = here.partition(|kept| kept.reusable);
        if once.is_empty() { again } else { once }
    }

    fn take(&mut self, item: &Item) {
        self.kept.retain(|kept| kept.reusable || kept.put != item.put);
    }

    fn give_back(&mut self, item: Item, taken: usize, now: Instant) {
        let place = item.place;
        let end = item.end.min(item.verified + self.policy(place.context).lifetime);
        let item = Item { end, ..item };
        let is_good = item.is_alive(now)
            && self.allows(place)
            && !self.was_forgotten(place.context, taken)
            && !item.reusable;
        if is_good {
            self.kept.push(item);
        }
    }

    fn refused(&mut self, place: Place, taken: usize) {
        self.kept.retain(|kept| kept.place != place || kept.put > taken);
    }

    fn forget(&mut self, server: Option<u8>, whose: Set) -> usize {
        self.forgotten.push((whose, self.steps));
        let before = self.kept.len();
        self.kept.retain(|kept| {
            let is_server = names_server(server, kept.place.server);
            !(is_server && whose.includes(kept.place.context))
        });
        before - self.kept.len()
    }

    fn set_policy(&mut self, number: u8, policy: Option<Policy>) {
        match policy {
            Some(_) if number == UNKNOWN => return,
            Some(policy) => self.policies.insert(number, policy),
            None => self.policies.remove(&number),
        };
        if matches!(self.policy(number).sharing, Sharing::Isolate | Sharing::Off) {
            let whose = if number < 2 { Set::User(number) } else { Set::Context(number) };
            self.forgotten.push((whose, self.steps));
        }
        for mut item in std::mem::take(&mut self.kept) {
            if self.allows(item.place) {
                let lifetime = self.policy(item.place.context).lifetime;
                item.end = item.end.min(item.verified + lifetime);
                self.kept.push(item);
            }
        }
    }
}

/// The store, its model and the time.
struct Trial {
    store: SessionStore,
    model: Model,
    /// Connections that have begun: the time in the store, and in the model.
    connections: Vec<(Stamp, usize)>,
    /// Tickets taken and not yet spent, and the step.
    out: Vec<(Taken, Item, usize)>,
    now: Instant,
}

/// Returns the session in ticket `number`.
fn session(number: u8) -> Vec<u8> {
    vec![number; 1 + usize::from(number) % 7]
}

impl Trial {
    fn new(limits: StoreLimits) -> Self {
        let store = SessionStore::new(limits);
        let connections = vec![(store.stamp(), 0)];
        // Leaves time before the first moment.
        let now = Instant::now() + Duration::from_secs(10_000);
        Self { store, model: Model::default(), connections, out: Vec::new(), now }
    }

    /// Calls the store for `place`.
    fn at<T>(
        &mut self,
        place: Place,
        act: impl FnOnce(&mut SessionStore, &Origin<'_>, Instant) -> T,
    ) -> T {
        let (names, host) = (certificate(), host(place.server));
        let (alpn, context) = ([vec![b'a' + place.alpn]], context(place.context));
        let server = match place.server {
            CERTIFICATE => Server::Certificate(&names),
            _ => Server::Name(&host),
        };
        let settings = &[place.settings; 32];
        act(&mut self.store, &Origin { server, alpn: &alpn, settings, context: &context }, self.now)
    }

    fn connection(&self, brought: &Brought) -> (Stamp, usize) {
        let last = self.connections.len() - 1;
        self.connections[brought.connection.min(last)]
    }

    fn put(&mut self, place: Place, brought: Brought) -> Result<(), NotKept> {
        let ticket = Ticket {
            session: Zeroizing::new(session(brought.session)),
            alpn: None,
            early_data_max: 1,
            lifetime: Duration::from_secs(brought.lifetime),
            received: self.now,
            verified: self.now - Duration::from_secs(brought.verified),
            opened: self.connection(&brought).0,
            reusable: brought.reusable,
        };
        self.at(place, |store, origin, now| store.put(origin, ticket, now))
    }

    fn take(&mut self, place: Place) -> Option<Taken> {
        self.at(place, SessionStore::take)
    }

    fn forget(&mut self, server: Option<u8>, whose: Set) -> usize {
        let host = server.map(host);
        let context = match whose {
            Set::Context(number) => context(number),
            _ => Context::UNKNOWN,
        };
        let whose = match whose {
            Set::Everybody => Whose::Everybody,
            Set::User(user) => Whose::User(user.into()),
            Set::Context(_) => Whose::Context(&context),
        };
        self.store.forget(&Filter { server: host.as_deref(), whose })
    }

    /// Returns the ticket taken `ago` takes ago, if it is not spent.
    fn out(&mut self, ago: usize) -> Option<(Taken, Item, usize)> {
        let at = self.out.len().checked_sub(ago + 1)?;
        Some(self.out.remove(at))
    }

    /// Wipes expired tickets on both sides, so that they can be compared.
    fn expire(&mut self) {
        self.store.expire(self.now);
        self.model.kept.retain(|kept| kept.is_alive(self.now));
    }
}

/// Limits that no trial reaches.
fn ample() -> StoreLimits {
    StoreLimits {
        servers: 1000,
        tickets: 1000,
        tickets_per_server: 1000,
        bytes: 1_000_000,
        recent: 1000,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Within its limits the store does exactly what the model does.
    #[test]
    fn the_store_matches_its_model(steps in vec(step(), 0..STEPS)) {
        let mut trial = Trial::new(ample());
        for step in steps {
            trial.model.steps += 1;
            let now = trial.now;
            match step {
                Step::Open => {
                    let opened = (trial.store.stamp(), trial.model.steps);
                    trial.connections.push(opened);
                }
                Step::Put(place, brought) => {
                    let opened = trial.connection(&brought).1;
                    let expected = trial.model.put(place, brought, opened, now);
                    prop_assert_eq!(trial.put(place, brought), expected);
                }
                Step::Take(place) => {
                    let available = trial.model.available(place, now);
                    let first = available.iter().map(|item| item.end).min();
                    match trial.take(place) {
                        Some(taken) => {
                            let item = available.iter().find(|item: &&Item| {
                                session(item.session) == taken.session() && Some(item.end) == first
                            });
                            prop_assert!(item.is_some(), "{taken:?} of {available:?}");
                            let item = *item.unwrap();
                            prop_assert_eq!(taken.verified(), item.verified);
                            let policy = trial.model.policy(place.context);
                            let early = policy.early_data && place.server != CERTIFICATE;
                            prop_assert_eq!(taken.early_data_max(), u32::from(early));
                            trial.model.take(&item);
                            trial.out.push((taken, item, trial.model.steps));
                        }
                        None => prop_assert!(available.is_empty(), "nothing of {available:?}"),
                    }
                }
                Step::GiveBack(ago) => {
                    if let Some((taken, item, step)) = trial.out(ago) {
                        trial.store.give_back(taken, now);
                        trial.model.give_back(item, step, now);
                    }
                }
                Step::Refused(ago) => {
                    if let Some((taken, item, step)) = trial.out(ago) {
                        trial.store.refused(taken);
                        trial.model.refused(item.place, step);
                    }
                }
                Step::Pass(seconds) => trial.now += Duration::from_secs(seconds),
                Step::Forget { server, whose } => {
                    trial.expire();
                    let expected = trial.model.forget(server, whose);
                    let before = trial.store.counts().forgotten;
                    prop_assert_eq!(trial.forget(server, whose), expected);
                    let counted = trial.store.counts().forgotten - before;
                    prop_assert_eq!(counted, expected as u64);
                }
                Step::EndContext(number) => {
                    trial.expire();
                    let expected = trial.model.forget(None, Set::Context(number));
                    trial.model.set_policy(number, None);
                    prop_assert_eq!(trial.store.end_context(&context(number)), expected);
                }
                Step::SetPolicy(number, policy) => {
                    let set = trial.store.set_policy(&context(number), policy);
                    prop_assert_eq!(set.is_err(), number == UNKNOWN && policy.is_some());
                    trial.model.set_policy(number, policy);
                    let policy = trial.store.policy(&context(number));
                    prop_assert_eq!(policy, trial.model.policy(number));
                }
            }
            trial.expire();
            let counts = trial.store.counts();
            prop_assert_eq!(counts.tickets, trial.model.kept.len());
            let bytes = trial.model.kept.iter().map(|kept| session(kept.session).len());
            prop_assert_eq!(counts.bytes, bytes.sum::<usize>());
        }
    }

    /// Gives the store the tightest limits: they hold after every step, and every ticket taken
    /// fits.
    #[test]
    fn limits_hold_and_every_ticket_taken_fits(
        servers in 1usize..4,
        tickets in 1usize..6,
        tickets_per_server in 1usize..4,
        bytes in 7usize..30,
        steps in vec(step(), 0..STEPS),
    ) {
        let limits = StoreLimits { servers, tickets, tickets_per_server, bytes, recent: 1000 };
        let mut trial = Trial::new(limits);
        // Every ticket that may be taken, and its end.
        let mut good: Vec<(Place, Brought, Instant)> = Vec::new();
        for step in steps {
            match step {
                Step::Put(place, brought) => {
                    if trial.put(place, brought).is_ok() {
                        prop_assert!(place.context != UNKNOWN);
                        let end = match (brought.lifetime, brought.reusable) {
                            (0, true) => trial.now + Duration::from_secs(24 * 60 * 60),
                            (lifetime, _) => trial.now + Duration::from_secs(lifetime),
                        };
                        good.push((place, brought, end));
                    }
                }
                Step::Take(place) => {
                    if let Some(taken) = trial.take(place) {
                        let at = good.iter().position(|(other, brought, end)| {
                            *other == place
                                && session(brought.session) == taken.session()
                                && trial.now + LAST_MOMENT < *end
                        });
                        prop_assert!(at.is_some(), "{taken:?} does not belong to {place:?}");
                        let (_, brought, _) = good[at.unwrap()];
                        if !brought.reusable {
                            good.remove(at.unwrap());
                        }
                    }
                }
                Step::Open => trial.connections.push((trial.store.stamp(), 0)),
                Step::Pass(seconds) => trial.now += Duration::from_secs(seconds),
                Step::Forget { server, whose } => {
                    trial.forget(server, whose);
                    good.retain(|(place, ..)| {
                        !(whose.includes(place.context) && names_server(server, place.server))
                    });
                }
                Step::EndContext(number) => {
                    trial.store.end_context(&context(number));
                    good.retain(|(place, ..)| place.context != number);
                }
                Step::SetPolicy(number, policy) => {
                    trial.store.set_policy(&context(number), policy).ok();
                    good.retain(|(place, ..)| {
                        let policy = trial.store.policy(&context(place.context));
                        !matches!(policy.sharing, Sharing::Off | Sharing::Isolate)
                    });
                }
                Step::GiveBack(_) | Step::Refused(_) => {}
            }
            let counts = trial.store.counts();
            prop_assert!(counts.servers <= servers, "{counts:?}");
            prop_assert!(counts.tickets <= tickets.min(servers * tickets_per_server), "{counts:?}");
            prop_assert!(counts.bytes <= bytes, "{counts:?}");
        }
    }

    /// Whatever is scarce, a user who loses some had more than an even share of it, and keeps as
    /// much as any other user, except for the evicted piece.
    #[test]
    fn eviction_is_fair_to_users(
        scarce in prop_oneof![Just(Scarce::Servers), Just(Scarce::Tickets), Just(Scarce::Bytes)],
        limit in 8usize..40,
        puts in vec((0..USERS, 0u8..12, 1..=UNITS_MAX), 0..200),
    ) {
        let limits = match scarce {
            Scarce::Servers => StoreLimits { servers: limit, ..ample() },
            Scarce::Tickets => StoreLimits { tickets: limit, ..ample() },
            Scarce::Bytes => StoreLimits { bytes: limit * UNIT, ..ample() },
        };
        let (mut store, now) = (SessionStore::new(limits), Instant::now());
        for (number, (user, server, bytes)) in puts.into_iter().enumerate() {
            let before = shares(&store, scarce, now);
            put_units(&mut store, user, server, (number, bytes), now);
            let after = shares(&store, scarce, now);
            for loser in (0..USERS).filter(|loser| after[*loser] < before[*loser]) {
                let adds = if loser == user { scarce.amount(bytes) } else { 0 };
                prop_assert!((before[loser] + adds) * USERS > limit, "{before:?} {after:?}");
                for other in after {
                    let kept = after[loser] + scarce.amount(UNITS_MAX);
                    prop_assert!(kept >= other, "{before:?} {after:?}");
                }
            }
            prop_assert!(after.iter().sum::<usize>() <= limit);
        }
    }
}

const USERS: usize = 4;

/// Size in bytes of which tickets are multiples, so that each has room for its number.
const UNIT: usize = 8;
const UNITS_MAX: usize = 7;

#[derive(Clone, Copy, Debug)]
enum Scarce {
    Servers,
    Tickets,
    /// Counted in units.
    Bytes,
}

impl Scarce {
    /// Returns the amount that a ticket of `units` takes.
    fn amount(self, units: usize) -> usize {
        match self {
            Self::Servers | Self::Tickets => 1,
            Self::Bytes => units,
        }
    }
}

fn put_units(
    store: &mut SessionStore,
    user: usize,
    server: u8,
    (number, units): (usize, usize),
    now: Instant,
) {
    let mut session = vec![0; units * UNIT];
    session[..UNIT].copy_from_slice(&(number as u64).to_be_bytes());
    let context = Context::user(user.try_into().unwrap());
    let host = host(server);
    let server = Server::Name(&host);
    let ticket = Ticket {
        session: Zeroizing::new(session),
        alpn: None,
        early_data_max: 0,
        lifetime: Duration::from_secs(3600),
        received: now,
        verified: now,
        opened: store.stamp(),
        reusable: false,
    };
    let origin = Origin { server, alpn: &[], settings: &[0; 32], context: &context };
    store.put(&origin, ticket, now).ok();
}

/// Returns each user's amount of the scarce resource.
fn shares(store: &SessionStore, scarce: Scarce, now: Instant) -> [usize; USERS] {
    std::array::from_fn(|user| {
        let listed = store.list(Some(user.try_into().unwrap()), now);
        let shares = listed.map(|listed| match scarce {
            Scarce::Servers => 1,
            Scarce::Tickets => listed.tickets,
            Scarce::Bytes => listed.bytes / UNIT,
        });
        shares.sum()
    })
}
