//! The report as one HTML file: no script, nothing from elsewhere, also well-formed XML.

use maud::{Markup, html};

use super::group::Group;
use super::model::Run;
use super::{answer, browser, distribution, privacy, soak, table, waterfall};
use crate::chart::{self, figure, tile};
use crate::lab::bars::Tally;
use crate::stats::FEW;

/// Fields of the environment in the head of a run; the rest follows in a table.
const FOREMOST: [&str; 12] = [
    "command",
    "date",
    "commit",
    "version",
    "build",
    "machine",
    "cpu",
    "cpus",
    "kernel",
    "privilege",
    "privileges",
    "seed",
];

/// The whole file.
pub(super) fn document(runs: &[Run]) -> Markup {
    let title = match runs {
        [run] => run.title.clone(),
        runs => format!("{} runs", runs.len()),
    };
    let content = html! {
        @if runs.len() > 1 { h1 { (title) } (contents(runs)) }
        @for (at, run) in runs.iter().enumerate() { (whole(run, at)) }
    };
    chart::document(&title, "lab", "", &content, "the files named above")
}

fn contents(runs: &[Run]) -> Markup {
    html! {
        nav { ul {
            @for (at, run) in runs.iter().enumerate() {
                li { a href=(format!("#run-{at}")) { (run.title) } }
            }
        } }
    }
}

fn whole(run: &Run, at: usize) -> Markup {
    html! {
        section id=(format!("run-{at}")) {
            h1 { (run.title) }
            p.answer { (answer::words(run)) }
            (answer::picture(run))
            (answer::sweeps(run))
            (tiles(run, at))
            (sections(run, at))
            @if !run.about.is_empty() { p.about { (run.about.trim()) } }
            (reading(run))
            @if let Some(comparison) = &run.comparison {
                h2 { "Beside the published figures" }
                p {
                    cite { (comparison.paper.title) } ", " (comparison.paper.source) ". "
                    (comparison.paper.about.trim()) " Compared is "
                    @if comparison.is_of_shares() {
                        "the share of our connections whose request did not leave with the first \
                            packet, with Wilson's interval"
                    } @else { "our time to the " (comparison.paper.moment.title()) }
                    ". Their figures have no intervals: the interval is of ours alone."
                    @if comparison.lines.iter().any(|line| line.theirs.handshakes_per_s.is_some()) {
                        " Handshakes a second are the paper's only: it counts handshakes of four \
                            cores at each end, the lab "
                        "counts whole exchanges on one machine that is client, server and \
                            network, which are not the same."
                    }
                }
                (table::paper(comparison))
            }
            @if let Some(table) = privacy::table(run) {
                h2 { "Who can link a client's connections" }
                (table)
            }
            (browser::section(run))
            (soak::section(run.soak.as_ref()))
            @if !run.verdicts.is_empty() {
                h2 { "What the experiment demands" }
                p { (Tally::new(&run.verdicts)) "." }
                (table::verdicts(&run.verdicts))
            }
            h2 { "By link and suite" }
            @for (number, group) in run.groups.iter().enumerate() {
                (side_by_side(run, group, &format!("run-{at}-group-{number}")))
            }
            (failures(run, at))
            h2 id=(format!("run-{at}-environment")) { "Environment" }
            (facts(run))
            (environment(run.environment.iter()))
            @for list in &run.lists { h3 { (list.name) } (table::list(list)) }
        }
    }
}

/// Failures and shortfalls, with the reasons.
fn failures(run: &Run, at: usize) -> Markup {
    let cells = run.groups.iter().flat_map(|group| &group.cells);
    let broken: Vec<_> =
        cells.filter_map(|cell| Some((&cell.summary, cell.summary.broken.as_ref()?))).collect();
    html! {
        h2 id=(format!("run-{at}-failures")) { "Failed trials" }
        @if run.failures.is_empty() {
            p { "None of " (run.trials) "." }
        } @else {
            p { (figure::share(run.failed, run.trials)) " of all trials." }
            (table::reasons(&run.failures, "why"))
        }
        @if !run.reasons.is_empty() {
            h2 { "Why not opened better" }
            p { "Trials that completed, and what they say of why no better opening was used." }
            (table::reasons(&run.reasons, "reason"))
        }
        @if !broken.is_empty() {
            h2 { "Broken" }
            p { "Cells with fewer trials than planned, or over a box that did nothing." }
            dl { @for (cell, why) in broken { dt { (cell.name()) } dd { (why) } } }
        }
    }
}

/// Numbers of trials and failures, and how exact the lab was.
fn tiles(run: &Run, at: usize) -> Markup {
    let flags = answer::flags(run);
    html! {
        div.tiles {
            (tile(&run.trials.to_string(), "trials"))
            a href=(format!("#run-{at}-failures")) {
                (tile(&figure::share(run.failed, run.trials), "failed"))
            }
            (tile(&figure::share(run.flagged, run.trials), "flagged: the lab itself was late"))
            @if let Some(late) = run.lateness_us {
                (tile(&format!("{late:.0} µs"), "p99 of the forwarder's lateness, at its worst"))
            }
            @if !run.verdicts.is_empty() {
                (tile(&Tally::new(&run.verdicts).figures(), "bars on figures met"))
            }
        }
        @if !flags.is_empty() { p.reading { (flags) } }
    }
}

/// Time and place of a run, and how exact the lab was.
fn facts(run: &Run) -> Markup {
    let own = [
        ("experiment".to_owned(), run.name.clone()),
        ("folder".to_owned(), run.folder.display().to_string()),
    ];
    let named =
        FOREMOST.iter().filter_map(|name| run.environment.iter().find(|(key, _)| key == name));
    let exactness = run.environment.iter().filter(|(key, _)| {
        ["exactness", "forwarder", "late"].iter().any(|part| key.starts_with(part))
    });
    environment(own.iter().chain(named).chain(exactness))
}

fn environment<'r>(lines: impl Iterator<Item = &'r (String, String)>) -> Markup {
    html! { dl { @for (name, text) in lines { dt { (name) } dd { (text) } } } }
}

/// Advice for reading the figures.
fn reading(run: &Run) -> Markup {
    let compared = run.groups.iter().find(|group| group.cell(group.baseline()).is_some());
    html! {
        p.reading {
            @if run.browser.is_some() {
                "Times of page loads are in ms from the first request; the last response byte is \
                    that of 95 % of the resources. "
            } @else {
                "Times are in ms from just before the first socket call. "
            }
            "Percentiles are by nearest rank, over all trials, flagged ones included: one that \
             failed counts as slower than all that did not, so a percentile may be one of those \
             that failed, and there is no ratio to such a median. With fewer than 100 trials, the \
             maximum is shown instead of the 99th percentile; with fewer than 10, no 90th is. \
             Under load, trials of one round share the machine and are not independent, so \
             intervals there are rather too narrow: they resample trials, not rounds. In brackets: \
             95 % bootstrap intervals of the median (percentile method, 2,000 resamples, fixed \
             seed). Means are there where no trial failed, with the standard deviation of the \
             trials."
            @if let Some(group) = compared {
                " Right of the times: the ratio of the medians to " (group.baseline())
                ", with its interval, and their difference. Both come from the same resamples: \
                    where the ratio's interval excludes 1, the difference's excludes 0."
            }
            @if run.groups.iter().any(Group::few) {
                " " strong {
                    "Some medians here rest on fewer than " (FEW)
                    " trials: their brackets show the spread and are no interval of 95 %."
                }
            }
        }
    }
}

/// The contents of a run.
fn sections(run: &Run, at: usize) -> Markup {
    html! {
        nav { ul {
            li { a href=(format!("#run-{at}-failures")) { "Failed trials" } }
            li { a href=(format!("#run-{at}-environment")) { "Environment" } }
            @for (number, group) in run.groups.iter().enumerate() {
                li { a href=(format!("#run-{at}-group-{number}")) { (group.name()) } }
            }
        } }
    }
}

fn side_by_side(run: &Run, group: &Group, id: &str) -> Markup {
    html! {
        section.group id=(id) {
            h3 { (group.name()) }
            p.link {
                @if let Some(rtt) = group.rtt_ms { "Round trip " (figure::ms(rtt)) " ms" }
                @if !group.path.is_empty() { " · " code { (group.path) } }
            }
            (table::arms(run, group))
            figure {
                (distribution::panels(run, group))
                figcaption {
                    "Share of all trials, failed ones included, by the time they took; a line \
                        that ends below 100 % "
                    "shows what failed. Dashed: resumed, dotted: 0-RTT, both by turns: Encrypted \
                        ClientHello; dots in pairs: 0-RTT with it; long dashes: a key from UDP."
                }
            }
            figure {
                (waterfall::timelines(group))
                figcaption {
                    (waterfall::legend())
                    "Of each arm the connection whose last byte came nearest to the median."
                }
            }
        }
    }
}
