//! Committed summaries and verdicts, made again from the samples beside them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::lab::bars::{Verdict, judge};
use crate::lab::raw;

/// Facts that samples do not hold: what links did, agents, servers and captures counted, programs
/// took of a processor. Turns of a benchmark hold what was kept (`turns.json`), captures decide
/// about privacy (`privacy::tests::committed`); of the others the summary is the only record.
const FROM_ELSEWHERE: [&str; 9] = [
    "links",
    "privacy",
    "handshakes",
    "kept",
    "exchanges_per_s",
    "client_cpu_ms",
    "server_cpu_ms",
    "flight_bytes",
    "broken",
];

/// The opening of trials whose agent counts them; its counts are in the summary alone.
const COUNTED_BY_AGENT: &str = "agent";

/// Largest difference by rounding, in ms, round trips or shares.
const ROUNDING: f64 = 1e-3;

/// Folders of committed results.
pub(crate) fn folders() -> Vec<PathBuf> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results");
    let entries = fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Reads a file of them.
pub(crate) fn json<T: DeserializeOwned>(file: &Path) -> T {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn key(cell: &CellSummary) -> Key {
    Key {
        experiment: cell.experiment.clone(),
        link: cell.link.clone(),
        variant: cell.variant.clone(),
        suite: cell.suite.clone(),
        arm: cell.arm.clone(),
    }
}

/// The cells of a folder, from its samples.
fn groups(folder: &Path, cells: &[CellSummary]) -> Groups {
    let mut groups = Groups::default();
    for cell in cells {
        groups.expect(key(cell), Duration::from_secs_f64(cell.rtt_ms / 1e3));
    }
    let mut samples = csv::Reader::from_reader(raw::open(&folder.join("samples.csv")).unwrap());
    for row in samples.deserialize() {
        groups.add(&row.unwrap(), Duration::ZERO);
    }
    for cell in cells {
        let of_cell = key(cell);
        let facts = CellFacts {
            in_groups: !cell.failed_at.is_empty(),
            privacy: cell.privacy.clone(),
            handshakes: cell.handshakes.clone(),
            kept: cell.kept,
            ..CellFacts::default()
        };
        groups.tell(|key| *key == of_cell, &facts);
    }
    for group in &mut groups.groups {
        if group.openings.contains_key(COUNTED_BY_AGENT) {
            let cell = cells.iter().find(|cell| key(cell) == group.key).unwrap();
            group.facts.openings = cell.openings.clone();
        }
    }
    groups
}

/// Checks what is written; a figure that an older version did not write is none.
pub(crate) fn assert_agree(written: &Value, again: &Value, place: &str) {
    match (written, again) {
        (Value::Object(written), again) => {
            for (name, value) in written {
                assert_agree(value, &again[name], &format!("{place}, {name}"));
            }
        }
        (Value::Array(written), Value::Array(again)) if written.len() == again.len() => {
            for (value, again) in written.iter().zip(again) {
                assert_agree(value, again, place);
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let [one, other] = [one, other].map(|number| number.as_f64().unwrap());
            assert!((one - other).abs() <= ROUNDING, "{place}: {one}, by the samples {other}");
        }
        (written, again) => assert_eq!(written, again, "{place}"),
    }
}

#[test]
fn committed_summaries_are_those_of_the_samples() {
    for folder in folders() {
        let mut written: Vec<Value> = json(&folder.join("summary.json"));
        let cells: Vec<CellSummary> = json(&folder.join("summary.json"));
        let again = groups(&folder, &cells).summaries();
        assert_eq!(again.len(), cells.len(), "{}", folder.display());
        for (written, again) in written.iter_mut().zip(again) {
            let written = written.as_object_mut().unwrap();
            written.retain(|name, _| !FROM_ELSEWHERE.contains(&name.as_str()));
            let place = format!("{}: {}", folder.display(), again.name());
            let again = serde_json::to_value(again).unwrap();
            assert_agree(&Value::Object(written.clone()), &again, &place);
        }
    }
}

#[test]
fn committed_verdicts_are_those_of_the_samples() {
    for folder in folders() {
        let cells: Vec<CellSummary> = json(&folder.join("summary.json"));
        let verdicts: Vec<Verdict> = json(&folder.join("bars.json"));
        let environment: Value = json(&folder.join("environment.json"));
        let seed = environment["seed"].as_u64().unwrap();
        let groups = groups(&folder, &cells);
        for written in verdicts {
            let place = format!("{}: {written:?}", folder.display());
            let again = judge(std::slice::from_ref(&written.bar), &groups, false, seed);
            let of_cell = |one: &&Verdict| {
                [&one.arm, &one.suite, &one.link, &one.variant, &one.condition]
                    == [
                        &written.arm,
                        &written.suite,
                        &written.link,
                        &written.variant,
                        &written.condition,
                    ]
            };
            let again = again.iter().find(of_cell).unwrap_or_else(|| panic!("{place}: none"));
            assert_eq!(again.met, written.met, "{place}: {again:?}");
            let [one, other] = [&written, again].map(|verdict| serde_json::json!(verdict.found));
            assert_agree(&one, &other, &place);
        }
    }
}

/// Shares and times that honest clients kept are medians over the turns.
#[test]
fn committed_service_under_attack_is_that_of_the_turns() {
    for folder in folders() {
        let Ok(turns) = raw::open(&folder.join("turns.json")) else { continue };
        let outcome: Value = serde_json::from_reader(turns).unwrap();
        let turns = outcome["turns"].as_array().unwrap();
        let cells: Vec<CellSummary> = json(&folder.join("summary.json"));
        for (cell, kept) in cells.iter().filter_map(|cell| Some((cell, cell.kept?))) {
            let own: Vec<&Value> = turns
                .iter()
                .filter(|turn| turn["variant"] == *cell.variant && turn["arm"] == *cell.arm)
                .collect();
            let figure = |turn: &Value, name: &str| turn[name].as_f64();
            let median = |of: &dyn Fn(&Value) -> Option<f64>| {
                let all: Vec<f64> = own.iter().filter_map(|turn| of(turn)).collect();
                Summary::from_samples(&all).unwrap().p50.unwrap()
            };
            let again = Kept {
                rate: median(&|turn| {
                    Some(figure(turn, "honest_per_s")? / figure(turn, "quiet_per_s")?)
                }),
                p99: median(&|turn| Some(figure(turn, "quiet_p99_ms")? / figure(turn, "p99_ms")?)),
                grown_mb: median(&|turn| figure(turn, "grown_mb")),
                held_kib: own[0]["held_kib"]
                    .is_number()
                    .then(|| median(&|turn| figure(turn, "held_kib"))),
                recovery_s: median(&|turn| figure(turn, "recovery_s")),
            };
            let place = format!("{}: {}", folder.display(), cell.name());
            let [kept, again] = [kept, again].map(|kept| serde_json::to_value(kept).unwrap());
            assert_agree(&kept, &again, &place);
        }
    }
}
