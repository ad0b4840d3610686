//! The outcome as a table for the terminal.

use std::fmt::Write as _;
use std::iter;

use super::arm::Arm;
use super::outcome::{CellOutcome, MeanOutcome, Outcome, Saved};
use crate::chart::figure::percent;
use crate::stats::Estimate;
use crate::table::{header, table};

/// Aim for the prediction error of the mean.
pub(crate) const AIM: f64 = 0.15;

/// All of it.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", outcome.browser);
    let groups = outcome
        .cells
        .chunk_by(|one, other| (&one.link, &one.variant) == (&other.link, &other.variant));
    for group in groups {
        // Writing to a string cannot fail.
        let _ = group.first().map(|cell| writeln!(text, "\n{}, {}", cell.link, cell.variant));
        let cells = group.iter().map(columns);
        text.push_str(&table(
            &iter::once(header(&HEADER)).chain(cells).collect::<Vec<_>>(),
            &[0, 7],
        ));
    }
    text.push_str("\nOver all sites\n");
    let means = outcome.means.iter().map(mean_columns);
    text.push_str(&table(&iter::once(header(&MEAN_HEADER)).chain(means).collect::<Vec<_>>(), &[0]));
    let _ = writeln!(text, "\n{}", verdict(&outcome.means));
    for facts in &outcome.databases {
        let _ = writeln!(
            text,
            "{}: of {} recordings {} redirects, {} servers and {} URLs to prefetch; {} Link \
                fields, which leave out {}; {} entries are out of date in the stale one",
            facts.link,
            facts.recordings,
            facts.redirects,
            facts.servers,
            facts.prefetch,
            facts.links,
            facts.links_left_out,
            facts.stale,
        );
    }
    text
}

/// The prediction error of the mean, and where it is largest.
pub(crate) fn verdict(means: &[MeanOutcome]) -> String {
    // Recordings are loads of `plain`: repeating them is not a prediction.
    let arms = means.iter().filter(|mean| mean.arm != Arm::Plain.name());
    let errors: Vec<(f64, String)> =
        arms.filter_map(|mean: &MeanOutcome| Some((mean.error?, name(mean)))).collect();
    let largest = errors.iter().max_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
    let Some((worst, at)) = largest else { return "nothing was predicted".into() };
    let all = errors.iter().map(|(error, _)| error.abs()).sum::<f64>() / errors.len() as f64;
    let within = errors.iter().filter(|(error, _)| error.abs() <= AIM).count();
    format!(
        "prediction error of the mean: {} on average, {} at most ({at}); {within} of {} within {}",
        percent(all),
        signed(*worst),
        errors.len(),
        percent(AIM),
    )
}

fn name(mean: &MeanOutcome) -> String {
    format!("{}, {}{}", mean.link, mean.arm, mean.visit.label())
}

const HEADER: [&str; 8] =
    ["", "page load, s", "saved", "plan: s", "plan: saved", "largest paint, s", "saved", "loads"];

fn columns(cell: &CellOutcome) -> Vec<String> {
    let counts = [(cell.failed, "failed"), (cell.flagged, "flagged"), (cell.idle, "idle")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: String = counts.map(|(count, what)| format!(", {count} {what}")).collect();
    let at_start =
        cell.at_start_saved.map_or(String::new(), |share| format!(" ({})", percent(share)));
    vec![
        cell.arm.clone(),
        seconds(cell.page_load_ms),
        saved(cell.page_load_saved.as_ref()),
        cell.predicted_ms.map_or("–".into(), |ms| format!("{:.2}", ms / 1e3)),
        cell.predicted_saved.map_or("–".into(), |share| format!("{}{at_start}", percent(share))),
        seconds(cell.largest_paint_ms),
        saved(cell.largest_paint_saved.as_ref()),
        format!("{}{counts}", cell.n),
    ]
}

const MEAN_HEADER: [&str; 7] =
    ["", "page load, s", "plan: s", "error", "saved", "plan: saved", "BLAST over Tor"];

fn mean_columns(mean: &MeanOutcome) -> Vec<String> {
    let at_start =
        mean.at_start_saved.map_or(String::new(), |share| format!(" ({})", percent(share)));
    vec![
        name(mean),
        format!("{:.2}", mean.page_load_ms / 1e3),
        mean.predicted_ms.map_or("–".into(), |ms| format!("{:.2}", ms / 1e3)),
        mean.error.map_or("–".into(), signed),
        mean.saved.map_or("–".into(), percent),
        format!("{}{at_start}", mean.predicted_saved.map_or("–".into(), percent)),
        mean.published_saved.map_or(String::new(), percent),
    ]
}

fn seconds(time: Option<Estimate>) -> String {
    time.map_or("–".into(), |time| {
        let Estimate { value, ci95: [low, high] } = time.scaled(1e-3);
        format!("{value:.2} [{low:.2}, {high:.2}]")
    })
}

fn saved(saved: Option<&Saved>) -> String {
    saved.map_or("–".into(), |saved| {
        let Estimate { value, ci95: [low, high] } = saved.share.scaled(100.0);
        format!("{value:.1} % [{low:.1}, {high:.1}]")
    })
}

pub(crate) fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::browser::visit::Visit;

    fn mean(arm: &str, error: Option<f64>) -> MeanOutcome {
        MeanOutcome {
            link: "near".into(),
            arm: arm.into(),
            visit: Visit::default(),
            sites: 3,
            page_load_ms: 2_000.0,
            predicted_ms: error.map(|error| 2_000.0 * (1.0 + error)),
            error,
            saved: None,
            predicted_saved: None,
            at_start_saved: None,
            published_saved: None,
        }
    }

    #[test]
    fn the_largest_error_is_named_with_its_sign() {
        let means = [
            mean("plain", Some(0.5)),
            mean("0rtt", Some(0.05)),
            mean("turbotls", Some(-0.25)),
            mean("x", None),
        ];
        assert_eq!(
            verdict(&means),
            "prediction error of the mean: 15.0 % on average, -25.0 % at most (near, turbotls); 1 \
                of 2 within 15.0 %"
        );
        assert_eq!(verdict(&[]), "nothing was predicted");
    }

    #[test]
    fn missing_measurements_show_a_dash() {
        let outcome = Outcome { means: vec![mean("plain", None)], ..Outcome::default() };
        let text = text(&outcome);
        assert!(text.contains("  near, plain          2.00        –      –"), "{text}");
    }
}
