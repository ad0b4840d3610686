//! The report in a few lines for the terminal.

use std::fmt::Write;

use super::group::{Cell, Group};
use super::model::Run;
use super::paper::{Comparison, Line};
use super::table::{counterpart, demand, openings, printed};
use super::{answer, privacy};
use crate::chart::figure;
use crate::lab::bars::Tally;
use crate::lab::browser;
use crate::lab::experiment::Moment;
use crate::stats::FEW;
use crate::table::{header, joined, table, wrapped};

/// Reasons for failures that are listed; the HTML has them all.
const FAILURES_SHOWN: usize = 10;

/// Columns of sentences.
const COLUMNS: usize = 100;

/// The runs one after another.
pub(super) fn summary(runs: &[Run]) -> String {
    let runs: Vec<String> = runs.iter().map(run).collect();
    runs.join("\n")
}

fn run(run: &Run) -> String {
    let mut text = format!(
        "{}\n{}{}: {} trials, {} failed, {} flagged\n",
        run.title,
        wrapped("", &answer::words(run), COLUMNS),
        run.folder.display(),
        run.trials,
        figure::share(run.failed, run.trials),
        figure::share(run.flagged, run.trials),
    );
    let flags = answer::flags(run);
    if !flags.is_empty() {
        text.push_str(&wrapped("", &flags, COLUMNS));
    }
    run.groups.iter().for_each(|group| side_by_side(&mut text, run, group));
    if let Some(comparison) = &run.comparison {
        beside(&mut text, comparison);
    }
    text.push_str(&privacy::text(run));
    if let Some(outcome) = &run.browser {
        let _ = writeln!(text, "\n{}", browser::text::text(outcome).trim_end());
    }
    verdicts(&mut text, run);
    failures(&mut text, run);
    if run.groups.iter().any(Group::few) {
        let _ = writeln!(
            text,
            "\nMedians of fewer than {FEW} trials: their brackets show the spread and are no \
                interval of 95 %."
        );
    }
    text
}

fn side_by_side(text: &mut String, run: &Run, group: &Group) {
    let rtt = group.rtt_ms.map(|rtt| format!(", round trip {} ms", figure::ms(rtt)));
    let _ = writeln!(text, "\n{}{}", group.name(), rtt.unwrap_or_default());
    let compared = format!("to {} [95 %]", group.baseline());
    let names = match run.loads_pages {
        true => ["page load, ms p50 [95 %]", "request p50", "response p50"],
        false => ["request, ms p50 [95 %]", "response p50", "all p50"],
    };
    let [first, second, third] = names;
    let names = ["arm", "n", "failed", "RTTs", first, "p90", "p99", second, third, &compared];
    let mut rows = vec![header(&[&names[..], &["opened by"]].concat())];
    rows.extend(group.cells.iter().map(|cell| cells(cell, run.moments())));
    // Names are aligned left, figures right; the last column lists openings.
    text.push_str(&table(&rows, &[0, 9, 10]));
}

fn cells(cell: &Cell, [first, second, third]: [Moment; 3]) -> Vec<String> {
    let summary = &cell.summary;
    let times = cell.times(first);
    vec![
        summary.arm.clone(),
        summary.n.to_string(),
        summary.failed.to_string(),
        summary.rtts.map_or("–".into(), |rtts| format!("{rtts:.2}")),
        times.as_ref().map_or("–".into(), figure::median),
        figure::p90(times),
        figure::p99(times),
        figure::middle(cell.times(second)),
        figure::middle(cell.times(third)),
        cell.ratio(first).as_ref().map_or("–".into(), figure::estimate),
        openings(cell),
    ]
}

fn beside(text: &mut String, comparison: &Comparison) {
    let _ = writeln!(text, "\nBeside {} ({})", comparison.paper.title, comparison.paper.source);
    let names = match comparison.is_of_shares() {
        true => ["where", "with", "arm", "paper", "ours", "ours / paper [95 %]", "link"],
        false => ["where", "with", "arm", "paper, ms", "ours, ms", "ours / paper [95 %]", "link"],
    };
    let mut rows = vec![header(&names)];
    rows.extend(comparison.lines.iter().map(line));
    text.push_str(&table(&rows, &[0, 1, 2, 5, 6]));
    if comparison.lines.iter().any(|line| line.theirs.handshakes_per_s.is_some()) {
        text.push_str(
            "  The paper's handshakes a second count something else than our exchanges a second.\n",
        );
    }
}

fn line(line: &Line) -> Vec<String> {
    let theirs =
        [line.place.clone(), line.printed.clone(), line.arm.clone(), printed(&line.theirs)];
    let ours = match &line.ours {
        None => ["not measured".into(), "–".into(), "–".into()],
        Some(ours) => {
            let ratio = ours.to_paper.as_ref().map_or("–".into(), figure::estimate);
            [counterpart(ours), ratio, joined(&[&ours.link, &ours.variant], ", ")]
        }
    };
    [&theirs[..], &ours[..]].concat()
}

fn verdicts(text: &mut String, run: &Run) {
    if run.verdicts.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", Tally::new(&run.verdicts));
    for verdict in run.verdicts.iter().filter(|verdict| !verdict.met) {
        let found = verdict.found.map_or("nothing to judge by".into(), |found| found.to_string());
        let names = [&*verdict.arm, &verdict.suite, &verdict.link, &verdict.variant];
        let (demand, limit) = (demand(verdict), verdict.limit);
        let _ = writeln!(text, "  missed: {}: {demand} {limit}: {found}", joined(&names, ", "));
    }
}

fn failures(text: &mut String, run: &Run) {
    for cell in run.groups.iter().flat_map(|group| &group.cells) {
        if let Some(why) = &cell.summary.broken {
            let _ = writeln!(text, "\nBroken: {}: {why}", cell.summary.name());
        }
    }
    if run.failures.is_empty() {
        return;
    }
    text.push_str("\nFailed\n");
    for failure in run.failures.iter().take(FAILURES_SHOWN) {
        let share = figure::share(failure.count, failure.of);
        let _ = writeln!(text, "  {share} of {}: {}", failure.cell, failure.words);
    }
    if let Some(more) = run.failures.len().checked_sub(FAILURES_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more kinds, see the HTML");
    }
}
