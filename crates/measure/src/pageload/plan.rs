//! `headstart pageload plan`: what each technique would save.

mod conclusion;
mod figures;
mod html;
pub(crate) mod options;
mod plot;
mod techniques;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use headstart_pageload::db::Coverage;
use headstart_pageload::page::Ignored;
use headstart_pageload::plan::{Overall, Own, PagePlan, Questions};
use headstart_pageload::printable;
use headstart_pageload::sim::profile::Model;
use headstart_pageload::statistics::Quantiles;
use serde::Serialize;

use self::conclusion::{Conclusion, Facts};
use super::batch::Batch;
use super::database::{Source, Used, known};
use super::model::{self, Setting};
use super::show::summary::{Unreadable, counted};
use crate::json::json;
use crate::pageload::plan::options::PlanOptions;
use crate::recordings::{Contents, HarFacts, Recording, on_all_cores};
use headstart::base::failure::Failure;
use headstart::base::output;

/// Asks of all pages, and prints the answers.
pub(super) fn run(options: &PlanOptions) -> Result<ExitCode, Failure> {
    let questions = questions(options)?;
    let database = Source::open(&options.simulator)?;
    let batch = Batch::read(&options.pages.files, |_, contents| {
        plans(contents, &questions, database.as_ref())
    })?;
    let exit_code = batch.exit_code();
    let own_is_given = !options.own.is_empty();
    let answers = Answers::new(&questions, database.as_ref(), batch, own_is_given);
    if let Some(file) = &options.html {
        let report = html::document(&answers).into_string();
        fs::write(file, report)
            .map_err(|error| Failure::usage(format!("cannot write {}: {error}", file.display())))?;
    }
    let text = if options.json { json(&answers)? } else { text::report(&answers, options.rows) };
    output::print(text.as_bytes())?;
    Ok(exit_code)
}

fn questions(options: &PlanOptions) -> Result<Questions, Failure> {
    let model = model::model(&options.simulator)?;
    // If nothing is drawn, one load suffices.
    let draws = if model.profile.is_certain() { 1 } else { model.draws };
    let mut questions = Questions::all(Model { draws, ..model });
    questions.own = Own::new(options.own.clone());
    if !options.technique.is_empty() {
        questions.order.clear();
        for &technique in &options.technique {
            if !questions.order.contains(&technique) {
                questions.order.push(technique);
            }
        }
    }
    model::check(&questions.model.profile, questions.order.iter().copied())?;
    Ok(questions)
}

#[derive(Debug, Serialize)]
struct Answers {
    setting: Setting,
    conclusion: Conclusion,
    /// Techniques in words.
    techniques: BTreeMap<&'static str, &'static str>,
    /// Share of all pages that the database knew, if one was named.
    database: Option<Used>,
    /// Techniques in the order in which one is added to the other.
    order: Vec<&'static str>,
    overall: Overall,
    pages: Vec<Answer>,
    /// Entries of pages that are no resources, by reason.
    not_resources: BTreeMap<&'static str, usize>,
    /// Entries that are of no page, by reason.
    ignored: BTreeMap<&'static str, usize>,
    unreadable: Vec<Unreadable>,
}

/// Answer about one page.
#[derive(Debug, Serialize)]
struct Answer {
    file: String,
    name: String,
    /// Round trip of the recording, in the median of the servers: recorded times are to be compared
    /// at this round trip.
    recorded_rtt_ms: Option<f64>,
    /// Share of the page that the database knew.
    database: Option<Coverage>,
    #[serde(flatten)]
    plan: PagePlan,
    /// True if the database may have been made of this very load.
    learned_from: bool,
    #[serde(skip)]
    not_resources: Ignored,
    /// URL of the document, or what stands for it.
    #[serde(skip)]
    document: String,
}

/// Plans for the pages of a file, and its entries that belong to no page.
fn plans(
    contents: Contents,
    questions: &Questions,
    database: Option<&Source>,
) -> (Vec<Answer>, Ignored) {
    let Contents { recordings, ignored } = contents;
    (
        on_all_cores(recordings.into_iter(), |Recording { file, page, har }: Recording| {
            let learned_from = database.is_some_and(|source| source.may_be_learned_from(&page));
            let (page, coverage) = known(database, page);
            let url = &page.document().url;
            let document = if url.is_empty() { page.name() } else { url };
            Answer {
                file,
                name: printable(page.name()),
                recorded_rtt_ms: har.and_then(|har: HarFacts| {
                    Quantiles::from_values(har.round_trips_ms).map(|times| times.p50)
                }),
                database: coverage,
                learned_from,
                document: document.to_owned(),
                plan: questions.ask(&page),
                not_resources: page.ignored().clone(),
            }
        }),
        ignored,
    )
}

impl Answers {
    fn new(
        questions: &Questions,
        database: Option<&Source>,
        batch: Batch<(Vec<Answer>, Ignored)>,
        own_is_given: bool,
    ) -> Self {
        let (mut ignored, mut not_resources) = (Ignored::default(), Ignored::default());
        let mut pages: Vec<Answer> = Vec::new();
        for (of_file, of_none) in batch.results {
            ignored.merge(&of_none);
            of_file.iter().for_each(|page| not_resources.merge(&page.not_resources));
            pages.extend(of_file);
        }
        let overall = Overall::from_plans(pages.iter().map(|page| &page.plan));
        let database = database
            .map(|source| source.used(pages.iter().filter_map(|page| page.database.as_ref())));
        let facts = Facts {
            questions,
            overall: &overall,
            pages: &pages,
            database: database.as_ref(),
            own_is_given,
        };
        let techniques = questions.model.profile.techniques();
        Self {
            setting: Setting::from_model(&questions.model),
            conclusion: facts.conclusion(),
            techniques: techniques.map(|of| (of.name(), techniques::about(of))).collect(),
            database,
            order: questions.order.iter().map(|technique| technique.name()).collect(),
            overall,
            pages,
            not_resources: counted(&not_resources),
            ignored: counted(&ignored),
            unreadable: batch.unreadable,
        }
    }
}

impl Answer {
    /// Returns the recorded time, and the round trips over which it was recorded.
    fn recorded(&self) -> Option<String> {
        let took = format!("recorded {:.3} s", self.plan.recorded_ms? / 1e3);
        Some(match self.recorded_rtt_ms {
            Some(rtt) => {
                format!("{took}, with round trips of {rtt:.0} ms in the median of servers")
            }
            None => took,
        })
    }
}

fn cost(cost: headstart_pageload::plan::Cost) -> &'static str {
    use headstart_pageload::plan::Cost;
    match cost {
        Cost::RoundTrips => "round trips (all of them)",
        Cost::Openings => "opening connections",
        Cost::Bandwidth => "bandwidth (no limit)",
        Cost::Servers => "the servers' own time",
        Cost::Client => "the client's own time",
    }
}
