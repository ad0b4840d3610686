//! `headstart lab list`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::bench::{self, Benchmark};
use super::browser::{self, BrowserExperiment};
use super::builtin;
use super::experiment::Experiment;
use super::plan::{Plan, RunSize};
use super::soak;
use super::tor;
use crate::lab::options::LabListOptions;
use crate::progress::in_words;
use headstart::base::failure::Failure;
use headstart::base::output;

/// Prints the experiments that are built in.
pub(crate) fn run(options: &LabListOptions) -> Result<ExitCode, Failure> {
    let entries = entries()?;
    if options.json {
        output::print(format!("{:#}\n", json(&entries)).as_bytes())?;
    } else {
        output::print(text(&entries).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Description of an experiment.
struct Entry {
    name: String,
    title: String,
    about: String,
    reference: Option<String>,
    links: Vec<String>,
    stages: usize,
    cells: usize,
    turns: u64,
    full: Duration,
    quick: Duration,
    text: &'static str,
}

fn entries() -> Result<Vec<Entry>, Failure> {
    let all = builtin::all()?.into_iter().map(|(experiment, text)| Entry::new(&experiment, text));
    let benches = bench::all()?.into_iter().map(|(bench, text)| Ok(Entry::with_bench(bench, text)));
    all.chain([Entry::with_tor(), Entry::with_browser(), Entry::with_soak()])
        .chain(benches)
        .collect()
}

impl Entry {
    fn new(experiment: &Experiment, text: &'static str) -> Result<Self, Failure> {
        let full = Plan::new(experiment.clone(), RunSize::Usual, None)?;
        let quick = Plan::new(experiment.clone(), RunSize::Quick, None)?;
        Ok(Self {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            about: experiment.about.clone(),
            reference: experiment.reference.clone(),
            links: experiment.link.iter().map(|link| link.name.clone()).collect(),
            stages: full.stages.len(),
            cells: full.cells(),
            turns: full.turns(),
            full: full.estimate(),
            quick: quick.estimate(),
            text,
        })
    }

    fn with_tor() -> Result<Self, Failure> {
        let experiment = tor::Experiment::parse()?;
        let (full, quick) = (experiment.estimate(false), experiment.estimate(true));
        let links: Vec<_> = experiment.link.iter().map(|link| link.name.clone()).collect();
        Ok(Self {
            stages: links.len(),
            cells: experiment.cells(),
            turns: experiment.visits(),
            links,
            full,
            quick,
            name: experiment.name,
            title: experiment.title,
            about: experiment.about,
            reference: None,
            text: tor::TEXT,
        })
    }

    fn with_browser() -> Result<Self, Failure> {
        let (experiment, text) = BrowserExperiment::built_in()?;
        let [full, quick] =
            [false, true].map(|quick| browser::Plan::new(experiment.clone(), quick, None));
        Ok(Self {
            links: full.links.iter().map(|link| link.name.clone()).collect(),
            stages: full.links.len(),
            cells: full.cell_count(),
            turns: full.steps(),
            full: full.estimate(),
            quick: quick.estimate(),
            name: experiment.name,
            title: experiment.title,
            about: experiment.about,
            reference: None,
            text,
        })
    }

    fn with_soak() -> Result<Self, Failure> {
        let experiment = soak::Experiment::parse("built in", soak::TEXT)?;
        let (full, quick) = (experiment.estimate(false), experiment.estimate(true));
        Ok(Self {
            links: Vec::new(),
            stages: 1,
            cells: soak::cells(),
            turns: 1,
            full,
            quick,
            name: experiment.name,
            title: experiment.title,
            about: experiment.about,
            reference: None,
            text: soak::TEXT,
        })
    }

    fn with_bench(bench: Benchmark, text: &'static str) -> Self {
        Self {
            links: Vec::new(),
            stages: bench.stages().len(),
            cells: bench.cells(),
            turns: bench.turns(false),
            full: bench.estimate(false),
            quick: bench.estimate(true),
            name: bench.name,
            title: bench.title,
            about: bench.about,
            reference: None,
            text,
        }
    }
}

fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for entry in entries {
        let _ = writeln!(text, "{:<16} {}", entry.name, entry.title);
        let _ = writeln!(
            text,
            "{:<16} {} links, {} stages, {} cells; about {}, --quick {}\n",
            "",
            entry.links.len(),
            entry.stages,
            entry.cells,
            in_words(entry.full),
            in_words(entry.quick),
        );
    }
    let full = entries.iter().map(|entry| entry.full).sum();
    let quick = entries.iter().map(|entry| entry.quick).sum();
    let _ = writeln!(text, "All: about {}, --quick {}", in_words(full), in_words(quick));
    text
}

fn json(entries: &[Entry]) -> serde_json::Value {
    entries
        .iter()
        .map(|entry: &Entry| {
            json!({
                "name": entry.name,
                "title": entry.title,
                "about": entry.about,
                "reference": entry.reference,
                "links": entry.links,
                "stages": entry.stages,
                "cells": entry.cells,
                "turns": entry.turns,
                "estimated_s": entry.full.as_secs(),
                "quick_estimated_s": entry.quick.as_secs(),
                "text": entry.text,
            })
        })
        .collect()
}
