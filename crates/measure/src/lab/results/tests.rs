use std::io::Read;
use std::time::Duration;

use headstart_openers::{Carrier, Trial};

use super::*;
use crate::lab::cell::LoadTotals;
use crate::lab::summary::{CellFacts, CellSummary, Groups};
use crate::lab::trial::Key;

fn key(variant: &str) -> Key {
    Key {
        experiment: "small".into(),
        link: "near, \"quoted\"".into(),
        variant: variant.into(),
        suite: "p256".into(),
        arm: "turbo".into(),
    }
}

fn row(trial: u32, ms: f64) -> Row {
    let outcome = Trial {
        ok: true,
        opening: Carrier::TurboTls,
        ms_to_first_request_byte: Some(ms),
        ms_to_first_response_byte: Some(2.0 * ms),
        ms_to_last_response_byte: Some(3.0 * ms),
        bytes: 1000,
        ..Trial::default()
    };
    Row::new(key(""), trial, 1, Duration::from_millis(10), outcome)
}

fn failed_row(error: &str) -> Row {
    let outcome = crate::lab::trial::failed(error.into());
    Row::new(key(""), 9, 1, Duration::from_millis(10), outcome)
}

fn read(place: &Path) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(raw::open(&place.join(SAMPLES)).unwrap());
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

#[test]
fn samples_and_summary_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let rows = [row(1, 10.0), row(2, 12.3456), failed_row("a, \"b\"\nc")];
    let mut folder = Folder::create(&place).unwrap();
    let mut groups = Groups::default();
    for row in &rows {
        folder.add(row).unwrap();
        groups.add(row, Duration::from_millis(10));
    }
    let cells = groups.summaries();
    let done = folder.finish(&cells, &(), &(), "the text").unwrap();
    assert_eq!(done, place);
    assert_eq!(read(&place), rows);
    let text = fs::read(place.join(SUMMARY)).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<CellSummary>>(&text).unwrap(), cells);
    assert_eq!(fs::read_to_string(place.join(EXPERIMENT)).unwrap(), "the text");
    let mut left: Vec<_> =
        fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [BARS, ENVIRONMENT, EXPERIMENT, "samples.csv.zst", SUMMARY]);
    assert!(!partial_of(&place).exists());
}

#[test]
fn the_columns_are_a_contract() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let mut folder = Folder::create(&place).unwrap();
    folder.add(&row(1, 10.0)).unwrap();
    folder.finish(&(), &(), &(), "").unwrap();
    let mut text = String::new();
    raw::open(&place.join(SAMPLES)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(
        text,
        "experiment,arm,suite,link,trial,opening,ms_to_first_request_byte,\
         ms_to_first_response_byte,ms_to_last_response_byte,rtts,reason,flagged,variant,ok,resumed,\
         early_data,bytes,error,round\n\
         small,turbo,p256,\"near, \"\"quoted\"\"\",1,turbo,10.0,20.0,30.0,1.0,,false,,true,false,\
         false,1000,,1\n"
    );
}

#[test]
fn failed_trials_are_counted_and_have_no_times() {
    let mut groups = Groups::default();
    for row in [row(1, 10.0), row(2, 20.0), row(3, 30.0), failed_row("reset")] {
        groups.add(&row, Duration::from_millis(10));
    }
    let [cell] = &groups.summaries()[..] else { panic!("one cell") };
    assert_eq!((cell.n, cell.failed, cell.flagged), (4, 1, 0));
    let request = cell.first_request_byte.unwrap();
    assert_eq!((request.n, request.p50, request.max), (4, Some(20.0), None));
    assert_eq!(cell.rtts, Some(2.0));
    assert_eq!(cell.openings.get("turbo"), Some(&3));
    assert_eq!(cell.exchanges_per_s, None);
    assert!(cell.failed_at.is_empty());
}

#[test]
fn failures_are_told_by_their_place_and_medians_without_what_was_disturbed() {
    let mut groups = Groups::default();
    let disturbed = Row { flagged: true, ..row(2, 90.0) };
    for row in [row(1, 10.0), disturbed, failed_row("reset"), failed_row("reset")] {
        groups.add(&row, Duration::from_millis(10));
    }
    groups.tell(|_| true, &CellFacts { in_groups: true, ..CellFacts::default() });
    let [cell] = &groups.summaries()[..] else { panic!("one cell") };
    assert_eq!(cell.failed_at, [(9, 2)].into());
    assert_eq!((cell.flagged_share, cell.p50_unflagged), (Some(0.25), None), "two of three failed");
    groups.add(&row(3, 10.0), Duration::from_millis(10));
    groups.add(&row(4, 12.0), Duration::from_millis(10));
    groups.add(&Row { flagged: true, ..row(5, 90.0) }, Duration::from_millis(10));
    let [cell] = &groups.summaries()[..] else { panic!("one cell") };
    assert_eq!(
        (cell.first_request_byte.unwrap().p50, cell.p50_unflagged),
        (Some(90.0), Some(12.0))
    );
}

/// Within the ten seconds of loading, not with the wait for the last ones.
#[test]
fn exchanges_count_within_the_time_of_loading() {
    let mut groups = Groups::default();
    groups.add(&row(1, 10.0), Duration::from_millis(10));
    let load = LoadTotals {
        connections: 110,
        completed: 100.0,
        time: Duration::from_secs(10),
        ..LoadTotals::default()
    };
    groups.tell(|_| true, &CellFacts { load, ..CellFacts::default() });
    assert_eq!(groups.summaries()[0].exchanges_per_s, Some(10.0));
}

#[test]
fn results_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let failure = Folder::create(dir.path()).unwrap_err();
    assert!(failure.message().ends_with(" exists") && failure.advice().is_some(), "{failure}");
}

#[test]
fn a_slash_behind_the_name_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("results/")).unwrap();
    folder.finish(&(), &(), &(), "").unwrap();
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert!(files.len() == 1 && dir.path().join("results").join(SUMMARY).exists(), "{files:?}");
}

#[test]
fn two_runs_do_not_write_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let first = Folder::create(&place).unwrap();
    let failure = Folder::create(&place).unwrap_err();
    assert!(failure.message().starts_with("another run writes "), "{failure}");
    drop(first);
    assert!(!partial_of(&place).exists(), "nothing was measured");
    drop(Folder::create(&place).unwrap());
}

#[test]
fn an_interrupted_run_leaves_no_result_and_no_keys() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let mut folder = Folder::create(&place).unwrap();
    fs::write(folder.work().unwrap().join("key.pem"), "secret").unwrap();
    folder.add(&row(1, 10.0)).unwrap();
    drop(folder);
    assert!(!place.exists());
    let partial = partial_of(&place);
    assert!(!partial.join(WORK).exists());
    assert_eq!(read(&partial).len(), 1);
    // As after kill -9, the next run starts over.
    let folder = Folder::create(&place).unwrap();
    folder.finish(&(), &(), &(), "").unwrap();
    assert_eq!(read(&place).len(), 0);
}

#[test]
fn files_of_others_are_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let partial = partial_of(&place);
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("letter.txt"), "dear").unwrap();
    let failure = Folder::create(&place).unwrap_err();
    assert!(failure.message().ends_with("holds other files"), "{failure}");
    assert!(partial.join("letter.txt").exists());
}

#[test]
fn results_are_not_written_through_links_of_others() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let (partial, victim) = (partial_of(&place), dir.path().join("victim"));
    fs::write(&victim, "mine").unwrap();
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join(LOCK), "").unwrap();
    symlink(&victim, partial.join(SUMMARY)).unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Folder::create(&place).unwrap_err().to_string();
    assert!(refused.contains("others may write to it (mode 0777)"), "{refused}");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&partial, Some(12345), None).unwrap();
        let refused = Folder::create(&place).unwrap_err().to_string();
        assert!(refused.contains("it belongs to another user (uid 12345)"), "{refused}");
    }
    fs::remove_dir_all(&partial).unwrap();
    let folder = Folder::create(&place).unwrap();
    assert_eq!(fs::metadata(&partial).unwrap().permissions().mode() & 0o777, 0o700);
    folder.finish(&(), &(), &(), "").unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
}
