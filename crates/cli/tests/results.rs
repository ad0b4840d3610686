//! docs/results.md quotes committed results and nothing more: each table is made from the summary that it names.
//!
//! A table begins with a comment `<!-- FOLDER: key=value | key=value -->` and ends before an empty line. FOLDER is one of
//! lab/results. With `UPDATE_RESULTS=1` the tables are written anew.
//!
//! * `arms` are the columns, `links`, `suites` and `variants` choose the rows (all by default; lists separated by `;`).
//! * `show` is what stands in a cell: `p50`, `interval`, `tail`, `rtts`, `rate`, `complete`, `opened`, `processor`, `max`.
//! * `of` is the moment: `first_request_byte` (default), `first_response_byte`, `last_response_byte`.
//! * `ratios` are columns with the ratio of two medians, such as `turbo/tls13`.
//! * `paper` is a column with the ratio that a file of lab/papers has.
//! * `bars` instead of all these is the list of bars; those that were missed are always in it, of the others the
//!   `conditions` given.

#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const UPDATE: &str = "UPDATE_RESULTS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_quotes_committed_results() {
    let path = root().join("docs/results.md");
    let page = fs::read_to_string(&path).unwrap();
    let written = quoted(&page);
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, written).unwrap();
        return;
    }
    for (number, (is, should)) in page.lines().zip(written.lines()).enumerate() {
        assert_eq!(is, should, "docs/results.md:{}; {UPDATE}=1 writes the tables anew", number + 1);
    }
    assert_eq!(page.lines().count(), written.lines().count());
}

/// Every folder was written whole, by an optimised build of a commit, as one run of one experiment.
#[test]
fn committed_results_are_whole_runs_of_commits() {
    let mut folders = 0;
    for entry in fs::read_dir(root().join("lab/results")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        folders += 1;
        let environment = json(&folder.join("environment.json"));
        let commit = environment["commit"].as_str().unwrap();
        assert!(!commit.contains("dirty") && commit.len() >= 12, "{}: {commit}", folder.display());
        assert_eq!(environment["build"], "release", "{}", folder.display());
        assert_eq!(environment["quick"], false, "{}", folder.display());
        let samples = fs::read_to_string(folder.join("samples.csv")).unwrap().lines().count() - 1;
        let summary = json(&folder.join("summary.json"));
        let counted: u64 =
            summary.as_array().unwrap().iter().map(|cell| cell["n"].as_u64().unwrap()).sum();
        assert_eq!(samples as u64, counted, "{}", folder.display());
    }
    assert!(folders > 0, "no results are committed");
}

fn json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The page with its tables made anew.
fn quoted(page: &str) -> String {
    let mut written = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        let Some(quote) = Quote::parse(line) else { continue };
        for row in quote.table() {
            written.push_str(&row);
            written.push('\n');
        }
        // What stood there, up to the empty line.
        if lines.by_ref().any(str::is_empty) {
            written.push('\n');
        }
    }
    written
}

/// What a comment asks for.
struct Quote<'a> {
    folder: &'a str,
    keys: Vec<(&'a str, &'a str)>,
}

impl<'a> Quote<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let inner = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        let (folder, keys) = inner.split_once(": ")?;
        let keys = keys.split(" | ").map(|key| key.split_once('=').unwrap_or((key, ""))).collect();
        Some(Self { folder, keys })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn list(&self, key: &str) -> Option<Vec<&'a str>> {
        self.get(key).map(|value| value.split(';').collect())
    }

    fn file(&self, name: &str) -> Value {
        json(&root().join("lab/results").join(self.folder).join(name))
    }

    fn table(&self) -> Vec<String> {
        if self.get("bars").is_some() { self.bars() } else { self.cells() }
    }

    fn cells(&self) -> Vec<String> {
        let summary = self.file("summary.json");
        let cells: Vec<&Value> =
            summary.as_array().unwrap().iter().filter(|cell| self.chooses(cell)).collect();
        let mut rows: Vec<[&str; 3]> = Vec::new();
        for cell in &cells {
            let row = place(cell);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        assert!(!rows.is_empty(), "{}: nothing is chosen", self.folder);
        let arms = self.list("arms").expect("arms");
        let ratios = self.list("ratios").unwrap_or_default();
        // A column that says the same everywhere is none.
        let differs =
            [0, 1, 2].map(|part| part == 0 || rows.iter().any(|row| row[part] != rows[0][part]));
        let named = |names: [&str; 3]| -> Vec<String> {
            (0..3).filter(|part| differs[*part]).map(|part| names[part].to_owned()).collect()
        };
        let mut head = named(["link", "variant", "suite"]);
        head.extend(arms.iter().chain(&ratios).map(|&column| column.replace('/', " / ")));
        head.extend(self.get("paper").map(|_| "turbo / tls13 in the paper".to_owned()));
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for row in rows {
            let find = |arm: &str| {
                cells.iter().find(|cell| place(cell) == row && cell["arm"] == arm).copied()
            };
            let mut columns = named(row);
            columns.extend(
                arms.iter().map(|arm| find(arm).map_or("–".to_owned(), |cell| self.show(cell))),
            );
            columns.extend(ratios.iter().map(|ratio| {
                let (one, other) = ratio.split_once('/').unwrap();
                let median = |arm| find(arm).and_then(|cell| cell[self.of()]["p50"].as_f64());
                match (median(one), median(other)) {
                    (Some(one), Some(other)) => format!("{:.3}", one / other),
                    _ => "–".to_owned(),
                }
            }));
            columns.extend(self.get("paper").map(|paper| published(paper, row)));
            table.push(line(&columns));
        }
        table
    }

    fn chooses(&self, cell: &Value) -> bool {
        [("links", "link"), ("suites", "suite"), ("variants", "variant")].iter().all(
            |(list, key)| {
                self.list(list).is_none_or(|wanted| wanted.contains(&cell[*key].as_str().unwrap()))
            },
        )
    }

    fn of(&self) -> &'a str {
        self.get("of").unwrap_or("first_request_byte")
    }

    fn show(&self, cell: &Value) -> String {
        let times = &cell[self.of()];
        let (n, failed) = (cell["n"].as_u64().unwrap(), cell["failed"].as_u64().unwrap());
        let show = self.get("show").unwrap_or("p50");
        if let Some(broken) = cell["broken"].as_str() {
            return format!("broken: {broken}");
        }
        match show {
            "p50" => time(&times["p50"]),
            "max" => time(&times["max"]),
            "interval" => {
                let ends = &times["ci95"];
                format!("{} [{} .. {}]", time(&times["p50"]), time(&ends[0]), time(&ends[1]))
            }
            "tail" => ["p50", "p90", "p99"].map(|part| time(&times[part])).join(" / "),
            "rtts" => cell["rtts"].as_f64().map_or("–".to_owned(), |rtts| format!("{rtts:.2}")),
            "rate" => cell["exchanges_per_s"]
                .as_f64()
                .map_or("–".to_owned(), |rate| format!("{rate:.0}")),
            "complete" => format!("{} of {n}", n - failed),
            "opened" => {
                let openings = cell["openings"].as_object().unwrap().iter();
                let opened = openings.map(|(kind, count)| format!("{kind} {count}"));
                let failed = (failed > 0).then(|| format!("failed {failed}"));
                opened.chain(failed).collect::<Vec<_>>().join(", ")
            }
            "processor" => {
                let part = |side: &str| {
                    cell[side].as_f64().map_or("–".to_owned(), |cpu| format!("{cpu:.2}"))
                };
                format!("{} + {}", part("client_cpu_ms"), part("server_cpu_ms"))
            }
            other => panic!("{}: show={other}", self.folder),
        }
    }

    fn bars(&self) -> Vec<String> {
        let bars = self.file("bars.json");
        let bars = bars.as_array().unwrap();
        let met = bars.iter().filter(|bar| bar["met"] == true).count();
        let conditions = self.list("conditions").unwrap_or_default();
        let mut table = vec![
            format!("| {met} of {} bars met | on | against | bar | found | |", bars.len()),
            line(&vec!["---".to_owned(); 6]),
        ];
        for bar in bars {
            let condition = bar["condition"].as_str().unwrap();
            if bar["met"] == true && !conditions.contains(&condition) {
                continue;
            }
            let text = |key: &str| bar[key].as_str().unwrap_or_default().to_owned();
            let found =
                bar["found"].as_f64().map_or("nothing".to_owned(), |found| found.to_string());
            table.push(line(&[
                format!("{} {}", text("arm"), text("suite")),
                [text("link"), text("variant")]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(", "),
                bar["bar"]["against"].as_str().unwrap_or("–").to_owned(),
                format!("{condition} {}", bar["limit"]),
                found,
                if bar["met"] == true { "met" } else { "**missed**" }.to_owned(),
            ]));
        }
        table
    }
}

/// The ratio that a file of lab/papers has for a link and a suite.
fn published(paper: &str, [link, _, suite]: [&str; 3]) -> String {
    let text =
        fs::read_to_string(root().join("lab/papers").join(paper).with_extension("toml")).unwrap();
    let paper: toml::Table = text.parse().unwrap();
    let rows = paper["row"].as_array().unwrap();
    let median = |arm: &str| {
        let row = rows.iter().find(|row| {
            let is = |key: &str, value: &str| row[key].as_str() == Some(value);
            is("place", link) && is("suite", suite) && is("arm", arm)
        });
        row.and_then(|row| row["p50"].as_integer()).map(|us| us as f64)
    };
    match (median("turbo"), median("tls13")) {
        (Some(turbo), Some(tls13)) => format!("{:.3}", turbo / tls13),
        _ => "–".to_owned(),
    }
}

/// Link, variant, suite.
fn place(cell: &Value) -> [&str; 3] {
    ["link", "variant", "suite"].map(|key| cell[key].as_str().unwrap())
}

fn line(columns: &[String]) -> String {
    format!("| {} |", columns.join(" | "))
}

/// Milliseconds; a percentile among failures is none.
fn time(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(ms) if ms < 100.0 => format!("{ms:.2}"),
        Some(ms) => format!("{ms:.1}"),
    }
}
