//! `headstart pageload simulate`: loads of many pages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::process::ExitCode;

use headstart_pageload::db::Coverage;
use headstart_pageload::page::{Ignored, Page};
use headstart_pageload::printable;
use headstart_pageload::sim::Load;
use headstart_pageload::sim::profile::Model;
use headstart_pageload::sim::tcp::{Technique, Techniques};
use headstart_pageload::statistics::Quantiles;
use serde::Serialize;

use super::batch::Batch;
use super::database::{Source, Used, known};
use super::model::{self, Setting};
use super::show::summary::{Unreadable, counted as by_reason, ms};
use super::show::text::left_out;
use super::text::{counted, shortened};
use crate::chart::figure::percent;
use crate::chart::scale::mark;
use crate::json::json;
use crate::pageload::plan::options::{Arm, SimulateOptions};
use crate::recordings::{Contents, Recording, on_all_cores};
use crate::table::table;
use headstart::base::failure::Failure;
use headstart::base::output;

/// Loads all pages with all techniques.
pub(super) fn run(options: &SimulateOptions) -> Result<ExitCode, Failure> {
    let mut model = model::model(&options.simulator)?;
    let all = Techniques::from_list(model.profile.in_order());
    let arms: Vec<Techniques> = options
        .technique
        .iter()
        .map(|arm: &Arm| match arm {
            Arm::All => all,
            Arm::These(techniques) => *techniques,
        })
        .collect();
    let used = Technique::ALL.into_iter().filter(|one| arms.iter().any(|arm| arm.has(*one)));
    model::check(&model.profile, used)?;
    if model.profile.is_certain() && (model.hit_rate <= 0.0 || model.hit_rate >= 1.0) {
        model.draws = 1;
    }
    let database = Source::open(&options.simulator)?;
    let loading = Loading {
        model: &model,
        database: database.as_ref(),
        arms: &arms,
        is_kept: options.csv.is_some(),
    };
    let batch = Batch::read(&options.pages.files, |_, contents| loading.loads_of(contents))?;
    let exit_code = batch.exit_code();
    let simulated = Simulated::new(&loading, batch);
    if let Some(file) = &options.csv {
        simulated.write(file)?;
    }
    let text = if options.json { json(&simulated)? } else { simulated.text(options.rows) };
    output::print(text.as_bytes())?;
    Ok(exit_code)
}

/// Settings of a page's load.
struct Loading<'a> {
    model: &'a Model,
    database: Option<&'a Source>,
    arms: &'a [Techniques],
    /// True if the loads are kept one by one.
    is_kept: bool,
}

/// Everything that was loaded.
#[derive(Debug, Serialize)]
struct Simulated {
    setting: Setting,
    /// Share of all pages that the database knew, if one was named.
    database: Option<Used>,
    /// Over the means of all pages.
    over_pages: Vec<OverPages>,
    pages: Vec<PageLoads>,
    /// Entries of pages that are no resources, by reason.
    not_resources: BTreeMap<&'static str, usize>,
    /// Entries that are of no page, by reason.
    ignored: BTreeMap<&'static str, usize>,
    unreadable: Vec<Unreadable>,
}

/// Page load times of all pages, in ms.
#[derive(Debug, Serialize)]
struct OverPages {
    techniques: String,
    #[serde(flatten)]
    page_load_ms: Quantiles,
}

#[derive(Debug, Serialize)]
struct PageLoads {
    file: String,
    name: String,
    resources: usize,
    recorded_ms: Option<f64>,
    /// Share of the page that the database knew.
    database: Option<Coverage>,
    arms: Vec<Means>,
    #[serde(skip)]
    not_resources: Ignored,
    /// One by one, in the order of the arms.
    #[serde(skip)]
    loads: Vec<(usize, u64, Figures)>,
}

/// Means over the loads of a page with some techniques.
#[derive(Debug, Serialize)]
struct Means {
    techniques: String,
    loads: u64,
    #[serde(flatten)]
    figures: Figures,
}

/// Figures of a load, or means over several.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Figures {
    page_load_ms: f64,
    full_load_ms: f64,
    resource_ms: f64,
    connections: f64,
    handshakes: f64,
    resumptions: f64,
    round_trips: f64,
}

impl Figures {
    fn from_load(load: &Load) -> Self {
        Self {
            page_load_ms: ms(load.page_load_time()),
            full_load_ms: ms(load.full_load_time()),
            resource_ms: ms(load.mean_resource_time()),
            connections: f64::from(load.connections),
            handshakes: f64::from(load.handshakes),
            resumptions: f64::from(load.resumptions),
            round_trips: f64::from(load.round_trips),
        }
    }

    fn parts(&mut self) -> [&mut f64; 7] {
        let Self {
            page_load_ms,
            full_load_ms,
            resource_ms,
            connections,
            handshakes,
            resumptions,
            round_trips,
        } = self;
        [page_load_ms, full_load_ms, resource_ms, connections, handshakes, resumptions, round_trips]
    }
}

impl Loading<'_> {
    /// The pages of a file, and entries of it that are of none.
    fn loads_of(&self, contents: Contents) -> (Vec<PageLoads>, Ignored) {
        let Contents { recordings, ignored } = contents;
        (
            on_all_cores(recordings.into_iter(), |recording: Recording| {
                PageLoads::new(recording.file, recording.page, self)
            }),
            ignored,
        )
    }
}

impl PageLoads {
    fn new(file: String, page: Page, loading: &Loading<'_>) -> Self {
        let (page, database) = known(loading.database, page);
        let mut loads = Vec::new();
        let arms = loading.arms.iter().enumerate().map(|(arm, &techniques)| {
            let (mut sum, mut count) = (Figures::default(), 0_u64);
            loading.model.loads(&page, techniques, |seed, load| {
                let mut figures = Figures::from_load(&load);
                if loading.is_kept {
                    loads.push((arm, seed, figures));
                }
                for (sum, part) in sum.parts().into_iter().zip(figures.parts()) {
                    *sum += *part;
                }
                count += 1;
            });
            sum.parts().into_iter().for_each(|part| *part /= count.max(1) as f64);
            Means { techniques: techniques.to_string(), loads: count, figures: sum }
        });
        let arms = arms.collect();
        Self {
            file,
            name: printable(page.name()),
            resources: page.resources().len(),
            recorded_ms: page.recorded().page_load_time.map(ms),
            database,
            arms,
            not_resources: page.ignored().clone(),
            loads,
        }
    }
}

impl Simulated {
    fn new(loading: &Loading<'_>, batch: Batch<(Vec<PageLoads>, Ignored)>) -> Self {
        let (mut ignored, mut not_resources) = (Ignored::default(), Ignored::default());
        let mut pages = Vec::new();
        for (of_file, of_none) in batch.results {
            ignored.merge(&of_none);
            of_file.iter().for_each(|page| not_resources.merge(&page.not_resources));
            pages.extend(of_file);
        }
        let database = loading
            .database
            .map(|source| source.used(pages.iter().filter_map(|page| page.database.as_ref())));
        let setting = Setting::from_model(loading.model);
        let over_pages = loading
            .arms
            .iter()
            .enumerate()
            .filter_map(|(arm, techniques): (usize, &Techniques)| {
                let times = pages.iter().filter_map(|page: &PageLoads| page.arms.get(arm));
                let page_load_ms =
                    Quantiles::from_values(times.map(|means| means.figures.page_load_ms))?;
                Some(OverPages { techniques: techniques.to_string(), page_load_ms })
            })
            .collect();
        let (ignored, not_resources) = (by_reason(&ignored), by_reason(&not_resources));
        let unreadable = batch.unreadable;
        Self { setting, database, over_pages, pages, not_resources, ignored, unreadable }
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        self.write_loads(path)
            .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
    }

    fn write_loads(&self, path: &Path) -> io::Result<()> {
        let file = BufWriter::new(File::create(path)?);
        let mut csv = csv::Writer::from_writer(file);
        for page in &self.pages {
            for (arm, seed, figures) in &page.loads {
                let techniques = page.arms.get(*arm).map_or("", |means| &means.techniques);
                csv.serialize(Line::new(page, techniques, *seed, figures))?;
            }
        }
        csv.flush()
    }

    fn text(&self, rows: usize) -> String {
        let mut text = format!("{}\n\n", self.setting.words());
        match self.pages.as_slice() {
            [page] => text.push_str(&one(page)),
            pages => {
                text.push_str(&several(pages, rows));
                text.push_str(&over_pages(&self.over_pages));
            }
        }
        text.push_str(&self.database.as_ref().map_or_else(String::new, Used::text));
        text.push_str(&left_out(&self.not_resources, &self.ignored, self.unreadable.len()));
        text
    }
}

/// A line of the file of loads.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    page: &'a str,
    resources: usize,
    techniques: &'a str,
    seed: u64,
    page_load_ms: f64,
    full_load_ms: f64,
    resource_ms: f64,
    connections: f64,
    handshakes: f64,
    resumptions: f64,
    round_trips: f64,
    recorded_ms: Option<f64>,
}

impl<'a> Line<'a> {
    fn new(page: &'a PageLoads, techniques: &'a str, seed: u64, figures: &Figures) -> Self {
        let Figures { page_load_ms, full_load_ms, resource_ms, connections, .. } = *figures;
        Self {
            file: &page.file,
            page: &page.name,
            resources: page.resources,
            techniques,
            seed,
            page_load_ms,
            full_load_ms,
            resource_ms,
            connections,
            handshakes: figures.handshakes,
            resumptions: figures.resumptions,
            round_trips: figures.round_trips,
            recorded_ms: page.recorded_ms,
        }
    }
}

fn one(page: &PageLoads) -> String {
    let recorded =
        page.recorded_ms.map_or_else(String::new, |ms| format!(", recorded {} s", seconds(ms)));
    let resources = counted(page.resources as u64, "resource", "resources");
    let mut text = format!("{} ({resources}{recorded})\n", page.name);
    let header = [
        "techniques",
        "95 %, s",
        "change",
        "all, s",
        "a resource, ms",
        "connections",
        "handshakes",
        "resumed",
        "round trips",
    ];
    let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    let first = page.arms.first().map_or(0.0, |means| means.figures.page_load_ms);
    rows.extend(page.arms.iter().map(|means| {
        let of = &means.figures;
        vec![
            means.techniques.clone(),
            seconds(of.page_load_ms),
            change(first, of.page_load_ms),
            seconds(of.full_load_ms),
            format!("{:.1}", of.resource_ms),
            mark(of.connections),
            mark(of.handshakes),
            mark(of.resumptions),
            mark(of.round_trips),
        ]
    }));
    text.push_str(&table(&rows, &[0]));
    text
}

fn several(pages: &[PageLoads], most: usize) -> String {
    let mut text =
        format!("{}, until 95 % is loaded, in s\n", counted(pages.len() as u64, "page", "pages"));
    let arms = pages.first().map_or(&[] as &[Means], |page| &page.arms);
    let header = ["page", "resources", "recorded"].map(str::to_owned).into_iter();
    let header = header.chain(arms.iter().map(|means| means.techniques.clone()));
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    rows.extend(pages.iter().take(most).map(|page| {
        let recorded = page.recorded_ms.map_or_else(|| "–".into(), seconds);
        let first = [shortened(&page.name), page.resources.to_string(), recorded].into_iter();
        first.chain(page.arms.iter().map(|means| seconds(means.figures.page_load_ms))).collect()
    }));
    text.push_str(&table(&rows, &[0]));
    if let Some(more) = pages.len().checked_sub(most).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

fn over_pages(all: &[OverPages]) -> String {
    let header = ["techniques", "mean", "change", "p10", "p50", "p90", "max"];
    let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    let first = all.first().map_or(0.0, |over| over.page_load_ms.mean);
    rows.extend(all.iter().map(|over| {
        let of = &over.page_load_ms;
        let times = [of.p10, of.p50, of.p90, of.max].map(seconds);
        let start = [over.techniques.clone(), seconds(of.mean), change(first, of.mean)];
        start.into_iter().chain(times).collect()
    }));
    format!("\nOver all pages, in s\n{}", table(&rows, &[0]))
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1e3)
}

/// Against the first.
fn change(first: f64, ms: f64) -> String {
    match first > 0.0 {
        true => percent(ms / first - 1.0),
        false => "–".into(),
    }
}
