//! The tables of a report.

use maud::{Markup, html};

use super::figure;
use super::model::{BASELINE, Cell, Group, Moment, Reason};
use super::paper::{Comparison, Figures, Line, Ours};

/// Arms side by side: how many, how opened, how long.
pub(super) fn arms(group: &Group) -> Markup {
    let rates = group.cells.iter().any(|cell| cell.summary.handshakes_per_s.is_some());
    html! {
        div.wide { table.arms {
            thead {
                tr {
                    th rowspan="2" { "arm" small { "opened by" } }
                    th.n rowspan="2" { "n" }
                    th.n rowspan="2" { "failed" }
                    th.n rowspan="2" { "flagged" }
                    th.n rowspan="2" { "RTTs" }
                    @if rates { th.n rowspan="2" { "per s" } }
                    @for moment in Moment::ALL { th.group colspan="4" { "ms to the " (moment.title()) } }
                }
                tr {
                    @for _ in Moment::ALL {
                        th.n.first { "p50" } th.n { "p90" } th.n { "p99" } th.n { "to " (BASELINE) }
                    }
                }
            }
            tbody { @for cell in &group.cells { (arm(cell, rates)) } }
        } }
    }
}

fn arm(cell: &Cell, rates: bool) -> Markup {
    let summary = &cell.summary;
    html! {
        tr {
            th scope="row" { (summary.arm) small { (openings(cell)) } }
            td.n { (summary.n) }
            td.n.bad[summary.failed > 0] { (summary.failed) }
            td.n { (summary.flagged) }
            td.n { (summary.rtts.map_or("–".into(), |rtts| format!("{rtts:.2}"))) }
            @if rates { td.n { (summary.handshakes_per_s.map_or("–".into(), figure::per_s)) } }
            @for moment in Moment::ALL { (times(cell, moment)) }
        }
    }
}

/// How the connections were opened, most often first.
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
                td.n.first { (figure::ms(times.p50)) small { (figure::interval(times.ci95, figure::ms)) } }
                td.n { (figure::ms(times.p90)) }
                td.n { (figure::ms(times.p99)) }
            }
            None => { td.n.first { "–" } td.n { "–" } td.n { "–" } }
        }
        td.n {
            @match (cell.ratio(moment), cell.difference(moment)) {
                (Some(ratio), Some(difference)) => {
                    (figure::ratio(ratio.value))
                    small { (figure::interval(ratio.ci95, figure::ratio)) }
                    small title=(format!("ms, 95 %: {}", figure::interval(difference.ci95, figure::change))) {
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
    let measure = if means { "mean (sd)" } else { "p50 / p90 / p99" };
    html! {
        div.wide { table.paper {
            thead {
                tr {
                    th rowspan="2" { "where" small { "round trip" } }
                    th rowspan="2" { "with" }
                    th rowspan="2" { "arm" }
                    th.group colspan="3" { "paper" }
                    th.group colspan="5" { "ours" }
                    th.n rowspan="2" { "ours / paper" small { "95 %" } }
                }
                tr {
                    th.n.first { "per s" } th.n { "ms: " (measure) } th.n { "to " (BASELINE) }
                    th.first { "link" } th.n { "n" } th.n { "per s" } th.n { "ms: " (measure) } th.n { "to " (BASELINE) }
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
            th scope="row" { (line.place) small { (figure::ms(theirs.rtt)) " ms" } }
            td { (line.printed) }
            td { (line.arm) }
            td.n.first { (theirs.handshakes_per_s.map_or("–".into(), figure::per_s)) }
            td.n { (printed(theirs)) }
            td.n { (theirs.to_baseline.map_or("–".into(), figure::ratio)) }
            @match &line.ours {
                Some(ours) => (measured(ours)),
                None => td.first.none colspan="6" { "not measured in this run" },
            }
        }
    }
}

/// Published times: percentiles, or a mean with its standard deviation.
pub(super) fn printed(theirs: &Figures) -> String {
    match (theirs.mean, theirs.sd) {
        (Some(mean), Some(sd)) => format!("{} ({})", figure::ms(mean), figure::ms(sd)),
        (Some(mean), None) => figure::ms(mean),
        _ => [theirs.p50, theirs.p90, theirs.p99].map(figure::some_ms).join(" / "),
    }
}

/// Ours, of the same kind.
pub(super) fn counterpart(ours: &Ours) -> String {
    match (&ours.mean, &ours.times) {
        (Some(mean), _) => figure::ms(mean.value),
        (None, Some(times)) => [times.p50, times.p90, times.p99].map(figure::ms).join(" / "),
        (None, None) => "–".into(),
    }
}

fn measured(ours: &Ours) -> Markup {
    let interval = ours.mean.map(|mean| mean.ci95).or(ours.times.map(|times| times.ci95));
    html! {
        td.first { (ours.link) small { (ours.suite) } @if !ours.variant.is_empty() { small { (ours.variant) } } }
        td.n { (ours.n) }
        td.n { (ours.handshakes_per_s.map_or("–".into(), figure::per_s)) }
        td.n { (counterpart(ours)) @if let Some(ci95) = interval { small { (figure::interval(ci95, figure::ms)) } } }
        @for estimate in [ours.to_baseline, ours.to_paper] {
            td.n {
                @match estimate {
                    Some(estimate) => {
                        (figure::ratio(estimate.value)) small { (figure::interval(estimate.ci95, figure::ratio)) }
                    }
                    None => { "–" }
                }
            }
        }
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
