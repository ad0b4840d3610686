//! `db build`: the recordings, the database of them, and how well it would have done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use headstart_pageload::db::{
    Built, Facts, Figures, HORIZONS, Horizon, LeftOut, Methods, Parts, Recordings, Rules, Tally,
    Target, write,
};
use headstart_pageload::hits::{LoadShares, RequestLog, Shares};
use headstart_pageload::page::Page;
use headstart_proto::UnixSeconds;
use serde_json::{Value, json};

use super::super::files::Files;
use super::super::text::{counted, grouped};
use super::proven::{self, LoadFacts, Loads, Proof};
use super::show::Totals;
use super::{file, keys};
use crate::chart::figure::percent;
use crate::pageload::db::options::{DbBuildOptions, DbName};
use crate::recordings::unreadable;
use crate::recordings::{Contents, Recording, logged, open_unpacked, read_all};
use crate::table::table;
use headstart::base::clock::wall_clock;
use headstart::base::failure::{Failure, USAGE};
use headstart::base::output;

/// Makes a database, or only says what it would be.
///
/// # Errors
/// No recording can be read, nothing is learned that could be written, or the database cannot be
/// written.
pub(super) fn run(options: &DbBuildOptions) -> Result<ExitCode, Failure> {
    // Read first, so that a wrong key is reported before thousands of recordings are read.
    let key = options.sign.as_deref().map(keys::secret).transpose()?;
    let all = Learned::read(Files::from_names(&options.files), options);
    if all.recordings.count() == 0 {
        return Err(nothing(&all));
    }
    let rules = rules(options);
    let mut built =
        all.recordings.build(&rules, parts(&options.only), wall_clock()).map_err(too_large)?;
    let proofs = proven::keep(options, &all.loads, &rules, &mut built).map_err(too_large)?;
    let bytes = write(&built.database, key.as_ref()).map_err(too_large)?;
    if let Some(path) = &options.out {
        is_of_use(&built, &rules, path)?;
        file::replace(path, &bytes)?;
    }
    let figures = if options.figures { figures(&all.recordings, &rules) } else { vec![] };
    let by_load = options.figures.then(|| all.requests.leave_one_out(&rules));
    for (name, failure) in &all.failed {
        eprintln!("warning: {name} is left out: {}", failure.message());
    }
    let (bytes, proofs) = (bytes.len(), proofs.as_slice());
    let made = Made { all: &all, built: &built, bytes, figures: &figures, by_load, proofs };
    let text = if options.json { format!("{:#}\n", made.json()) } else { made.text() };
    output::print(text.as_bytes())?;
    Ok(if all.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
}

fn too_large(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("cannot make a database: {error}"))
        .hint("give fewer recordings, or only some databases: --only redirect,server,http2")
}

/// Refuses an empty database: with a newer date, it would replace a useful one on every client.
fn is_of_use(built: &Built, rules: &Rules, path: &Path) -> Result<(), Failure> {
    let database = &built.database;
    if !database.pages().is_empty() || !database.http2().is_empty() {
        return Ok(());
    }
    let least = counted(rules.recordings_min.into(), "recording", "recordings");
    let path = path.display();
    Err(Failure::negative(format!("{path} is not written: no page has {least}"))
        .hint("record each page on several days, or ask for fewer with --recordings"))
}

/// Inputs that were learned from, and others.
#[derive(Default)]
struct Learned {
    recordings: Recordings,
    /// Requests of the recordings, by document.
    requests: RequestLog,
    /// Recordings whose pages are not for a database, by reason.
    refused: BTreeMap<String, u64>,
    /// Files, and what is wrong with them.
    failed: Vec<(String, Failure)>,
    /// Loads to try policies on, by document.
    loads: Loads,
}

impl Learned {
    fn read(Files { files, failures }: Files, options: &DbBuildOptions) -> Self {
        let (published, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
            files.iter().partition(|path: &&PathBuf| {
                let name = path.to_string_lossy();
                [".jsonl", ".jsonl.gz"].iter().any(|end| name.ends_with(end)) || name == "-"
            });
        let mut all = Self { failed: failures, ..Self::default() };
        for path in published {
            if let Err(failure) = all.published(path) {
                all.failed.push((path.display().to_string(), failure));
            }
        }
        let others: Vec<PathBuf> = others.into_iter().cloned().collect();
        let all = Mutex::new(all);
        let read = read_all(&others, |_, contents: Contents| -> Result<Vec<LoadFacts>, Failure> {
            let loads: Vec<LoadFacts> = contents
                .recordings
                .into_iter()
                .map(|of| facts_of(of, options.assume_get))
                .collect::<Result<_, Failure>>()?;
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            loads.iter().for_each(|load| all.add(&load.page, &load.facts));
            Ok(if options.proven.is_some() { loads } else { Vec::new() })
        });
        let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (name, read) in read {
            match read.and_then(|learned| learned) {
                Ok(loads) => loads.into_iter().for_each(|load| all.try_on(load)),
                Err(failure) => all.failed.push((name, failure)),
            }
        }
        all
    }

    fn add(&mut self, page: &Page, facts: &Facts) {
        let at = page.recorded().at.and_then(unix_seconds);
        let count = self.recordings.count();
        if let Err(error) = self.recordings.add(page, at, facts) {
            *self.refused.entry(error.to_string()).or_default() += 1;
        }
        // One that was there already would be compared with itself.
        if self.recordings.count() > count {
            self.requests.add(&page.document().url, page);
        }
    }

    /// Keeps a load to try policies on, under the name that databases have for its document; those
    /// of other names are refused.
    fn try_on(&mut self, load: LoadFacts) {
        if let Ok(document) = load.page.document().url.parse::<Target>() {
            self.loads.entry(document.to_string()).or_default().push(load);
        }
    }

    fn published(&mut self, path: &Path) -> Result<(), Failure> {
        let name = path.display().to_string();
        let input = open_unpacked(path).map_err(|error| unreadable(&name, &error))?;
        let facts = Facts::published();
        for line in logged(input, &name) {
            self.add(&line?.1.page, &facts);
        }
        Ok(())
    }
}

fn facts_of(recording: Recording, assume_get: bool) -> Result<LoadFacts, Failure> {
    let facts = match &recording.har {
        Some(har) => {
            let name = &recording.file;
            let methods = open_unpacked(Path::new(name)).and_then(Methods::read);
            let methods = methods.map_err(|error| unreadable(name, &error))?;
            Facts::of_resources(&recording.page, &har.facts, &methods)
        }
        None if assume_get => Facts::all_get(),
        None => Facts::new(),
    };
    let resources = recording.har.map(|har| har.facts).unwrap_or_default();
    Ok(LoadFacts { page: recording.page, resources, facts })
}

fn unix_seconds(at: SystemTime) -> Option<UnixSeconds> {
    at.duration_since(UNIX_EPOCH).ok().map(|since| UnixSeconds(since.as_secs()))
}

fn rules(options: &DbBuildOptions) -> Rules {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 1 to 1000
    let share = (options.share * 10.0).round() as u32;
    let newest = options.newest.and_then(|newest| usize::try_from(newest).ok());
    Rules { share, recordings_min: options.recordings, newest: newest.unwrap_or(usize::MAX) }
}

fn parts(names: &[DbName]) -> Parts {
    Parts {
        redirect: names.contains(&DbName::Redirect),
        server: names.contains(&DbName::Server),
        http2: names.contains(&DbName::Http2),
        prefetch: names.contains(&DbName::Prefetch),
    }
}

fn figures(recordings: &Recordings, rules: &Rules) -> Vec<(&'static str, Figures)> {
    let ages = ["a day", "a week", "four weeks"];
    let after = ages.into_iter().zip(HORIZONS.map(Horizon::After));
    let all = after.chain([("any age", Horizon::LeaveOneOut)]);
    all.map(|(name, horizon)| (name, recordings.figures(rules, horizon))).collect()
}

fn nothing(all: &Learned) -> Failure {
    match all.failed.first() {
        Some((_, failure)) => failure.clone(),
        None => {
            let why =
                all.refused.keys().next().map_or("there is none in the files", String::as_str);
            Failure::usage(format!("no recording can be learned from: {why}"))
                .hint("databases are of public pages; record them by their names")
        }
    }
}

struct Made<'a> {
    all: &'a Learned,
    built: &'a Built,
    bytes: usize,
    figures: &'a [(&'static str, Figures)],
    by_load: Option<LoadShares>,
    proofs: &'a [Proof],
}

impl Made<'_> {
    fn text(&self) -> String {
        let database = &self.built.database;
        let mut text = format!(
            "{} of {}; {} in the database, {} bytes\n\n",
            counted(self.all.recordings.count() as u64, "recording", "recordings"),
            counted(self.all.recordings.page_count() as u64, "page", "pages"),
            database.pages().len(),
            grouped(self.bytes as u64),
        );
        let Totals { redirects, servers, http2, prefetch } = Totals::new(database);
        let rows = [
            ("redirects", redirects),
            ("servers", servers),
            ("HTTP/2 hosts", http2),
            ("URLs to prefetch", prefetch),
        ];
        text += &table(&rows.map(|(name, count)| vec![name.into(), grouped(count as u64)]), &[0]);
        text += &self.left_out();
        text += &proven::text(self.proofs);
        text += &by_database(self.figures);
        text + &self.by_load.as_ref().map_or(String::new(), by_load)
    }

    fn left_out(&self) -> String {
        let left_out = self.built.left_out.iter().map(|(why, count)| (why.to_string(), count));
        let refused = self.all.refused.iter();
        let refused = refused.map(|(why, count)| (format!("recordings: {why}"), count));
        let rows = left_out.chain(refused).map(|(why, count)| vec![why, grouped(*count)]);
        let rows: Vec<Vec<String>> = rows.collect();
        if rows.is_empty() { String::new() } else { format!("\nLeft out\n{}", table(&rows, &[0])) }
    }

    fn json(&self) -> Value {
        let database = &self.built.database;
        let left_out = self.built.left_out.iter();
        let left_out =
            left_out.map(|(why, count): (&LeftOut, &u64)| (why.to_string(), json!(count)));
        let figures = self.figures.iter().map(|(name, of)| figures_json(name, of));
        let Totals { redirects, servers, http2, prefetch } = Totals::new(database);
        let failed =
            self.all.failed.iter().map(|(name, why)| json!({"file": name, "why": why.message()}));
        json!({
            "recordings": self.all.recordings.count(),
            "pages_recorded": self.all.recordings.page_count(),
            "pages": database.pages().len(),
            "bytes": self.bytes,
            "created": database.created().0,
            "databases": database.parts().names().collect::<Vec<_>>(),
            "redirects": redirects,
            "servers": servers,
            "http2": http2,
            "prefetch": prefetch,
            "left_out": left_out.collect::<serde_json::Map<_, _>>(),
            "refused": self.all.refused,
            "unreadable": failed.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
            "by_load": self.by_load,
            "proven": self.proofs,
        })
    }
}

fn by_database(figures: &[(&'static str, Figures)]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let head = [
        "age",
        "loads",
        "known",
        "redirects",
        "servers",
        "connections",
        "HTTP/2",
        "prefetch",
        "bytes",
    ];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).into()];
    for (age, of) in figures {
        let mut row = vec![(*age).to_owned(), grouped(of.loads), grouped(of.known)];
        // Of a page that no other recording shows, nothing could be there.
        row.extend(tallies(of).map(|(_, tally)| match of.known {
            0 => "-".to_owned(),
            _ => shares(tally),
        }));
        rows.push(row);
    }
    format!(
        "\nHits / false positives, pooled over all loads, by age of the recordings: of what was \
            needed, what was there; of what was there, what was not needed\n{}",
        table(&rows, &[0])
    )
}

/// The statistic of BLAST, and the same requests pooled.
fn by_load(LoadShares { loads, known, mean_of_loads, pooled }: &LoadShares) -> String {
    let both = [("mean of loads", mean_of_loads), ("pooled", pooled)];
    let rows = both.map(|(name, shares)| {
        let shares = shares.map(|Shares { hits, false_positives }| [hits, false_positives]);
        let shares = shares.map(|shares| shares.map(percent).join(" / "));
        vec![name.to_owned(), shares.unwrap_or_else(|| "-".into())]
    });
    format!(
        "\nHits / false positives of all requests, even those that a database leaves out, by the \
            other loads of a page: {} of {}\n{}",
        grouped((*known).into()),
        counted((*loads).into(), "load", "loads"),
        table(&rows, &[0])
    )
}

fn tallies(figures: &Figures) -> [(&'static str, Tally); 6] {
    [
        ("redirect", figures.redirect),
        ("server", figures.server),
        ("connections", figures.connections),
        ("http2", figures.http2),
        ("prefetch", figures.prefetch),
        ("prefetch_bytes", figures.prefetch_bytes),
    ]
}

fn shares(tally: Tally) -> String {
    let shares = [tally.hits(), tally.false_positives()];
    shares.map(|share| share.map_or_else(|| "-".into(), percent)).join(" / ")
}

fn figures_json(age: &str, figures: &Figures) -> Value {
    let mut fields: serde_json::Map<String, Value> = tallies(figures)
        .into_iter()
        .map(|(name, tally): (&str, Tally)| {
            let Tally { used, wrong, missed } = tally;
            let value = json!({
                "used": used,
                "wrong": wrong,
                "missed": missed,
                "hits": tally.hits(),
                "false_positives": tally.false_positives(),
            });
            (name.to_owned(), value)
        })
        .collect();
    fields.insert("age".into(), age.into());
    fields.insert("loads".into(), figures.loads.into());
    fields.insert("known".into(), figures.known.into());
    fields.insert("mean_age_s".into(), json!(figures.mean_age.map(|age| age.as_secs())));
    fields.into()
}
