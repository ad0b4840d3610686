use super::RunSize::{Full, Quick, Usual};
use super::*;
use crate::lab::builtin;

/// Time that all experiments may take together, usually and in short.
const LONG: Duration = Duration::from_secs(2 * 60 * 60);
const QUICK: Duration = Duration::from_secs(8 * 60);

/// Apart from those of FOP, which need root, and of programs, which need these, and of pages, which
/// are data.
const APART: [(&str, Duration, Duration); 4] = [
    ("fop-", Duration::from_secs(60 * 60), Duration::from_secs(3 * 60)),
    ("pages", Duration::from_secs(90 * 60), Duration::from_secs(3 * 60)),
    ("cs244", Duration::from_secs(90 * 60), Duration::from_secs(3 * 60)),
    ("sharing", Duration::from_secs(30 * 60), Duration::from_secs(3 * 60)),
];

const TEXT: &str = r#"
name = "small"
title = "Small"
about = "A test"
trials = 50
quick_trials = 2
arms = ["tls13", "turbo", "quic"]
suites = ["p256", "mlkem512-mldsa44"]

[[link]]
name = "near"
rtt = "10ms"

[[link]]
name = "far"
rtt = "100ms"
trials = 3
quick = false

[[variant]]
name = "one"

[[variant]]
name = "loaded"
work.in_flight = 4
links = ["near"]

[[variant]]
name = "origins"
origin = "nginx"
links = ["near"]
"#;

fn plan(extent: RunSize, seed: Option<u64>) -> Plan {
    Plan::new(Experiment::parse("small.toml", TEXT).unwrap(), extent, seed).unwrap()
}

#[test]
fn stages_are_links_with_variants_that_are_on_them() {
    let plan = plan(Usual, None);
    let stages: Vec<_> = plan.stages.iter().map(|stage| (stage.name(), stage.rounds)).collect();
    let expected =
        [("near, one", 50), ("near, loaded", 10), ("near, origins", 50), ("far, one", 3)];
    assert_eq!(stages, expected.map(|(name, rounds)| (name.to_owned(), rounds)));
    let numbers: Vec<_> = plan.stages.iter().map(|stage| stage.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[test]
fn a_quick_run_has_fewer_links_and_trials() {
    let plan = plan(Quick, None);
    let stages: Vec<_> = plan.stages.iter().map(|stage| (stage.name(), stage.rounds)).collect();
    let expected = [("near, one", 2), ("near, loaded", 1), ("near, origins", 2)];
    assert_eq!(stages, expected.map(|(name, rounds)| (name.to_owned(), rounds)));
}

#[test]
fn a_full_run_has_as_many_trials_as_the_experiment_says() {
    let text = TEXT.replace("quick_trials = 2", "quick_trials = 2\nfull_trials = 400");
    let experiment = Experiment::parse("small.toml", &text).unwrap();
    // A load has its slices.
    for (extent, expected) in [(Full, [400, 10, 400, 400]), (Usual, [50, 10, 50, 3])] {
        let plan = Plan::new(experiment.clone(), extent, None).unwrap();
        let rounds: Vec<_> = plan.stages.iter().map(|stage| stage.rounds).collect();
        assert_eq!(rounds, expected, "{extent:?}");
    }
    let silent = Experiment::parse("small.toml", TEXT).unwrap();
    let failure = Plan::new(silent, Full, None).expect_err("it does not say");
    assert!(failure.message().contains("no longer form") && failure.advice().is_some());
}

#[test]
fn arms_have_the_suites_and_origins_they_can_have() {
    let plan = plan(Usual, None);
    let [first, origins] = [0, 2].map(|number: usize| {
        let cells = plan.stages[number].cells.iter();
        cells.map(|cell| format!("{} {}", cell.arm, cell.suite)).collect::<Vec<_>>()
    });
    let all = [
        "tls13 p256",
        "turbo p256",
        "quic p256",
        "tls13 mlkem512-mldsa44",
        "turbo mlkem512-mldsa44",
    ];
    assert_eq!(first, all);
    assert_eq!(origins, ["tls13 p256", "tls13 mlkem512-mldsa44"]);
}

#[test]
fn every_round_has_every_cell_once_in_an_order_of_its_own() {
    let plan = plan(Usual, None);
    let stage = &plan.stages[0];
    let order: Vec<_> = stage.order(plan.seed).collect();
    assert_eq!(order.len(), 50);
    for round in &order {
        let mut sorted = round.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
    }
    let firsts: std::collections::HashSet<_> = order.iter().map(|round| round[0]).collect();
    assert_eq!(firsts.len(), 5, "each cell goes first at times");
}

#[test]
fn loads_take_turns_until_they_have_their_connections() {
    let plan = plan(Usual, None);
    let [one, loaded] = [&plan.stages[0], &plan.stages[1]];
    assert_eq!((loaded.rounds, loaded.order(1).count()), (10, 30));
    assert!(!loaded.is_enough(9, 1000) && !loaded.is_enough(10, 49) && loaded.is_enough(10, 50));
    assert!(one.is_enough(50, 0) && !one.is_enough(49, 0));
}

#[test]
fn the_order_is_that_of_the_seed() {
    let [first, again, seeded, other] = [(0, 1), (0, 1), (0, 2), (2, 1)]
        .map(|(stage, seed)| plan(Usual, None).stages[stage].order(seed).collect::<Vec<_>>());
    assert_eq!(first, again);
    assert_ne!(first, seeded);
    assert_ne!(first, other, "stages differ, too");
    assert_eq!(plan(Usual, None).seed, 1);
    assert_eq!(plan(Usual, Some(9)).seed, 9);
}

#[test]
fn an_empty_plan_is_refused() {
    let text = TEXT.replace("arms = [\"tls13\", \"turbo\", \"quic\"]", "arms = [\"quic\"]");
    let text = text.replace("suites = [\"p256\", ", "suites = [");
    let failure =
        Plan::new(Experiment::parse("x", &text).unwrap(), Usual, None).expect_err("no cells");
    assert!(failure.message().contains("nothing to run"), "{failure}");
}

#[test]
fn a_workload_is_the_same_for_all_arms_and_has_names_by_cell() {
    let (experiment, _) = builtin::find("sharing").unwrap();
    let plan = Plan::new(experiment, Usual, None).unwrap();
    let [stage, by_address, with_wget] = &plan.stages[..] else { panic!("three stages") };
    assert_eq!((stage.mode, stage.cells.len(), stage.hosts()), (Mode::Workload, 3, 5));
    let visits = stage.workload(plan.seed);
    assert_eq!((visits.len(), &visits), (200, &by_address.workload(plan.seed)));
    let programs = &stage.variant.work.programs().unwrap().shares;
    assert_eq!(programs.len(), 10);
    for (program, share) in programs {
        let own = visits.iter().filter(|visit| visit.program.name() == program.name());
        assert_eq!(own.count(), *share as usize, "{}", program.name());
    }
    assert_eq!(with_wget.workload(plan.seed).len(), 200);
    let names: std::collections::BTreeSet<_> = plan
        .stages
        .iter()
        .flat_map(|stage| {
            (0..3).flat_map(move |cell| (0..5).map(move |host| stage.host_name(cell, host)))
        })
        .collect();
    assert_eq!(names.len(), 3 * 3 * 5);
}

#[test]
fn files_of_stages_are_different_and_plain() {
    let plan = plan(Usual, None);
    assert_eq!(plan.stages[1].file_name(), "02-near--loaded");
}

#[test]
fn the_experiments_fit_their_time() {
    for (which, long, quick) in [("", LONG, QUICK)].into_iter().chain(APART) {
        for (extent, limit) in [(Usual, long), (Quick, quick)] {
            let total = total(extent, which);
            assert!(total < limit, "{which}: {total:?}");
        }
    }
}

/// The time of one experiment, or of all that have no limit of their own.
fn total(extent: RunSize, apart: &str) -> Duration {
    let all = builtin::all().unwrap().into_iter().map(|(experiment, _)| experiment);
    let all = all.filter(|experiment| match apart {
        "" => !APART.iter().any(|(apart, ..)| experiment.name.starts_with(apart)),
        apart => experiment.name.starts_with(apart),
    });
    all.map(|experiment| Plan::new(experiment, extent, None).unwrap().estimate()).sum()
}
