//! Documents quote committed results and nothing more: each table is made of what `lab report
//! --json` says of the folder that it names, which recomputes its figures from the samples.
//!
//! A quote begins with a comment `<!-- FOLDER: key=value | key=value -->`, of one line or several,
//! and ends before an empty line. FOLDER is one of lab/results. With `UPDATE_RESULTS=1` the quotes
//! are written anew.
//!
//! * `arms` are the columns, `links`, `suites` and `variants` choose the rows (all by default;
//!   lists separated by `;`); `names` are the columns' names instead of those of the arms.
//! * `show` is what stands in a cell: `p50`, `interval`, `tail`, `mean`, `rtts`, `complete`,
//!   `opened`, `zero_rtt`, `processor`, `full` (handshakes), `bytes`, `to_today`, `kept` (rate and
//!   99th percentile under attack), `grown` (MB).
//! * `of` is the moment: `first_request_byte` (default), `first_response_byte`,
//!   `last_response_byte`.
//! * `ratios` are arms with a column of the ratio of medians to the baseline, such as `tls13`.
//!
//! Instead of all these:
//!
//! * `run` says where the figures come from: commit, machine, trials, flagged share, bars.
//! * `published` are the rows of the published table that the experiment reproduces, ours beside
//!   them, of `arms`, `places` and `variants`; with `per_s=N`, rates of N connections in flight.
//! * `privacy` is who can link the connections of `arms`, with the table of
//!   lab/papers/fop-privacy.toml beside.
//! * `browser` is `cells` (each site with each arm), `means` or `recorded` (each arm over all
//!   sites) of loads in a browser.
//! * `bars` is the list of the bars missed.

mod browser;
mod prose;
mod published;
mod quote;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::{headstart, samples};
use quote::quoted;

const UPDATE: &str = "UPDATE_RESULTS";

/// The page of all results.
const RESULTS: &str = "docs/results.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("lab/results")).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    assert!(!folders.is_empty(), "no results are committed");
    folders
}

fn name(folder: &Path) -> &str {
    folder.file_name().unwrap().to_str().unwrap()
}

/// Documents by their path in the tree: of docs, of each folder of results, and some more.
fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| format!("docs/{}", name(&entry.unwrap().path())));
    let mut paths: Vec<String> = docs.filter(|path| path.ends_with(".md")).collect();
    paths.extend(folders().iter().map(|folder| format!("lab/results/{}/README.md", name(folder))));
    paths.extend(["README.md", "KNOWN-LIMITS.md", "bench/README.md"].map(str::to_owned));
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path));
        let text = text.unwrap_or_else(|error| panic!("{path}: {error}"));
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The report of a folder of results, of which all are made at once.
fn report(folder: &str) -> &'static Value {
    static REPORTS: OnceLock<HashMap<String, Value>> = OnceLock::new();
    let reports = REPORTS.get_or_init(|| {
        let folders = folders();
        let paths: Vec<&str> = folders.iter().map(|path| path.to_str().unwrap()).collect();
        let output = headstart(&[&["lab", "report", "--json"], &paths[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        folders.iter().map(|path| name(path).to_owned()).zip(runs).collect()
    });
    reports.get(folder).unwrap_or_else(|| panic!("lab/results has no {folder}"))
}

#[test]
fn documents_quote_committed_results() {
    for (path, page) in pages() {
        let written = quoted(&path, &page);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(root().join(&path), &written).unwrap();
            continue;
        }
        for (number, (is, should)) in page.lines().zip(written.lines()).enumerate() {
            assert_eq!(is, should, "{path}:{}; {UPDATE}=1 writes the quotes anew", number + 1);
        }
        assert_eq!(page.lines().count(), written.lines().count(), "{path}");
    }
}

/// The sentences beside the tables cannot say what the tables do not.
#[test]
fn sentences_have_no_figures_but_those_of_their_tables() {
    let pages = pages();
    let (_, results) = pages.iter().find(|(path, _)| path == RESULTS).unwrap();
    let mut wrong: Vec<String> = prose::without_source(RESULTS, results);
    for (path, page) in &pages {
        match path.starts_with("lab/results/") {
            true => wrong.extend(prose::without_source(path, page)),
            false => wrong.extend(prose::not_of_the_section(path, page, results)),
        }
    }
    assert!(wrong.is_empty(), "no table has these figures:\n{}", wrong.join("\n"));
}

/// Every folder was written whole, by an optimised build of a commit, as one run of one experiment,
/// and has a page that says so.
#[test]
fn committed_results_are_whole_runs_of_commits() {
    for folder in folders() {
        let environment = json(&folder.join("environment.json"));
        let commit = environment["commit"].as_str().unwrap();
        assert!(!commit.contains("dirty") && commit.len() >= 12, "{}: {commit}", folder.display());
        assert_eq!(environment["build"], "release", "{}", folder.display());
        assert_eq!(environment["quick"], false, "{}", folder.display());
        let samples = samples::text(&folder).lines().count() - 1;
        let summary = json(&folder.join("summary.json"));
        let counted: u64 =
            summary.as_array().unwrap().iter().map(|cell| cell["n"].as_u64().unwrap()).sum();
        assert_eq!(samples as u64, counted, "{}", folder.display());
        let page = fs::read_to_string(folder.join("README.md")).unwrap();
        let run = format!("<!-- {}: run -->", name(&folder));
        assert!(page.contains(&run), "{} has no {run}", folder.display());
    }
}

fn json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}
