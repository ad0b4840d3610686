//! A replay as text.

use std::fmt::Write as _;

use super::outcome::{OfArm, OfLink, OfPage, Outcome};
use crate::stats::Summary;

/// A table for each page and link.
pub(super) fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    for page in &outcome.pages {
        of_page(&mut text, page, outcome);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "Times are medians with their 95 % intervals: until the last byte, and until 95 % of the resources are there.\n\
         Every load is in {folder}; `headstart lab report {folder} --html FILE` shows distributions.",
        folder = outcome.folder
    );
    if let Some(accuracy) = &outcome.simulator {
        let order = accuracy
            .rank_correlation
            .map_or(String::new(), |of| format!(", rank correlation {of:.2}"));
        let (error, bias) =
            (accuracy.mean_absolute_percentage_error * 100.0, accuracy.bias * 100.0);
        let _ = writeln!(
            text,
            "The simulator is {error:.1} % off in the mean of {} medians (bias {bias:+.1} %{order}).",
            accuracy.n
        );
    }
    text
}

fn of_page(text: &mut String, page: &OfPage, outcome: &Outcome) {
    let visits = if outcome.first_visit { "first visits" } else { "visited before" };
    let OfPage { page: name, resources, response_bytes, links, .. } = page;
    let suite = &outcome.suite;
    let _ =
        writeln!(text, "{name}: {resources} resources, {response_bytes} bytes; {suite}, {visits}");
    for link in links {
        of_link(text, link);
    }
    text.push('\n');
}

fn of_link(text: &mut String, link: &OfLink) {
    let _ = writeln!(text, "\n{}, round trip {:.1} ms", link.link, link.rtt_ms);
    let _ = writeln!(
        text,
        "{:<14} {:>5} {:>26} {:>8} {:>10} {:>10} {:>6} {:>6} {:>8} {:>6}",
        "arm",
        "loads",
        "page load, ms",
        "change",
        "simulated",
        "95 %, ms",
        "conns",
        "TLS",
        "resumed",
        "sooner"
    );
    for arm in &link.arms {
        of_arm(text, arm);
    }
}

fn of_arm(text: &mut String, arm: &OfArm) {
    let count = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let change = arm.to_first.map_or("-".to_owned(), |ratio| {
        let percent = (ratio.value - 1.0) * 100.0;
        format!("{percent:+.1} %")
    });
    let middle = arm.page_load_ms.and_then(|summary| summary.p50);
    let _ = writeln!(
        text,
        "{:<14} {:>5} {:>26} {:>8} {:>10} {:>10} {:>6} {:>6} {:>8} {:>6}",
        arm.arm,
        arm.loads,
        arm.full_load_ms.map_or("-".to_owned(), time),
        change,
        arm.simulated_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}")),
        middle.map_or("-".to_owned(), |ms| format!("{ms:.1}")),
        count(arm.connections),
        count(arm.handshakes),
        count(arm.resumptions),
        count(arm.fast),
    );
    if arm.failed > 0 {
        let _ = writeln!(text, "{:<14} {} of {} loads failed", "", arm.failed, arm.loads);
    }
    if let Some(error) = &arm.error {
        let _ = writeln!(text, "{:<14} {error}", "");
    }
}

fn time(summary: Summary) -> String {
    let Some(middle) = summary.p50 else { return "failed".to_owned() };
    match summary.ci95 {
        [Some(low), Some(high)] => format!("{middle:.1} [{low:.1}, {high:.1}]"),
        _ => format!("{middle:.1}"),
    }
}
