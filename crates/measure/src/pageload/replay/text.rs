//! A replay as text.

use std::fmt::Write as _;

use super::outcome::{OfArm, OfLink, OfPage, Outcome};
use crate::stats::{FEW, Summary};
use crate::table::{header, table};

/// A table for each page and link.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    for page in &outcome.pages {
        of_page(&mut text, page, outcome);
    }
    let arms = outcome.pages.iter().flat_map(|page| &page.links).flat_map(|link| &link.arms);
    let intervals = match arms.map(|arm| arm.loads - arm.failed).min() {
        Some(FEW..) => " with their 95 % intervals".to_owned(),
        _ => format!(" (brackets of fewer than {FEW} loads: their spread, no interval of 95 %)"),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "Times are medians{intervals}: until the last byte, and until 95 % of the resources are \
            there.\n\
         Every load is in {folder}; `headstart lab report {folder} --html FILE` shows \
         distributions.",
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
            "The simulator is {error:.1} % off in the mean of {} medians (bias {bias:+.1} \
                %{order}).",
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
    let mut rows = vec![header(&HEADER)];
    rows.extend(link.arms.iter().map(of_arm));
    text.push_str(&table(&rows, &[0]));
    for arm in &link.arms {
        if arm.failed > 0 {
            let _ = writeln!(text, "{}: {} of {} loads failed", arm.arm, arm.failed, arm.loads);
        }
        if let Some(error) = &arm.error {
            let _ = writeln!(text, "{}: {error}", arm.arm);
        }
    }
}

const HEADER: [&str; 10] = [
    "arm",
    "loads",
    "page load, ms",
    "change",
    "simulated",
    "95 %, ms",
    "conns",
    "TLS",
    "resumed",
    "sooner",
];

fn of_arm(arm: &OfArm) -> Vec<String> {
    let change = arm.to_first.map(|ratio| format!("{:+.1} %", (ratio.value - 1.0) * 100.0));
    let middle = arm.page_load_ms.and_then(|summary| summary.p50);
    vec![
        arm.arm.to_owned(),
        arm.loads.to_string(),
        arm.full_load_ms.map_or("-".to_owned(), time),
        change.unwrap_or_else(|| "-".to_owned()),
        with_digits(arm.simulated_ms, 1),
        with_digits(middle, 1),
        with_digits(arm.connections, 0),
        with_digits(arm.handshakes, 0),
        with_digits(arm.resumptions, 0),
        with_digits(arm.fast, 0),
    ]
}

fn with_digits(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn time(summary: Summary) -> String {
    let Some(middle) = summary.p50 else { return "failed".to_owned() };
    match summary.ci95 {
        [Some(low), Some(high)] => format!("{middle:.1} [{low:.1}, {high:.1}]"),
        _ => format!("{middle:.1}"),
    }
}
