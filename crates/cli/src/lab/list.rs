//! `headstart lab list`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::builtin;
use super::plan::{Extent, Plan};
use super::progress::in_words;
use super::tor;
use crate::failure::Failure;
use crate::options::LabListOptions;
use crate::output;

/// Prints the experiments that are built in.
pub(crate) fn run(options: &LabListOptions) -> Result<ExitCode, Failure> {
    let (plans, tor) = (plans()?, tor::Experiment::parse()?);
    if options.json {
        output::print(format!("{:#}\n", json(&plans, &tor)).as_bytes())?;
    } else {
        output::print(text(&plans, &tor).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An experiment in full and in short, and its text.
struct Entry {
    full: Plan,
    quick: Plan,
    text: &'static str,
}

fn plans() -> Result<Vec<Entry>, Failure> {
    let entry = |(experiment, text)| {
        let plan = |extent| Plan::new(Clone::clone(&experiment), extent, None);
        Ok(Entry { full: plan(Extent::Usual)?, quick: plan(Extent::Quick)?, text })
    };
    builtin::all()?.into_iter().map(entry).collect()
}

fn text(entries: &[Entry], tor: &tor::Experiment) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for Entry { full, quick, .. } in entries {
        let experiment = &full.experiment;
        let _ = writeln!(text, "{:<16} {}", experiment.name, experiment.title);
        let _ = writeln!(
            text,
            "{:<16} {} links, {} stages, {} cells; about {}, --quick {}\n",
            "",
            experiment.link.len(),
            full.stages.len(),
            full.cells(),
            in_words(full.estimate()),
            in_words(quick.estimate()),
        );
    }
    let total = |of: fn(&Entry) -> &Plan| -> Duration {
        entries.iter().map(|entry| of(entry).estimate()).sum()
    };
    let (tor_full, tor_quick) = (tor.estimate(false), tor.estimate(true));
    let _ = writeln!(text, "{:<16} {}", tor.name, tor.title);
    let _ = writeln!(
        text,
        "{:<16} {} links, {} cells; about {}, --quick {}\n",
        "",
        tor.link.len(),
        4 * tor.link.len(),
        in_words(tor_full),
        in_words(tor_quick),
    );
    let (full, quick) =
        (total(|entry| &entry.full) + tor_full, total(|entry| &entry.quick) + tor_quick);
    let _ = writeln!(text, "All: about {}, --quick {}", in_words(full), in_words(quick));
    text
}

fn json(entries: &[Entry], tor: &tor::Experiment) -> serde_json::Value {
    let one = |Entry { full, quick, text }: &Entry| {
        let experiment = &full.experiment;
        json!({
            "name": experiment.name,
            "title": experiment.title,
            "about": experiment.about,
            "reference": experiment.reference,
            "links": experiment.link.iter().map(|link| &link.name).collect::<Vec<_>>(),
            "stages": full.stages.len(),
            "cells": full.cells(),
            "turns": full.turns(),
            "estimated_s": full.estimate().as_secs(),
            "quick_estimated_s": quick.estimate().as_secs(),
            "text": text,
        })
    };
    entries.iter().map(one).chain([of_tor(tor)]).collect()
}

fn of_tor(tor: &tor::Experiment) -> serde_json::Value {
    json!({
        "name": tor.name,
        "title": tor.title,
        "about": tor.about,
        "links": tor.link.iter().map(|link| &link.name).collect::<Vec<_>>(),
        "cells": 4 * tor.link.len(),
        "estimated_s": tor.estimate(false).as_secs(),
        "quick_estimated_s": tor.estimate(true).as_secs(),
        "text": tor::TEXT,
    })
}
