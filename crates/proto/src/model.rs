//! Model checking of the join (docs/verification.md): every order of events within bounds.
//!
//! * [`world`]: the real `Client` and `Server`, with a network that does what it likes.
//! * [`network`]: what of it is checked.
//! * [`join`]: the same protocol without bytes.

mod join;
mod network;
mod world;

use std::time::{Duration, Instant};
use std::vec::Vec;
use std::{env, io, println};

use stateright::report::WriteReporter;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::ClientConfig;
use network::{Bug, Harm, Network};
use world::{Action, Claim, World};

impl Model for Network {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        [World::new(self)].into()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        [
            Property::always("ServerStream", |_, world: &World| world.holds(Claim::ServerStream)),
            Property::always("ClientStream", |_, world: &World| world.holds(Claim::ClientStream)),
            Property::always("HelloOnce", |_, world: &World| world.holds(Claim::HelloOnce)),
            Property::always("Reset", |_, world: &World| world.holds(Claim::Reset)),
            Property::always("OneAnswer", |_, world: &World| world.holds(Claim::OneAnswer)),
            Property::always("ThreeTimes", |_, world: &World| world.holds(Claim::ThreeTimes)),
            Property::always("Finishes", |_, world: &World| world.holds(Claim::Finishes)),
            Property::always("Limits", |_, world: &World| world.holds(Claim::Limits)),
            Property::always("Promise", |_, world: &World| world.holds(Claim::Promise)),
            Property::always("Order", |_, world: &World| world.holds(Claim::Order)),
            Property::sometimes("joined", |model, world: &World| world.is_joined(model)),
        ]
        .into()
    }
}

/// Checks a model depth first, which keeps one path of states and the fingerprints of all.
fn check(name: &str, network: Network, transitions: usize, reports: bool) {
    let (begun, commits) = (Instant::now(), !network.client.hold);
    let builder = network.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = builder.target_state_count(transitions).spawn_dfs();
    let checker = match reports {
        true => checker.join_and_report(&mut WriteReporter::new(&mut io::stdout())),
        false => checker.join(),
    };
    let found = checker.discoveries();
    let (distinct, depth) = (checker.unique_state_count(), checker.max_depth());
    let all = if checker.state_count() < transitions { "all " } else { "" };
    println!(
        "{name}: {all}{distinct} distinct states, {} transitions, depth {depth}, {:.1} s",
        checker.state_count(),
        begun.elapsed().as_secs_f64()
    );
    let joined = found.contains_key("joined");
    if let Some((property, path)) = found.into_iter().find(|(property, _)| *property != "joined") {
        panic!("{name}: {property} fails after {:#?}", path.into_actions());
    }
    assert!(joined || !commits, "{name}: no run joins");
}

/// The networks that are checked, from the least harm to the most.
fn networks() -> Vec<(&'static str, Network)> {
    let fleet = Network { edges: 2, fleet: true, ..Network::new(700, 1) };
    let client = ClientConfig { slots: 2, ..ClientConfig::default() };
    let early = ClientConfig { early_data: true, slots: 1, ..client };
    let hold = ClientConfig { hold: true, ..client };
    let none = Harm::default();
    [
        ("three requests, three answers", Network::new(700, 2), Harm { doubled: 1, ..none }),
        ("fragments", Network::new(1500, 2), none),
        ("hold", Network { client: hold, ..Network::new(700, 2) }, Harm { restarts: 1, ..none }),
        ("restart", Network::new(700, 1), Harm { restarts: 1, doubled: 2, ..none }),
        (
            "addresses",
            Network::new(700, 1),
            Harm { replayed: 1, other_source: 1, other_server: 1, ..none },
        ),
        (
            "same address",
            Network { same_address: true, ..Network::new(700, 1) },
            Harm { replayed: 1, other_source: 1, ..none },
        ),
        (
            "forged",
            Network::new(700, 1),
            Harm { forged_up: 1, forged_down: 1, unreachable: 1, ..none },
        ),
        (
            "TCP",
            Network::new(700, 1),
            Harm { tcp_breaks: 1, split: 1, origin_lost: 1, not_awaited: 1, early: 1, ..none },
        ),
        ("fleet", fleet.clone(), Harm { doubled: 1, ..none }),
        ("fleet that restarts", fleet, Harm { restarts: 1, forward_fails: 1, ..none }),
        (
            "early data",
            Network { client: early, ..Network::new(700, 1) },
            Harm { restarts: 1, doubled: 1, ..none },
        ),
    ]
    .map(|(name, network, harm)| (name, Network { harm, ..network }))
    .into()
}

#[test]
fn no_order_of_events_breaks_the_real_machines() {
    for (name, network) in networks() {
        let horizon = Duration::from_millis(200);
        check(name, Network { horizon, ..network }, 4_000_000, false);
    }
}

/// `MODEL` is part of the names of the networks, `MODEL_TRANSITIONS` bounds each.
#[test]
#[ignore = "takes hours and gigabytes"]
fn long_form() {
    let part = env::var("MODEL").unwrap_or_default();
    let transitions = env::var("MODEL_TRANSITIONS").ok();
    let transitions = transitions.map_or(usize::MAX, |count| count.parse().expect("a number"));
    for (name, network) in networks().into_iter().filter(|(name, _)| name.contains(&part)) {
        check(name, network, transitions, true);
    }
}

/// Tests that each mistake is found, and as what.
#[test]
fn planted_bugs_are_found() {
    let small = || Network { horizon: Duration::from_millis(200), ..Network::new(700, 1) };
    let fleet = Network { edges: 2, fleet: true, ..small() };
    let client = ClientConfig { early_data: true, slots: 1, ..ClientConfig::default() };
    let early = Network { client, horizon: Duration::from_secs(9), ..small() };
    let at_once = Network { horizon: Duration::ZERO, ..small() };
    let with = |network: Network, harm| Network { harm, ..network };
    let none = Harm::default();
    let doubled = Harm { doubled: 2, ..none };
    let cases = [
        (Bug::AnswersTwice, small(), "OneAnswer"),
        (Bug::AnswersAnyAddress, with(small(), Harm { replayed: 1, ..none }), "OneAnswer"),
        (Bug::AnswersTooLong, small(), "ThreeTimes"),
        (Bug::WrongOffset, small(), "ServerStream"),
        (Bug::KeepsTag, with(at_once, Harm { restarts: 1, ..doubled }), "ServerStream"),
        (Bug::SkipsNothing, small(), "ClientStream"),
        (Bug::TakesUnknownJoin, with(small(), Harm { restarts: 1, ..none }), "Finishes"),
        (Bug::PlainRunsAgain, small(), "HelloOnce"),
        (Bug::ForgetsHello, small(), "HelloOnce"),
        (Bug::IgnoresRoute, fleet, "Reset"),
        (Bug::ClientWithoutTimer, small(), "Finishes"),
        (Bug::ClockStands, Network::new(700, 1), "Reset"),
        (Bug::EdgeWithoutTimer, small(), "Limits"),
        (Bug::EndsEarly, early, "Promise"),
    ];
    for (bug, network, property) in cases {
        let network = Network { bug: Some(bug), ..network };
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = network.checker().finish_when(found).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{bug:?}: found at depth {depth} among {states} states");
        assert!(checker.discovery(property).is_some(), "{bug:?} does not break {property}");
    }
}
