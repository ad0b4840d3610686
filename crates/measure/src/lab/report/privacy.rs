//! Linking of a client's connections: a row for each boundary, the published findings beside ours.

use std::fmt::Write;

use maud::{Markup, html};
use serde::Deserialize;

use super::group::Cell;
use super::model::Run;
use crate::lab::privacy::{Boundary, Finding, Linkable};
use crate::table::each_once;

const PUBLISHED: &str = include_str!("../../../../../lab/papers/fop-privacy.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    title: String,
    source: String,
    about: String,
    #[serde(rename = "row")]
    rows: Vec<Row>,
}

/// Published findings about plain Fast Open, and about private cookies if there are any.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    boundary: Boundary,
    tfo: Linkable,
    fop: Option<Linkable>,
}

/// A cell that findings, with what was found.
type CellFinding<'r> = (&'r Cell, &'r Finding);

/// The table of a run, if it asks who can link connections.
pub(super) fn table(run: &Run) -> Option<Markup> {
    let findings = findings(run);
    if findings.is_empty() {
        return None;
    }
    let (boundaries, arms) = (boundaries(&findings), arms(&findings));
    let published = toml::from_str::<Published>(PUBLISHED).ok()?;
    Some(html! {
        p {
            cite { (published.title) } ", " (published.source) ". " (published.about.trim())
            " Ours is decided by what captures of the client show in clear: " b { "viable" }
            ", something is shown again, which everybody on the way can see; " b { "bounded" }
            ", something new is shown that was given before the boundary, which its issuer alone \
                knows, once and until it expires; " b { "blocked" }
            ", nothing is shown. In brackets: how many cases, each after everything was forgotten."
        }
        div.wide { table.privacy {
            thead {
                tr {
                    th rowspan="2" { "boundary" small { "who links" } }
                    th.group colspan="2" { "paper" }
                    th.group colspan=(arms.len()) { "ours" }
                }
                tr {
                    th.first { "TFO" } th { "FOP" }
                    @for (at, arm) in arms.iter().enumerate() { th.first[at == 0] { (arm) } }
                }
            }
            tbody {
                @for boundary in &boundaries { (row(*boundary, &findings, &arms, &published)) }
            }
        } }
    })
}

fn row(
    boundary: Boundary,
    findings: &[CellFinding<'_>],
    arms: &[&str],
    published: &Published,
) -> Markup {
    let theirs = published.rows.iter().find(|row| row.boundary == boundary);
    let [tfo, fop] = [theirs.map(|row| row.tfo), theirs.and_then(|row| row.fop)]
        .map(|linkable| linkable.map_or("–", Linkable::word));
    let observer =
        if boundary.is_of_network() { "whoever watches the network" } else { "the server" };
    html! {
        tr {
            th scope="row" {
                (boundary.title())
                small { (observer) }
            }
            td.first { (tfo) }
            td { (fop) }
            @for (at, arm) in arms.iter().enumerate() {
                td.first[at == 0] {
                    @match found(boundary, arm, findings) {
                        Some(finding) => {
                            (ours(finding))
                            @for why in finding.evidence.iter().take(1) { small { (why) } }
                        }
                        None => "not findings",
                    }
                }
            }
        }
    }
}

/// Returns the same as lines for the terminal; nothing if the run has no such finding.
pub(super) fn text(run: &Run) -> String {
    let findings = findings(run);
    let mut text = String::new();
    // Writing to a string cannot fail.
    for boundary in boundaries(&findings) {
        let who = if boundary.is_of_network() { "the network" } else { "the server" };
        let _ = writeln!(text, "\n{}, linked by {who}", boundary.title());
        for arm in arms(&findings) {
            if let Some(finding) = found(boundary, arm, &findings) {
                let why = finding.evidence.first().map_or("", String::as_str);
                let _ = writeln!(text, "  {arm:<12} {:<24} {why}", ours(finding));
            }
        }
    }
    text
}

fn ours(finding: &Finding) -> String {
    let Finding { linkable, viable, bounded, blocked, undecided, .. } = finding;
    let word = linkable.map_or("undecided", Linkable::word);
    let period = finding.period().map_or(String::new(), |period| format!(", {period}"));
    let all = viable + bounded + blocked + undecided;
    let of = match linkable {
        Some(Linkable::Viable) => *viable,
        Some(Linkable::Bounded) => *bounded,
        Some(Linkable::Blocked) => *blocked,
        None => *undecided,
    };
    format!("{word}{period} ({of} of {all})")
}

fn findings(run: &Run) -> Vec<CellFinding<'_>> {
    let cells = run.groups.iter().flat_map(|group| &group.cells);
    cells.filter_map(|cell| Some((cell, cell.summary.privacy.as_ref()?))).collect()
}

fn found<'r>(boundary: Boundary, arm: &str, findings: &[CellFinding<'r>]) -> Option<&'r Finding> {
    let mut all = findings.iter();
    let all = all.find(|(cell, finding)| cell.summary.arm == arm && finding.boundary == boundary);
    all.map(|(_, finding)| *finding)
}

/// In the order of the experiment, each once.
fn boundaries(findings: &[CellFinding<'_>]) -> Vec<Boundary> {
    each_once(findings.iter().map(|(_, finding)| finding.boundary))
}

fn arms<'r>(findings: &[CellFinding<'r>]) -> Vec<&'r str> {
    each_once(findings.iter().map(|(cell, _)| cell.summary.arm.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_has_every_boundary() {
        let published: Published = toml::from_str(PUBLISHED).unwrap();
        assert_eq!(published.rows.len(), 10);
        let viable = published.rows.iter().filter(|row| row.tfo == Linkable::Viable).count();
        assert_eq!(viable, 9, "all but a change of the client's own address");
        let mut boundaries: Vec<_> =
            published.rows.iter().map(|row| row.boundary.title()).collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        assert_eq!(boundaries.len(), 10);
    }

    #[test]
    fn a_finding_tells_its_number_of_cases() {
        let text = r#"{"boundary":"period","linkable":"bounded","viable":0,"bounded":4,"blocked":1,
            "undecided":0,"evidence":["case 1: visit 3 shows nothing any more"]}"#;
        let finding: Finding = serde_json::from_str(text).unwrap();
        assert_eq!(ours(&finding), "bounded, until expiry (4 of 5)");
        let undecided = Finding { linkable: None, bounded: 0, undecided: 4, ..finding };
        assert_eq!(ours(&undecided), "undecided (4 of 5)");
    }
}
