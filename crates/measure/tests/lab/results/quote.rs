//! Quotes: the comment that asks for one, and what it becomes.

use serde_json::Value;

use super::{RESULTS, browser, json, published, report, root};

/// Columns of lines without tables.
const COLUMNS: usize = 100;

/// Returns a page with its quotes made anew.
pub(super) fn quoted(path: &str, page: &str) -> String {
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
        let Some(quote) = Quote::parse(path, &comment) else { continue };
        for row in quote.lines() {
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

/// Lines that a comment asks for.
pub(super) struct Quote<'a> {
    /// The page that it is on.
    path: &'a str,
    pub(super) folder: &'a str,
    keys: Vec<(&'a str, &'a str)>,
}

impl<'a> Quote<'a> {
    fn parse(path: &'a str, line: &'a str) -> Option<Self> {
        let inner = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        let (folder, keys) = inner.split_once(": ")?;
        if !root().join("lab/results").join(folder).is_dir() {
            assert!(!folder.starts_with("20"), "{path}: lab/results has no {folder}");
            return None;
        }
        let keys = keys.split(" | ").map(|key| key.split_once('=').unwrap_or((key, ""))).collect();
        Some(Self { path, folder, keys })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    pub(super) fn list(&self, key: &str) -> Option<Vec<&'a str>> {
        self.get(key).map(|value| value.split(';').map(str::trim).collect())
    }

    /// Returns true if a list has a value, or does not choose.
    pub(super) fn keeps(&self, key: &str, value: &str) -> bool {
        self.list(key).is_none_or(|wanted| wanted.contains(&value))
    }

    pub(super) fn file(&self, name: &str) -> Value {
        json(&root().join("lab/results").join(self.folder).join(name))
    }

    /// The first cell of a table: on the page of all results, the run that it is of.
    pub(super) fn first_cell(&self, title: &str) -> String {
        if self.path != RESULTS {
            return title.to_owned();
        }
        let environment = self.file("environment.json");
        let [commit, cpu] = ["commit", "cpu"].map(|name| environment[name].as_str().unwrap());
        format!("{}, {commit}, {cpu}", self.link())
    }

    /// The folder, with a link to its page.
    fn link(&self) -> String {
        let above = "../".repeat(self.path.matches('/').count());
        let page = format!("lab/results/{}/README.md", self.folder);
        match self.path == page {
            true => format!("`{}`", self.folder),
            false => format!("[{}]({above}{page})", self.folder),
        }
    }

    pub(super) fn groups(&self) -> &'static Vec<Value> {
        report(self.folder)["groups"].as_array().unwrap()
    }

    fn lines(&self) -> Vec<String> {
        let asked = ["run", "browser", "published", "privacy", "bars"].map(|key| self.get(key));
        match asked {
            [Some(_), ..] => self.run(),
            [_, Some(which), ..] => browser::table(self, which),
            [_, _, Some(_), ..] => published::table(self),
            [_, _, _, Some(_), _] => published::privacy(self),
            [.., Some(_)] => self.bars(),
            _ => self.cells(),
        }
    }

    /// Says where the figures come from.
    fn run(&self) -> Vec<String> {
        let environment = self.file("environment.json");
        let word = |name: &str| environment[name].as_str().unwrap().to_owned();
        let run = report(self.folder);
        let count = |name: &str| run[name].as_u64().unwrap();
        let kernel = word("kernel");
        let (flagged, trials) = (count("flagged"), count("trials"));
        let mut text = format!(
            "{}: commit {}, {}, {} processors, Linux {}, load {} before. {trials} trials, \
             {} failed, {} flagged",
            self.link(),
            word("commit"),
            word("cpu"),
            environment["cpus"],
            kernel.split('-').next().unwrap_or_default(),
            environment["load_before"],
            count("failed"),
            percent(flagged as f64 / trials as f64),
        );
        let bars = |which: &str| {
            let [met, all] = ["met", "all"].map(|part| run["bars"][which][part].as_u64().unwrap());
            (all > 0).then_some((met, all))
        };
        if let Some((met, all)) = bars("figures") {
            text.push_str(&format!("; bars on figures: {met} of {all} met"));
        }
        if let Some((met, all)) = bars("completion") {
            text.push_str(&format!("; on completion: {met} of {all}"));
        }
        wrapped(&(text + "."))
    }

    fn cells(&self) -> Vec<String> {
        let groups: Vec<&Value> =
            self.groups().iter().filter(|group| self.chooses(group)).collect();
        assert!(!groups.is_empty(), "{}: nothing is chosen", self.folder);
        let arms = self.list("arms").expect("arms");
        let ratios = self.list("ratios").unwrap_or_default();
        let names = self.list("names").unwrap_or_else(|| arms.clone());
        // A column that says the same everywhere is none.
        let rows: Vec<[String; 3]> = groups.iter().map(|group| place(group)).collect();
        let mut parts = vec![0, 1, 2];
        parts.retain(|part| *part == 0 || rows.iter().any(|row| row[*part] != rows[0][*part]));
        let titles = [&*self.first_cell("link"), "variant", "suite"];
        let mut head: Vec<String> = parts.iter().map(|part| titles[*part].to_owned()).collect();
        head.push("n (flagged)".to_owned());
        head.extend(names.into_iter().map(str::to_owned));
        let baseline = groups[0]["baseline"].as_str().unwrap();
        head.extend(ratios.iter().map(|arm| format!("{arm} / {baseline}")));
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for (group, row) in groups.iter().zip(rows) {
            let cell = |arm: &str| {
                let mut cells = group["cells"].as_array().unwrap().iter();
                cells.find(|cell| cell["arm"] == arm)
            };
            let own: Vec<&Value> = arms.iter().filter_map(|arm| cell(arm)).collect();
            let mut columns: Vec<String> = parts.iter().map(|part| row[*part].clone()).collect();
            columns.push(counts(&own));
            columns.extend(
                arms.iter().map(|arm| cell(arm).map_or("–".into(), |cell| self.show(cell))),
            );
            columns.extend(ratios.iter().map(|arm| {
                cell(arm)
                    .map_or("–".into(), |cell| estimate(&cell["to_baseline"][self.subject()]))
            }));
            table.push(line(&columns));
        }
        table
    }

    fn chooses(&self, group: &Value) -> bool {
        let chosen = [("links", "link"), ("suites", "suite"), ("variants", "variant")];
        let arms = self.list("arms").unwrap_or_default();
        let mut cells = group["cells"].as_array().unwrap().iter();
        chosen.iter().all(|(list, key)| self.keeps(list, group[*key].as_str().unwrap()))
            && cells.any(|cell| arms.contains(&cell["arm"].as_str().unwrap()))
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
        let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "–".to_owned());
        match show {
            "p50" => time(&times["p50"]),
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
                or_none(bytes.map(|bytes| (bytes / n).to_string()))
            }
            "to_today" => or_none(cell["to_today"].as_f64().map(|ratio| format!("{ratio:.3}"))),
            "rtts" => or_none(cell["rtts"].as_f64().map(|rtts| format!("{rtts:.2}"))),
            "complete" => format!("{} of {n}", n - failed),
            "opened" => {
                let openings = cell["openings"].as_object().unwrap().iter();
                let opened = openings.map(|(kind, count)| format!("{kind} {count}"));
                let failed = (failed > 0).then(|| format!("failed {failed}"));
                opened.chain(failed).collect::<Vec<_>>().join(", ")
            }
            "processor" => ["client_cpu_ms", "server_cpu_ms"]
                .map(|side| or_none(cell[side].as_f64().map(|cpu| format!("{cpu:.2}"))))
                .join(" + "),
            "kept" => ["rate", "p99"]
                .map(|part| or_none(cell["kept"][part].as_f64().map(|part| format!("{part:.2}"))))
                .join(", "),
            "grown" => {
                or_none(cell["kept"]["grown_mb"].as_f64().map(|grown| format!("{grown:.0}")))
            }
            "held" => or_none(cell["kept"]["held_kib"].as_f64().map(|held| format!("{held:.1}"))),
            other => panic!("{}: show={other}", self.folder),
        }
    }

    fn bars(&self) -> Vec<String> {
        let bars = self.file("bars.json");
        let missed: Vec<&Value> =
            bars.as_array().unwrap().iter().filter(|bar| bar["met"] == false).collect();
        if missed.is_empty() {
            return vec!["No bar is missed.".to_owned()];
        }
        let head = ["missed", "on", "against", "bar", "found"].map(str::to_owned);
        let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
        for bar in missed {
            let found =
                bar["found"].as_f64().map_or("nothing".to_owned(), |found| found.to_string());
            let [arm, suite, link, variant] = ["arm", "suite", "link", "variant"]
                .map(|key| bar[key].as_str().unwrap_or_default());
            let mut on = vec![link, variant];
            on.retain(|part| !part.is_empty());
            table.push(line(&[
                format!("{arm} {suite}").trim_end().to_owned(),
                on.join(", "),
                bar["bar"]["against"].as_str().unwrap_or("–").to_owned(),
                format!("{} {}", bar["condition"].as_str().unwrap(), bar["limit"]),
                found,
            ]));
        }
        table
    }
}

/// Link with its round trip, variant, suite.
fn place(group: &Value) -> [String; 3] {
    let [link, variant, suite] =
        ["link", "variant", "suite"].map(|key| group[key].as_str().unwrap().to_owned());
    let rtt = group["rtt_ms"].as_f64().filter(|_| !link.ends_with(" ms"));
    let link = match rtt {
        Some(rtt) if rtt < 1.0 => format!("{link}, {rtt:.2} ms"),
        Some(rtt) => format!("{link}, {rtt:.0} ms"),
        None => link,
    };
    [link, variant, suite]
}

/// Trials of each of these cells, and the share of all that was flagged.
pub(super) fn counts(cells: &[&Value]) -> String {
    let all = |name: &'static str| cells.iter().map(move |cell| cell[name].as_u64().unwrap());
    let (Some(least), Some(most)) = (all("n").min(), all("n").max()) else {
        return "–".to_owned();
    };
    let trials = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let flagged = all("flagged").sum::<u64>() as f64 / all("n").sum::<u64>() as f64;
    format!("{trials} ({})", percent(flagged))
}

/// Words in lines of [`COLUMNS`].
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= COLUMNS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

pub(super) fn line(columns: &[String]) -> String {
    format!("| {} |", columns.join(" | "))
}

/// Milliseconds; a percentile among failures is none.
pub(super) fn time(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(ms) if ms < 100.0 => format!("{ms:.2}"),
        Some(ms) => format!("{ms:.1}"),
    }
}

pub(super) fn mean(mean: &Value, sd: &Value) -> String {
    match sd.as_f64() {
        Some(sd) => format!("{} ({sd:.2})", time(mean)),
        None => "–".to_owned(),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn share(count: u64, total: u64) -> String {
    format!("{} ({count} of {total})", percent(count as f64 / total as f64))
}

/// Returns the share of full handshakes.
fn full(cell: &Value) -> String {
    let counts = ["full", "resumed"].map(|which| cell["handshakes"][which].as_u64().unwrap());
    share(counts[0], counts.iter().sum())
}

/// A ratio with its interval, whose ends may be among failures.
pub(super) fn estimate(estimate: &Value) -> String {
    let figures = [&estimate["value"], &estimate["ci95"][0], &estimate["ci95"][1]];
    let [value, low, high] = figures
        .map(|figure| figure.as_f64().map_or("–".to_owned(), |figure| format!("{figure:.3}")));
    if value == "–" { value } else { format!("{value} [{low} .. {high}]") }
}
