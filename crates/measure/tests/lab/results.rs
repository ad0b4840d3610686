//! docs/results.md quotes committed results and nothing more: each table is made from the summary
//! that it names.
//!
//! A table begins with a comment `<!-- FOLDER: key=value | key=value -->`, of one line or several,
//! and ends before an empty line. FOLDER is one of lab/results. With `UPDATE_RESULTS=1` the tables
//! are written anew.
//!
//! * `arms` are the columns, `links`, `suites` and `variants` choose the rows (all by default;
//!   lists separated by `;`).
//! * `show` is what stands in a cell: `p50`, `interval`, `tail`, `mean`, `rtts`, `rate`,
//!   `complete`, `opened`, `zero_rtt`, `processor`, `max`, `full` (handshakes), `bytes`,
//!   `to_today`.
//! * `of` is the moment: `first_request_byte` (default), `first_response_byte`,
//!   `last_response_byte`.
//! * `ratios` are columns with the ratio of two medians, such as `turbo/tls13`.
//! * `paper` is a column with the ratio that a file of lab/papers has.
//!
//! Instead of all these:
//!
//! * `beside` are the rows of a file of lab/papers with means or shares, and ours of the same arm,
//!   variant and round trip.
//! * `privacy` is who can link the connections of `arms`, with the table of
//!   lab/papers/fop-privacy.toml beside.
//! * `browser` is `cells` (each site with each arm) or `means` (each arm over all sites) of loads
//!   in a browser.
//! * `bars` is the list of bars; those that were missed are always in it, of the others the
//!   `conditions` given.

mod pages;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::samples;

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
        let samples = samples::text(&folder).lines().count() - 1;
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
        let mut comment = line.to_owned();
        while comment.starts_with("<!-- ") && !comment.ends_with(" -->") {
            let line = lines.next().expect("a comment has an end");
            written.push_str(line);
            written.push('\n');
            comment = format!("{comment} {}", line.trim_start());
        }
        let Some(quote) = Quote::parse(&comment) else { continue };
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

/// Table that a comment asks for.
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
        self.get(key).map(|value| value.split(';').map(str::trim).collect())
    }

    fn file(&self, name: &str) -> Value {
        json(&root().join("lab/results").join(self.folder).join(name))
    }

    fn table(&self) -> Vec<String> {
        let asked = ["browser", "beside", "privacy", "bars"].map(|key| self.get(key));
        match asked {
            [Some(which), ..] => pages::table(self, which),
            [_, Some(paper), ..] => self.beside(paper),
            [_, _, Some(_), _] => self.privacy(),
            [_, _, _, Some(_)] => self.bars(),
            _ => self.cells(),
        }
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
        let mut parts = vec![0, 1, 2];
        parts.retain(|part| *part == 0 || rows.iter().any(|row| row[*part] != rows[0][*part]));
        let names = ["link", "variant", "suite"];
        let mut head: Vec<String> = parts.iter().map(|part| names[*part].to_owned()).collect();
        head.extend(arms.iter().chain(&ratios).map(|&column| column.replace('/', " / ")));
        head.extend(self.get("paper").map(|_| "turbo / tls13 in the paper".to_owned()));
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for row in rows {
            let own: HashMap<&str, &Value> = cells
                .iter()
                .filter(|cell| place(cell) == row)
                .map(|cell| (cell["arm"].as_str().unwrap(), *cell))
                .collect();
            let mut columns: Vec<String> = parts.iter().map(|part| row[*part].to_owned()).collect();
            columns.extend(
                arms.iter().map(|arm| own.get(arm).map_or("–".into(), |cell| self.show(cell))),
            );
            columns.extend(ratios.iter().map(|arms| {
                let (one, other) = arms.split_once('/').unwrap();
                let [one, other] = [one, other]
                    .map(|arm| own.get(arm).and_then(|cell| cell[self.subject()]["p50"].as_f64()));
                ratio(one, other)
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

    fn subject(&self) -> &'a str {
        self.get("of").unwrap_or("first_request_byte")
    }

    fn show(&self, cell: &Value) -> String {
        let times = &cell[self.subject()];
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
            "mean" => mean(&times["mean"], &times["sd"]),
            "zero_rtt" => share(cell["zero_rtt"].as_u64().unwrap(), n),
            "full" => full(cell),
            "bytes" => {
                let bytes = cell["handshakes"]["seen"]["bytes"].as_u64();
                bytes.map_or("–".to_owned(), |bytes| (bytes / n).to_string())
            }
            "to_today" => {
                cell["to_today"].as_f64().map_or("–".to_owned(), |ratio| format!("{ratio:.3}"))
            }
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
            "processor" => ["client_cpu_ms", "server_cpu_ms"]
                .map(|side| cell[side].as_f64().map_or("–".to_owned(), |cpu| format!("{cpu:.2}")))
                .join(" + "),
            other => panic!("{}: show={other}", self.folder),
        }
    }

    fn beside(&self, paper: &str) -> Vec<String> {
        let summary = self.file("summary.json");
        let cells = summary.as_array().unwrap();
        let paper = published_table(paper);
        let rows = paper["row"].as_array().unwrap();
        let of = paper["moment"].as_str().unwrap();
        let baseline = paper.get("baseline").and_then(toml::Value::as_str).unwrap_or_default();
        // Shares are not compared with those of another arm.
        let of_full = rows.iter().any(|row| row.get("full").is_some());
        let of_shares = of_full || rows.iter().any(|row| row.get("missed").is_some());
        let mut head = vec!["", "", "paper", "ours"];
        if !of_shares {
            head.extend(["paper, to TCP", "ours, to TCP"]);
        }
        let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for row in rows {
            let arm = text(row, "arm");
            let [own, own_base] = [arm.as_str(), baseline].map(|arm| {
                let mut like = cells.iter().filter(|cell| is_like(cell, row, arm));
                let found = like.next();
                assert!(like.next().is_none(), "{}: two cells are like {row}", self.folder);
                found
            });
            let mut columns = vec![text(row, "place"), text(row, "printed")];
            columns.push(theirs(row));
            columns.push(own.map_or("–".to_owned(), |cell| match of_shares {
                true if of_full => full(cell),
                true => {
                    let n = cell["n"].as_u64().unwrap();
                    share(n - cell["zero_rtt"].as_u64().unwrap(), n)
                }
                false => mean(&cell[of]["mean"], &cell[of]["sd"]),
            }));
            if !of_shares {
                let base = rows.iter().find(|other: &&toml::Value| {
                    text(other, "arm") == baseline
                        && ["place", "variant"].iter().all(|key| text(other, key) == text(row, key))
                });
                let [one, other] =
                    [Some(row), base].map(|row| row.and_then(|row| row["mean"].as_float()));
                columns.push(ratio(one, other));
                let [one, other] =
                    [own, own_base].map(|cell| cell.and_then(|cell| cell[of]["mean"].as_f64()));
                columns.push(ratio(one, other));
            }
            table.push(line(&columns));
        }
        table
    }

    fn privacy(&self) -> Vec<String> {
        let summary = self.file("summary.json");
        let cells = summary.as_array().unwrap();
        let arms = self.list("arms").expect("arms");
        let published = published_table("fop-privacy");
        let mut boundaries: Vec<(&str, &str)> = Vec::new();
        for cell in cells {
            let row =
                (cell["privacy"]["boundary"].as_str().unwrap(), cell["variant"].as_str().unwrap());
            if !boundaries.contains(&row) {
                boundaries.push(row);
            }
        }
        let mut head = ["", "TFO in the paper", "FOP in the paper"].map(str::to_owned).to_vec();
        head.extend(arms.iter().map(|arm| format!("`{arm}`")));
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for (boundary, title) in boundaries {
            let mut theirs = published["row"].as_array().unwrap().iter();
            let theirs = theirs.find(|row| text(row, "boundary") == boundary);
            let mut columns = vec![title.to_owned()];
            columns.extend(["tfo", "fop"].map(|key| {
                let word = theirs.map(|row| text(row, key)).filter(|word| !word.is_empty());
                word.unwrap_or_else(|| "–".to_owned())
            }));
            columns.extend(arms.iter().map(|arm| {
                let mut all = cells.iter();
                let cell = all.find(|cell| {
                    cell["arm"] == *arm && cell["privacy"]["boundary"].as_str() == Some(boundary)
                });
                cell.map_or("–".to_owned(), |cell| linkable(&cell["privacy"]))
            }));
            table.push(line(&columns));
        }
        table
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
            let found =
                bar["found"].as_f64().map_or("nothing".to_owned(), |found| found.to_string());
            let [arm, suite, link, variant] = ["arm", "suite", "link", "variant"]
                .map(|key| bar[key].as_str().unwrap_or_default());
            let mut on = vec![link, variant];
            on.retain(|part| !part.is_empty());
            table.push(line(&[
                format!("{arm} {suite}"),
                on.join(", "),
                bar["bar"]["against"].as_str().unwrap_or("–").to_owned(),
                format!("{condition} {}", bar["limit"]),
                found,
                if bar["met"] == true { "met" } else { "**missed**" }.to_owned(),
            ]));
        }
        table
    }
}

fn published_table(name: &str) -> toml::Table {
    let file = root().join("lab/papers").join(name).with_extension("toml");
    fs::read_to_string(file).unwrap().parse().unwrap()
}

/// A text of a published row; empty if it has none.
fn text(row: &toml::Value, key: &str) -> String {
    row.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
}

/// Returns true if a cell is of this arm, and of the variant and the round trip of a published row.
fn is_like(cell: &Value, row: &toml::Value, arm: &str) -> bool {
    let rtt = &row["rtt"];
    let theirs = rtt.as_float().or(rtt.as_integer().map(|rtt| rtt as f64)).unwrap();
    let ours = cell["rtt_ms"].as_f64().unwrap();
    // Ours is what was asked for, theirs was measured.
    let near = (ours - theirs).abs() <= 0.05 * theirs;
    near && cell["arm"] == arm && cell["variant"] == text(row, "variant").as_str()
}

/// Formats a published row: a share in percent, or a mean with its deviation.
fn theirs(row: &toml::Value) -> String {
    let keys = ["missed", "full", "mean", "sd"];
    match keys.map(|key| row.get(key).and_then(toml::Value::as_float)) {
        [Some(share), ..] | [_, Some(share), ..] => format!("{:.1} %", share * 100.0),
        [_, _, Some(mean), Some(sd)] => format!("{mean:.1} ({sd:.1})"),
        [_, _, Some(mean), None] => format!("{mean:.0}"),
        _ => panic!("neither a share nor a mean: {row}"),
    }
}

fn mean(mean: &Value, sd: &Value) -> String {
    match sd.as_f64() {
        Some(sd) => format!("{} ({sd:.2})", time(mean)),
        None => "–".to_owned(),
    }
}

fn share(count: u64, total: u64) -> String {
    format!("{:.1} % ({count} of {total})", count as f64 / total as f64 * 100.0)
}

/// The share of full handshakes.
fn full(cell: &Value) -> String {
    let counts = ["full", "resumed"].map(|which| cell["handshakes"][which].as_u64().unwrap());
    share(counts[0], counts.iter().sum())
}

fn ratio(one: Option<f64>, other: Option<f64>) -> String {
    match (one, other) {
        (Some(one), Some(other)) => format!("{:.3}", one / other),
        _ => "–".to_owned(),
    }
}

/// Formats the finding of a row, with the number of cases.
fn linkable(finding: &Value) -> String {
    let all: u64 = ["viable", "bounded", "blocked", "undecided"]
        .map(|word| finding[word].as_u64().unwrap())
        .iter()
        .sum();
    let word = finding["linkable"].as_str().unwrap_or("undecided");
    let period = match (finding["boundary"].as_str().unwrap(), word) {
        ("period", "viable") => ", no end seen",
        ("period", "bounded") => ", until expiry",
        _ => "",
    };
    format!("{word}{period} ({} of {all})", finding[word])
}

/// The ratio that a file of lab/papers has for a link and a suite.
fn published(paper: &str, [link, _, suite]: [&str; 3]) -> String {
    let paper = published_table(paper);
    let rows = paper["row"].as_array().unwrap();
    let [turbo, tls13] = ["turbo", "tls13"].map(|arm| {
        let row = rows.iter().find(|row| {
            ["place", "suite", "arm"].map(|key| row[key].as_str()) == [link, suite, arm].map(Some)
        });
        row.and_then(|row| row["p50"].as_integer()).map(|us| us as f64)
    });
    ratio(turbo, tls13)
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
