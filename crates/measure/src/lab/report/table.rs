//! The tables of a report.

use maud::{Markup, html};

use super::environment::List;
use super::group::{Cell, Group};
use super::model::{Reason, Run};
use super::paper::{Comparison, Figures, Line, Ours};
use crate::chart::figure;
use crate::lab::bars::Verdict;
use crate::lab::experiment::Moment;

/// Arms side by side: how many, how opened, how long.
pub(super) fn arms(run: &Run, group: &Group) -> Markup {
    let columns: Vec<Extra> = EXTRAS
        .into_iter()
        .filter(|extra| group.cells.iter().any(|cell| (extra.cell)(cell).is_some()))
        .collect();
    html! {
        div.wide { table.arms {
            thead {
                tr {
                    th rowspan="2" { "arm" small { "opened by" } }
                    th.n rowspan="2" { "n" }
                    th.n rowspan="2" { "failed" }
                    th.n rowspan="2" { "flagged" }
                    th.n rowspan="2" { "RTTs" }
                    @for extra in &columns { th.n rowspan="2" { (extra.title) } }
                    @for moment in run.moments() {
                        th.group colspan="5" { "ms to the " (run.title_of(moment)) }
                    }
                }
                tr {
                    @for _ in run.moments() {
                        th.n.first { "p50" } th.n { "p90" } th.n { "p99" } th.n { "mean (sd)" }
                        th.n { "to " (group.baseline()) }
                    }
                }
            }
            tbody { @for cell in &group.cells { (arm(run, cell, &columns)) } }
        } }
    }
}

/// A column that only some experiments have.
struct Extra {
    title: &'static str,
    cell: fn(&Cell) -> Option<String>,
}

const EXTRAS: [Extra; 10] = [
    Extra { title: "p50 unflagged, ms", cell: unflagged },
    Extra {
        title: "exchanges per s",
        cell: |cell| cell.summary.exchanges_per_s.map(figure::per_s),
    },
    Extra { title: "CPU ms, client", cell: |cell| cell.summary.client_cpu_ms.map(figure::ms) },
    Extra { title: "CPU ms, server", cell: |cell| cell.summary.server_cpu_ms.map(figure::ms) },
    Extra { title: "0-RTT", cell: zero_rtt },
    Extra { title: "full handshakes", cell: full_handshakes },
    Extra { title: "bytes each", cell: bytes_each },
    Extra {
        title: "energy by model, uAh",
        cell: |cell| cell.summary.energy_uah.map(|energy| format!("{energy:.1}")),
    },
    Extra { title: "to today, pairs", cell: |cell| cell.summary.to_today.map(figure::ratio) },
    Extra { title: "flight, bytes", cell: |cell| Some(cell.summary.flight_bytes?.to_string()) },
];

/// The share whose request left with the first packet, where that was any.
fn zero_rtt(cell: &Cell) -> Option<String> {
    let summary = &cell.summary;
    (summary.zero_rtt > 0).then(|| figure::share(summary.zero_rtt, summary.n))
}

/// As the servers have counted them.
fn full_handshakes(cell: &Cell) -> Option<String> {
    let handshakes = cell.summary.handshakes.as_ref()?;
    let all = handshakes.full + handshakes.resumed;
    (all > 0).then(|| figure::share(handshakes.full, all))
}

/// On the wire, of a connection, both ways.
fn bytes_each(cell: &Cell) -> Option<String> {
    let handshakes = cell.summary.handshakes.as_ref()?;
    let bytes = handshakes.seen?.bytes.checked_div(handshakes.full + handshakes.resumed)?;
    Some(bytes.to_string())
}

/// The median of the first request byte without what was flagged, where that was any.
fn unflagged(cell: &Cell) -> Option<String> {
    let summary = &cell.summary;
    (summary.flagged > 0).then(|| match summary.flagged < summary.n {
        true => figure::or_failed(summary.p50_unflagged),
        false => "all flagged".into(),
    })
}

fn arm(run: &Run, cell: &Cell, columns: &[Extra]) -> Markup {
    let summary = &cell.summary;
    html! {
        tr {
            th scope="row" { (summary.arm) small { (openings(cell)) } }
            td.n { (summary.n) }
            td.n.bad[summary.failed > 0] { (summary.failed) }
            td.n { (figure::share(summary.flagged, summary.n)) }
            td.n { (summary.rtts.map_or("–".into(), |rtts| format!("{rtts:.2}"))) }
            @for extra in columns { td.n { ((extra.cell)(cell).unwrap_or_else(|| "–".into())) } }
            @for moment in run.moments() { (times(cell, moment)) }
        }
    }
}

/// Returns the openings of the connections, most frequent first.
pub(super) fn openings(cell: &Cell) -> String {
    let mut openings: Vec<_> = cell.summary.openings.iter().collect();
    openings.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let openings: Vec<_> = openings.iter().map(|(name, count)| format!("{name} {count}")).collect();
    openings.join(", ")
}

fn times(cell: &Cell, moment: Moment) -> Markup {
    let times = cell.times(moment);
    html! {
        @match times {
            Some(times) => {
                td.n.first {
                    (figure::or_failed(times.p50)) small { (figure::median_interval(&times)) }
                }
                td.n { (figure::p90(Some(times))) }
                td.n { (figure::p99(Some(times))) }
                td.n { (figure::mean(Some(times))) }
            }
            None => { td.n.first { "–" } td.n { "–" } td.n { "–" } td.n { "–" } }
        }
        td.n {
            @match (cell.ratio(moment), cell.difference(moment)) {
                (Some(ratio), Some(difference)) => {
                    (figure::ratio(ratio.value))
                    small { (figure::interval(ratio.ci95, figure::ratio)) }
                    @let interval = figure::interval(difference.ci95, figure::change);
                    small title=(format!("ms, 95 %: {interval}")) {
                        (figure::change(difference.value)) " ms"
                    }
                }
                (None, Some(difference)) => {
                    (figure::change(difference.value)) " ms"
                    small { (figure::interval(difference.ci95, figure::change)) }
                }
                _ => { "–" }
            }
        }
    }
}

/// A published table, ours beside it.
pub(super) fn paper(comparison: &Comparison) -> Markup {
    let means = comparison.lines.iter().any(|line| line.theirs.mean.is_some());
    let measure = match comparison.is_of_shares() {
        true => "not in 0 RTT",
        false if means => "ms: mean (sd)",
        false => "ms: p50 / p90 / p99",
    };
    let baseline = &comparison.paper.baseline;
    html! {
        div.wide { table.paper {
            thead {
                tr {
                    th rowspan="2" { "where" small { "round trip" } }
                    th rowspan="2" { "with" }
                    th rowspan="2" { "arm" }
                    th.group colspan="3" { "paper" }
                    th.group colspan="4" { "ours" }
                    th.n rowspan="2" { "ours / paper" small { "95 %" } }
                }
                tr {
                    th.n.first { "per s" } th.n { (measure) } th.n { "to " (baseline) }
                    th.first { "link" } th.n { "n" } th.n { (measure) } th.n { "to " (baseline) }
                }
            }
            tbody { @for line in &comparison.lines { (published(line)) } }
        } }
    }
}

fn published(line: &Line) -> Markup {
    let theirs = &line.theirs;
    html! {
        tr {
            th scope="row" { (line.place) small { (theirs.rtt) " ms" } }
            td { (line.printed) }
            td { (line.arm) }
            td.n.first {
                (theirs.handshakes_per_s.map_or_else(|| "–".into(), |rate| rate.to_string()))
            }
            td.n { (printed(theirs)) }
            td.n { (theirs.to_baseline.map_or("–".into(), figure::ratio)) }
            @match &line.ours {
                Some(ours) => (measured(ours)),
                None => td.first.none colspan="5" { "not measured in this run" },
            }
        }
    }
}

/// Published times with the digits they were printed with: percentiles, or a mean with its standard
/// deviation.
pub(super) fn printed(theirs: &Figures) -> String {
    match (theirs.mean, theirs.sd) {
        _ if theirs.missed.is_some() => theirs.missed.map(figure::percent).unwrap_or_default(),
        (Some(mean), Some(sd)) => format!("{mean} ({sd})"),
        (Some(mean), None) => mean.to_string(),
        _ => {
            let times = [theirs.p50, theirs.p90, theirs.p99];
            times.map(|time| time.map_or_else(|| "–".into(), |ms| ms.to_string())).join(" / ")
        }
    }
}

/// Ours, of the same kind.
pub(super) fn counterpart(ours: &Ours) -> String {
    match (&ours.mean, &ours.times) {
        _ if ours.missed.is_some() => {
            ours.missed.map(|missed| figure::percent(missed.value)).unwrap_or_default()
        }
        (Some(mean), _) => figure::with_deviation(mean.value, ours.sd),
        (None, Some(times)) => {
            let times = Some(*times);
            [figure::middle(times), figure::p90(times), figure::p99(times)].join(" / ")
        }
        (None, None) => "–".into(),
    }
}

fn measured(ours: &Ours) -> Markup {
    let missed = ours.missed.map(|missed| figure::interval(missed.ci95, figure::percent));
    let mean = ours.mean.map(|mean| figure::interval(mean.ci95, figure::ms));
    let interval = missed.or(mean);
    let interval = interval.or_else(|| ours.times.as_ref().map(figure::median_interval));
    html! {
        td.first {
            (ours.link) small { (ours.suite) }
            @if !ours.variant.is_empty() { small { (ours.variant) } }
        }
        td.n { (ours.n) }
        td.n { (counterpart(ours)) @if let Some(interval) = interval { small { (interval) } } }
        @for estimate in [ours.to_baseline, ours.to_paper] {
            td.n {
                @match estimate {
                    Some(estimate) => {
                        (figure::ratio(estimate.value))
                        small { (figure::interval(estimate.ci95, figure::ratio)) }
                    }
                    None => { "–" }
                }
            }
        }
    }
}

/// Returns the experiment's demands, missed first.
pub(super) fn verdicts(verdicts: &[Verdict]) -> Markup {
    let (met, missed): (Vec<_>, Vec<_>) = verdicts.iter().partition(|verdict| verdict.met);
    html! {
        div.wide { table.verdicts {
            thead { tr {
                th { "arm" } th { "suite" } th { "link" } th { "demand" } th.n { "limit" }
                th.n { "found" } th { "" }
            } }
            tbody {
                @for verdict in missed.into_iter().chain(met) {
                    tr {
                        td { (verdict.arm) }
                        td { (verdict.suite) }
                        td {
                            (verdict.link)
                            @if !verdict.variant.is_empty() { small { (verdict.variant) } }
                        }
                        td { (demand(verdict)) }
                        td.n { (verdict.limit) }
                        td.n {
                            @match verdict.found {
                                Some(found) => (found),
                                None => "nothing to judge by",
                            }
                        }
                        @if verdict.met { td { "met" } } @else { td.bad { "missed" } }
                    }
                }
            }
        } }
    }
}

/// A demand in words, as the experiment's file names it.
pub(super) fn demand(verdict: &Verdict) -> String {
    let mut words = verdict.condition.clone();
    if let Some(other) = verdict.bar.compared_with() {
        words.push_str(&format!(" to {other}"));
    }
    let is_of_times = ["ratio", "difference", "saved", "rtts"]
        .iter()
        .any(|kind| verdict.condition.starts_with(kind));
    if is_of_times {
        words.push_str(&format!(" of {}", verdict.bar.of.name()));
    }
    words.replace('_', " ")
}

pub(super) fn list(list: &List) -> Markup {
    html! {
        div.wide { table.list {
            thead { tr { @for column in &list.columns { th { (column) } } } }
            tbody { @for row in &list.rows { tr { @for cell in row { td { (cell) } } } } }
        } }
    }
}

/// Trials by what was said of them.
pub(super) fn reasons(reasons: &[Reason], words: &str) -> Markup {
    html! {
        div.wide { table.reasons {
            thead { tr {
                th { "arm, suite, link, variant" } th { "opened by" } th { (words) }
                th.n { "trials" } th.n { "first" }
            } }
            tbody {
                @for reason in reasons {
                    tr {
                        td { (reason.cell) }
                        td { (reason.opening) }
                        td { (reason.words) }
                        td.n { (figure::share(reason.count, reason.of)) }
                        td.n { "trial " (reason.first) }
                    }
                }
            }
        } }
    }
}
