//! The jar against a model that keeps everything in one list and searches all of it.

#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::collections::HashSet;
use std::time::{Duration, Instant};

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE_MAX;
use headstart_sessions::limits::LAST_MOMENT;
use headstart_sessions::{Context, CookieJar, Limits, Network, NotKept, Visit, Visited};
use proptest::prelude::*;

/// Maximum seconds that one step lets pass. All steps together last less than the maximum life of a
/// cookie: during that time a spent one is certainly remembered.
const PASS_MAX: u64 = 300;
const STEPS: usize = 90;

#[derive(Clone, Debug)]
enum Step {
    Put { place: Place, cookie: u8, lifetime: u64 },
    Take(Place),
    Visit(Place),
    Arrive(Place),
    Spend(u8),
    Pass(u64),
    ForgetContext(u8),
    LeaveNetwork(u8),
}

/// A host, a context and a network, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    host: u8,
    context: u8,
    network: u8,
}

impl Place {
    /// Returns true if both have the same host and context.
    fn is_of(&self, other: Self) -> bool {
        (self.host, self.context) == (other.host, other.context)
    }
}

fn place() -> impl Strategy<Value = Place> {
    (0u8..3, 0u8..4, 0u8..2).prop_map(|(host, context, network)| Place { host, context, network })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (place(), any::<u8>(), 0u64..40_000)
            .prop_map(|(place, cookie, lifetime)| Step::Put { place, cookie, lifetime }),
        6 => place().prop_map(Step::Take),
        1 => place().prop_map(Step::Visit),
        1 => place().prop_map(Step::Arrive),
        1 => any::<u8>().prop_map(Step::Spend),
        2 => (0..PASS_MAX).prop_map(Step::Pass),
        1 => (0u8..4).prop_map(Step::ForgetContext),
        1 => (0u8..2).prop_map(Step::LeaveNetwork),
    ]
}

/// Returns users 0 and 1, user 0 with a label, or an unknown user.
fn context(number: u8) -> Context {
    match number {
        0 | 1 => Context::user(number.into()),
        2 => Context { label: Some("label".into()), ..Context::user(0) },
        _ => Context::UNKNOWN,
    }
}

fn network(number: u8) -> Network {
    Network { local: [10, 0, 0, number].into(), interface: 2, gateway: None }
}

fn cookie(number: u8) -> Cookie {
    Cookie::new([number; 16])
}

const UNKNOWN: u8 = 3;

/// An unlimited jar.
#[derive(Default)]
struct Model {
    kept: Vec<(Place, u8, Instant)>,
    /// One entry for each host in each context.
    known: Vec<Known>,
    spent: HashSet<u8>,
}

/// Last visit of a context to a host.
struct Known {
    place: Place,
    /// True if the machine has been elsewhere since.
    left: bool,
    last: Last,
}

#[derive(Clone, Copy)]
enum Last {
    Never,
    Elsewhere,
    Here(Instant),
}

impl Model {
    /// Moves the machine to `place`: what was received elsewhere is gone.
    fn go(&mut self, place: Place) -> &mut Known {
        let at = self.known.iter().position(|known| known.place.is_of(place));
        let last = match at.map(|at| self.known.remove(at)) {
            None => Last::Never,
            Some(known) if known.place == place && !known.left => known.last,
            Some(_) => Last::Elsewhere,
        };
        self.kept.retain(|(other, ..)| !other.is_of(place) || *other == place);
        self.known.push(Known { place, left: false, last });
        self.known.last_mut().unwrap()
    }

    fn visit(&mut self, place: Place, now: Instant) -> Visited {
        if place.context == UNKNOWN {
            return Visited::Never;
        }
        match self.go(place).last {
            Last::Never => Visited::Never,
            Last::Elsewhere => Visited::Elsewhere,
            Last::Here(at) => Visited::Here { ago: now - at },
        }
    }

    fn arrive(&mut self, place: Place, now: Instant) {
        for known in self.known.iter_mut().filter(|known| known.place == place && !known.left) {
            known.last = Last::Here(now);
        }
    }

    fn put(&mut self, place: Place, cookie: u8, end: Instant, now: Instant) -> Result<(), NotKept> {
        if place.context == UNKNOWN {
            return Err(NotKept::Context);
        }
        if end <= now + LAST_MOMENT {
            return Err(NotKept::Lifetime);
        }
        let moved =
            |known: &Known| known.place.is_of(place) && (known.place != place || known.left);
        if self.known.iter().any(moved) {
            return Err(NotKept::Network);
        }
        self.kept.retain(|(_, _, end)| now + LAST_MOMENT < *end);
        if self.spent.contains(&cookie) || self.kept.iter().any(|(_, other, _)| *other == cookie) {
            return Err(NotKept::Known);
        }
        self.go(place).last = Last::Here(now);
        self.kept.push((place, cookie, end));
        Ok(())
    }

    /// Returns all cookies that a visit may get.
    fn available(&self, place: Place, now: Instant) -> Vec<u8> {
        let fits =
            |(other, _, end): &&(Place, u8, Instant)| *other == place && now + LAST_MOMENT < *end;
        self.kept.iter().filter(fits).map(|(_, cookie, _)| *cookie).collect()
    }

    fn spend(&mut self, cookie: u8) {
        self.kept.retain(|(_, other, _)| *other != cookie);
        self.spent.insert(cookie);
    }
}

/// The jar, its model and the time.
struct Trial {
    jar: CookieJar,
    model: Model,
    now: Instant,
}

impl Trial {
    fn new(limits: Limits) -> Self {
        Self { jar: CookieJar::with_limits(limits), model: Model::default(), now: Instant::now() }
    }

    /// Calls the jar for `place`.
    fn at<T>(&mut self, place: Place, act: impl FnOnce(&mut CookieJar, &Visit<'_>) -> T) -> T {
        let (host, context) = (format!("host{}.example", place.host), context(place.context));
        let visit = Visit { host: &host, context: &context, network: network(place.network) };
        act(&mut self.jar, &visit)
    }

    fn put(&mut self, place: Place, number: u8, lifetime: u64) -> Result<(), NotKept> {
        let (now, lifetime) = (self.now, Duration::from_secs(lifetime));
        self.at(place, |jar, visit| jar.put(visit, cookie(number), lifetime, now))
    }

    /// Returns the number of the cookie taken.
    fn take(&mut self, place: Place) -> Option<u8> {
        let now = self.now;
        let taken = self.at(place, |jar, visit| jar.take(visit, now))?;
        Some(taken.as_bytes()[0])
    }

    fn forget_context(&mut self, number: u8) {
        self.jar.forget_context(&context(number));
        self.model.kept.retain(|(place, ..)| place.context != number);
        self.model.known.retain(|known| known.place.context != number);
    }

    fn leave_network(&mut self, number: u8) {
        self.jar.leave(|left| *left == network(number));
        self.model.kept.retain(|(place, ..)| place.network != number);
        for known in &mut self.model.known {
            known.left |= known.place.network == number;
        }
    }
}

/// Limits that no trial reaches.
fn ample() -> Limits {
    Limits { hosts: 100, cookies_per_host: 100, spent: 1000 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Within its limits the jar does exactly what the model does.
    #[test]
    fn the_jar_matches_its_model(steps in prop::collection::vec(step(), 0..STEPS)) {
        let mut trial = Trial::new(ample());
        for step in steps {
            match step {
                Step::Put { place, cookie, lifetime } => {
                    let end = trial.now + Duration::from_secs(lifetime).min(COOKIE_LIFE_MAX);
                    let expected = trial.model.put(place, cookie, end, trial.now);
                    prop_assert_eq!(trial.put(place, cookie, lifetime), expected);
                }
                Step::Take(place) => {
                    // Another network drops what the last one brought, if there was any visit.
                    if trial.model.known.iter().any(|known| known.place.is_of(place)) {
                        trial.model.go(place);
                    }
                    let available = trial.model.available(place, trial.now);
                    match trial.take(place) {
                        Some(taken) => {
                            prop_assert!(available.contains(&taken), "{taken} of {available:?}");
                            trial.model.spend(taken);
                        }
                        None => prop_assert!(available.is_empty(), "nothing of {available:?}"),
                    }
                }
                Step::Visit(place) => {
                    let now = trial.now;
                    let expected = trial.model.visit(place, now);
                    prop_assert_eq!(trial.at(place, |jar, visit| jar.visit(visit, now)), expected);
                }
                Step::Arrive(place) => {
                    let now = trial.now;
                    trial.model.arrive(place, now);
                    trial.at(place, |jar, visit| jar.arrive(visit, now));
                }
                Step::Spend(number) => {
                    let new = !trial.model.spent.contains(&number);
                    let spent = trial.jar.spend(cookie(number), Some(0), trial.now);
                    prop_assert_eq!(spent.is_ok(), new);
                    trial.model.spend(number);
                }
                Step::Pass(seconds) => trial.now += Duration::from_secs(seconds),
                Step::ForgetContext(number) => trial.forget_context(number),
                Step::LeaveNetwork(number) => trial.leave_network(number),
            }
        }
    }

    /// Gives the jar the tightest limits: they hold after every step, and every cookie taken fits.
    #[test]
    fn limits_hold_and_every_cookie_taken_fits(
        hosts in 1usize..4,
        cookies_per_host in 1usize..3,
        spent in 1usize..12,
        steps in prop::collection::vec(step(), 0..STEPS),
    ) {
        let mut trial = Trial::new(Limits { hosts, cookies_per_host, spent });
        // Every cookie ever put, and its place.
        let mut put: Vec<(Place, u8, Instant)> = Vec::new();
        let mut given = HashSet::new();
        for step in steps {
            match step {
                Step::Put { place, cookie, lifetime } => {
                    let end = trial.now + Duration::from_secs(lifetime).min(COOKIE_LIFE_MAX);
                    if trial.put(place, cookie, lifetime).is_ok() {
                        prop_assert!(!given.contains(&cookie));
                        put.push((place, cookie, end));
                    }
                }
                Step::Take(place) => {
                    if let Some(taken) = trial.take(place) {
                        prop_assert!(given.insert(taken), "{taken} was given twice");
                        prop_assert!(put.iter().any(|(other, cookie, end): &(Place, u8, Instant)| {
                            *other == place && *cookie == taken && trial.now + LAST_MOMENT < *end
                        }), "{taken} is not of {place:?}");
                    }
                }
                Step::Spend(number) => {
                    let first = trial.jar.spend(cookie(number), Some(0), trial.now).is_ok();
                    prop_assert!(!first || given.insert(number), "{number} was given twice");
                }
                Step::Visit(place) => {
                    let now = trial.now;
                    trial.at(place, |jar, visit| jar.visit(visit, now));
                }
                Step::Arrive(place) => {
                    let now = trial.now;
                    trial.at(place, |jar, visit| jar.arrive(visit, now));
                }
                Step::Pass(seconds) => trial.now += Duration::from_secs(seconds),
                Step::ForgetContext(number) => trial.forget_context(number),
                Step::LeaveNetwork(number) => trial.leave_network(number),
            }
            prop_assert!(trial.jar.hosts() <= hosts);
            prop_assert!(trial.jar.cookies() <= hosts * cookies_per_host);
            prop_assert!(given.len() <= spent, "more were spent than can be remembered");
        }
    }
}

/// The properties above need the memory of spent cookies to outlast all steps.
#[test]
fn all_steps_fit_into_a_cookies_life() {
    let longest = Duration::from_secs(PASS_MAX) * u32::try_from(STEPS).unwrap();
    assert!(longest < COOKIE_LIFE_MAX);
}
