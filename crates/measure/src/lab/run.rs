//! `headstart lab run`.

mod all;

use std::process::ExitCode;

use super::bench::{self, Bench};
use super::browser::{self, PagesInBrowser};
use super::builtin;
use super::openings::Openings;
use super::plan::RunSize;
use super::runner::{Finished, carry_out, keep_named};
use super::soak::{self, Soak};
use super::summary;
use super::tor;
use crate::json::json;
use crate::lab::options::LabRunOptions;
use headstart::base::failure::Failure;
use headstart::base::output;

const WITH_BESIDE: &str = "they are relay, handshakes, managed, attack-http and idle";

/// Runs an experiment and writes its results. Call it while the process has one thread.
pub(crate) fn run(options: &LabRunOptions) -> Result<ExitCode, Failure> {
    if options.experiment == all::NAME {
        return all::run(options);
    }
    if options.busy {
        return Err(Failure::usage("only `all` waits for an idle machine").hint("omit --busy"));
    }
    if let Some((benchmark, text)) = bench::find(&options.experiment)? {
        without_qlog(options)?;
        let scenario = Bench::new(options, benchmark, text)?;
        let (finished, outcome) = carry_out(scenario, options.out.clone())?;
        return print(options, &finished, &finished.cells, bench::text(&outcome));
    }
    if options.beside.is_some() {
        return Err(Failure::usage("only benchmarks have --beside").hint(WITH_BESIDE));
    }
    if let Some((experiment, text)) = browser::find(&options.experiment)? {
        without_qlog(options)?;
        let scenario = PagesInBrowser::new(options, experiment, text)?;
        let (finished, outcome) = carry_out(scenario, options.out.clone())?;
        let table = if options.json { String::new() } else { browser::text::text(&outcome) };
        return print(options, &finished, &outcome, table);
    }
    if let Some((experiment, text)) = soak::Experiment::find(&options.experiment)? {
        without_qlog(options)?;
        if options.full || options.pcap || !options.links.is_empty() {
            return Err(Failure::usage("a soak has no --full, --pcap or --link"));
        }
        let soak = Soak::new(experiment, text, options.quick, options.seed)?;
        let (finished, ()) = carry_out(soak, options.out.clone())?;
        return print(options, &finished, &finished.cells, summary::table(&finished.cells));
    }
    let finished = match options.experiment.as_str() {
        tor::NAME => {
            without_qlog(options)?;
            carry_out(tor::Run::new(options)?, options.out.clone())?.0
        }
        _ => carry_out(openings(options)?, options.out.clone())?.0,
    };
    print(options, &finished, &finished.cells, summary::table(&finished.cells))
}

fn without_qlog(options: &LabRunOptions) -> Result<(), Failure> {
    match options.qlog.qlog {
        Some(_) => Err(Failure::usage(format!("{} has no --qlog", options.experiment))
            .hint("leave it out; only experiments with openings have it")),
        None => Ok(()),
    }
}

fn openings(options: &LabRunOptions) -> Result<Openings, Failure> {
    let (mut experiment, text) = builtin::find(&options.experiment)?;
    keep_named("link", &options.links, &mut experiment.link, |link| &link.name)?;
    let extent = match (options.quick, options.full) {
        (true, _) => RunSize::Quick,
        (false, true) => RunSize::Full,
        (false, false) => RunSize::Usual,
    };
    let openings = Openings::new(experiment, text, extent, options.seed)?;
    openings.with_captures(options.pcap).with_qlog(options.qlog.qlog.as_deref())
}

fn print(
    options: &LabRunOptions,
    finished: &Finished,
    results: &impl serde::Serialize,
    table: String,
) -> Result<ExitCode, Failure> {
    let text = if options.json { json(results)? } else { table };
    output::print(text.as_bytes())?;
    Ok(finished.conclusion())
}
