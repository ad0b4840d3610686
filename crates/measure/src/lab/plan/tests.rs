use super::RunSize::{Full, Quick, Usual};
use super::*;
use crate::lab::builtin;

/// Maximum total time of the experiments not listed in [`APART`], in a usual and in a quick run.
const LONG: Duration = Duration::from_secs(150 * 60);
const QUICK: Duration = Duration::from_secs(9 * 60);

/// Experiments with limits of their own: prefix of the name, limit of a usual and of a quick run.
///
/// Fast Open needs root, programs and pages need their data, `scale` makes thousands of
/// connections, and large answers over satellites take their time.
const APART: [(&str, Duration, Duration); 6] = [
    ("careful-", Duration::from_secs(75 * 60), Duration::from_secs(90)),
    ("fop-", Duration::from_secs(60 * 60), Duration::from_secs(3 * 60)),
    ("pages", Duration::from_secs(90 * 60), Duration::from_secs(3 * 60)),
    ("cs244", Duration::from_secs(90 * 60), Duration::from_secs(3 * 60)),
    ("scale", Duration::from_secs(20 * 60), Duration::from_secs(60)),
    ("sharing", Duration::from_secs(30 * 60), Duration::from_secs(5 * 60)),
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

fn plan(size: RunSize, seed: Option<u64>) -> Plan {
    Plan::new(Experiment::parse("small.toml", TEXT).unwrap(), size, seed).unwrap()
}

#[test]
fn arms_that_take_root_are_left_out_where_no_bar_is_about_them() {
    let three = r#""tls13", "fop", "fop-agent""#;
    for (arms, bar, expected) in [
        (three, "*", "fop fop-agent"),
        (three, "fop", "fop-agent"),
        // Nothing else would be left.
        (r#""fop""#, "*", ""),
    ] {
        let text = TEXT.replace(r#""tls13", "turbo", "quic""#, arms);
        let bar = format!("[[bar]]\narm = \"{bar}\"\ncomplete_min = 1.0\n");
        let experiment = Experiment::parse("small.toml", &format!("{text}\n{bar}")).unwrap();
        let mut plan = Plan::new(experiment, Usual, None).unwrap();
        let left_out: Vec<&str> = plan.leave_out_programs().into_iter().collect();
        assert_eq!(left_out.join(" "), expected, "{arms}");
        let cells = plan.stages.iter().flat_map(|stage| &stage.cells);
        let names: BTreeSet<&str> = cells.map(|cell| cell.arm.name()).collect();
        assert!(left_out.iter().all(|arm| !names.contains(arm)) && !names.is_empty());
    }
}

#[test]
fn each_stage_is_a_link_with_one_of_its_variants() {
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
fn a_full_run_uses_full_trials_and_fails_without() {
    let text = TEXT.replace("quick_trials = 2", "quick_trials = 2\nfull_trials = 400");
    let experiment = Experiment::parse("small.toml", &text).unwrap();
    // A stage under load keeps its number of slices.
    for (size, expected) in [(Full, [400, 10, 400, 400]), (Usual, [50, 10, 50, 3])] {
        let plan = Plan::new(experiment.clone(), size, None).unwrap();
        let rounds: Vec<_> = plan.stages.iter().map(|stage| stage.rounds).collect();
        assert_eq!(rounds, expected, "{size:?}");
    }
    let experiment = Experiment::parse("small.toml", TEXT).unwrap();
    let failure = Plan::new(experiment, Full, None).expect_err("there is no full_trials");
    assert!(failure.message().contains("no longer form") && failure.advice().is_some());
}

#[test]
fn arms_run_only_with_suites_and_origins_they_support() {
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
fn every_round_runs_each_cell_once_in_random_order() {
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
    assert_eq!(firsts.len(), 5, "each cell goes first in some round");
}

#[test]
fn a_load_runs_until_it_has_enough_connections() {
    let plan = plan(Usual, None);
    let [one, loaded] = [&plan.stages[0], &plan.stages[1]];
    assert_eq!((loaded.rounds, loaded.order(1).count()), (10, 30));
    assert!(!loaded.is_enough(9, 1000) && !loaded.is_enough(10, 49) && loaded.is_enough(10, 50));
    assert!(one.is_enough(50, 0) && !one.is_enough(49, 0));
}

#[test]
fn the_seed_and_the_stage_determine_the_order() {
    let [first, again, seeded, other] = [(0, 1), (0, 1), (0, 2), (2, 1)]
        .map(|(stage, seed)| plan(Usual, None).stages[stage].order(seed).collect::<Vec<_>>());
    assert_eq!(first, again);
    assert_ne!(first, seeded);
    assert_ne!(first, other, "the stage matters, too");
    assert_eq!(plan(Usual, None).seed, 1);
    assert_eq!(plan(Usual, Some(9)).seed, 9);
}

#[test]
fn an_empty_plan_is_rejected() {
    let text = TEXT.replace("arms = [\"tls13\", \"turbo\", \"quic\"]", "arms = [\"quic\"]");
    let text = text.replace("suites = [\"p256\", ", "suites = [");
    let failure =
        Plan::new(Experiment::parse("x", &text).unwrap(), Usual, None).expect_err("no cells");
    assert!(failure.message().contains("nothing to run"), "{failure}");
}

#[test]
fn two_stages_share_a_workload_and_no_two_cells_share_a_host_name() {
    let (experiment, _) = builtin::find("sharing").unwrap();
    let plan = Plan::new(experiment, Usual, None).unwrap();
    let [stage, by_address, with_wget] = &plan.stages[..] else { panic!("three stages") };
    assert_eq!((stage.mode, stage.cells.len(), stage.hosts()), (Mode::Workload, 4, 5));
    let visits = stage.workload(plan.seed);
    assert_eq!((visits.len(), &visits), (200, &by_address.workload(plan.seed)));
    let programs = &stage.variant.work.programs().unwrap().shares;
    assert_eq!(programs.len(), 10);
    for (program, share) in programs {
        let own = visits.iter().filter(|visit| visit.program.name() == program.name());
        assert_eq!(own.count(), *share as usize, "{}", program.name());
    }
    assert_eq!(with_wget.workload(plan.seed).len(), 200);
    let names: BTreeSet<_> = plan
        .stages
        .iter()
        .flat_map(|stage| {
            let cells = 0..stage.cells.len();
            cells.flat_map(move |cell| (0..5).map(move |host| stage.host_name(cell, host)))
        })
        .collect();
    assert_eq!(names.len(), (4 + 5 + 3) * 5);
}

#[test]
fn file_names_have_number_link_and_variant() {
    let plan = plan(Usual, None);
    assert_eq!(plan.stages[1].file_name(), "02-near--loaded");
}

#[test]
fn the_experiments_fit_their_time_limits() {
    for (prefix, long, quick) in [("", LONG, QUICK)].into_iter().chain(APART) {
        for (size, limit) in [(Usual, long), (Quick, quick)] {
            let total = total(size, prefix);
            assert!(total < limit, "{prefix}: {total:?}");
        }
    }
}

/// Returns the estimated time of the experiments whose names start with `prefix`; if that is empty,
/// of all that are not in [`APART`].
fn total(size: RunSize, prefix: &str) -> Duration {
    let all = builtin::all().unwrap().into_iter().map(|(experiment, _)| experiment);
    let all = all.filter(|experiment| match prefix {
        "" => !APART.iter().any(|(prefix, ..)| experiment.name.starts_with(prefix)),
        prefix => experiment.name.starts_with(prefix),
    });
    all.map(|experiment| Plan::new(experiment, size, None).unwrap().estimate()).sum()
}
