//! Loads in a browser: savings with the prediction beside them, and each pair as a dot.

use maud::{Markup, html};

use super::model::Run;
use crate::chart::figure::percent;
use crate::chart::plot::{self, Area, px};
use crate::chart::scale::Scale;
use crate::lab::browser::outcome::{CellOutcome, MeanOutcome, Outcome, Saved};
use crate::lab::browser::text::{signed, verdict};
use crate::stats::Estimate;
use crate::table::each_once;

/// Sizes in CSS pixels.
const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 40.0;
const ROW: f64 = 24.0;

pub(super) fn section(run: &Run) -> Markup {
    let Some(outcome) = &run.browser else { return html! {} };
    html! {
        h2 { "Page loads beside the prediction" }
        p.reading {
            (outcome.browser) ". Page load time is until 95 % of the resources are there. Means, \
                in brackets 95 % "
            "intervals (Student's t); savings are of pairs: the mean share of the load of "
            code { "plain" } " in the same round that is saved. "
            code { "plan" } " is predicted from recordings, which were made with nothing, with \
                databases that speak "
            "with the document's head, or Early Hints, as they do here; in brackets with \
                databases that speak at the start. "
            (verdict(&outcome.means)) "."
        }
        (means(&outcome.means))
        @for place in places(outcome) {
            h3 { (place.0) ", " (place.1) }
            (cells(&cells_at(outcome, &place)))
        }
        @for kind in kinds(outcome) {
            figure {
                (pairs(outcome, &kind))
                figcaption {
                    (kind.0) @if kind.1 { ", second visits" } @else { ", first visits" }
                    ": what each load took less than " code { "plain" } " in the same round, in \
                        s. The bar is the mean with its "
                    "interval, the diamond what " code { "plan" } " says, the second one what it \
                        says where databases speak at the start."
                }
            }
        }
    }
}

fn means(means: &[MeanOutcome]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "link" } th { "arm" } th.n { "sites" } th.n { "page load, s" }
                th.n { "plan, s" } th.n { "error" } th.n { "saved" } th.n { "plan" }
                th.n { "BLAST over Tor" }
            } }
            tbody { @for mean in means { tr {
                td { (mean.link) }
                td {
                    (mean.arm)
                    small { (mean.visit.label().trim_start_matches([',', ' '])) }
                }
                td.n { (mean.sites) }
                td.n { (seconds(mean.page_load_ms)) }
                td.n { (mean.predicted_ms.map_or("–".into(), seconds)) }
                td.n { (mean.error.map_or("–".into(), signed)) }
                td.n { (share(mean.saved)) }
                td.n { (predicted(mean.predicted_saved, mean.at_start_saved)) }
                td.n { (mean.published_saved.map_or(String::new(), percent)) }
            } } }
        } }
    }
}

fn cells(cells: &[&CellOutcome]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "arm" } th.n { "loads" } th.n { "page load, s" } th.n { "saved" }
                th.n { "plan, s" } th.n { "plan, saved" } th.n { "largest paint, s" }
                th.n { "saved" }
            } }
            tbody { @for cell in cells { tr {
                td { (cell.arm) }
                td.n {
                    (cell.n)
                    @if cell.failed > 0 { small.bad { (cell.failed) " failed" } }
                    @if cell.flagged > 0 { small { (cell.flagged) " flagged" } }
                    @if cell.idle > 0 { small { (cell.idle) " idle" } }
                }
                td.n { (estimate(cell.page_load_ms)) }
                td.n { (saved(cell.page_load_saved.as_ref())) }
                td.n { (cell.predicted_ms.map_or("–".into(), seconds)) }
                td.n { (predicted(cell.predicted_saved, cell.at_start_saved)) }
                td.n { (estimate(cell.largest_paint_ms)) }
                td.n { (saved(cell.largest_paint_saved.as_ref())) }
            } } }
        } }
    }
}

/// A predicted saving, with that of databases that speak at the start.
fn predicted(saved: Option<f64>, at_start: Option<f64>) -> Markup {
    html! {
        (share(saved))
        @if let Some(at_start) = at_start { small { "(" (percent(at_start)) ")" } }
    }
}

/// Each pair as a dot, in rows by site and arm.
fn pairs(outcome: &Outcome, kind: &(String, bool)) -> Markup {
    let rows = outcome
        .cells
        .iter()
        .filter(|cell: &&CellOutcome| (&cell.link, cell.visit.again) == (&kind.0, kind.1));
    let rows: Vec<Row<'_>> = rows.filter_map(Row::new).collect();
    let axis = Axis::from_rows(&rows);
    let floor = axis.area.floor;
    let label = format!("{}: savings, pair by pair", kind.0);
    let content = html! {
        g.grid {
            (axis.area.columns(axis.scale, plot::marks(axis.scale)))
            @let zero = px(axis.x(0.0));
            line.axis x1=(zero) x2=(zero) y1=(TOP) y2=(floor) {}
        }
        (axis.area.title("s saved"))
        @for (number, row) in rows.iter().enumerate() {
            (row.draw(&axis, TOP + ROW * (number as f64 + 0.5)))
        }
    };
    plot::svg(WIDTH, floor + BOTTOM, &label, &content)
}

struct Row<'r> {
    name: String,
    saved: &'r Saved,
    /// In s.
    predicted: Option<f64>,
    at_start: Option<f64>,
}

impl<'r> Row<'r> {
    fn new(cell: &'r CellOutcome) -> Option<Self> {
        let saved = cell.page_load_saved.as_ref()?;
        Some(Self {
            name: format!("{}, {}", cell.variant, cell.arm),
            saved,
            predicted: saving_s(cell.predicted_ms, cell.predicted_saved),
            at_start: saving_s(cell.at_start_ms, cell.at_start_saved),
        })
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let own = self.saved.differences_ms.iter().map(|ms| ms / 1e3);
        own.chain(self.saved.ms.ci95.map(|ms| ms / 1e3)).chain(self.predicted).chain(self.at_start)
    }

    fn draw(&self, axis: &Axis, y: f64) -> Markup {
        let Estimate { value, ci95: [low, high] } = self.saved.ms.scaled(1e-3);
        let mean = px(axis.x(value));
        html! {
            text x=(LEFT - 10.0) y=(y + 4.0) text-anchor="end" { (self.name) }
            (plot::bar("waiting", [axis.x(low), axis.x(high)], y - 6.0, 12.0))
            line.leader.turbo x1=(mean) x2=(mean) y1=(y - 8.0) y2=(y + 8.0) {}
            @for ms in &self.saved.differences_ms {
                circle.turbo cx=(px(axis.x(ms / 1e3))) cy=(y) r="3.5" {
                    title { (format!("{:.3} s", ms / 1e3)) }
                }
            }
            @for (class, plan) in [("line quic", self.predicted), ("line agent", self.at_start)] {
                @if let Some(plan) = plan {
                    @let diamond = format!("M{:.1} {:.1}l5 6l-5 6l-5 -6z", axis.x(plan), y - 6.0);
                    path class=(class) d=(diamond) { title { (format!("plan: {plan:.3} s")) } }
                }
            }
        }
    }
}

/// The seconds that a predicted time is shorter, by the share of the whole that is saved.
fn saving_s(ms: Option<f64>, share: Option<f64>) -> Option<f64> {
    let share = share.filter(|share| *share < 1.0)?;
    Some(ms? / (1.0 - share) * share / 1e3)
}

/// From the smallest value to the largest, and zero.
struct Axis {
    scale: Scale,
    area: Area,
}

impl Axis {
    fn from_rows(rows: &[Row<'_>]) -> Self {
        let values = rows.iter().flat_map(Row::values).filter(|value| value.is_finite());
        let (low, high) = values
            .fold((0.0, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        // Leaves room for a dot at either end.
        let margin = ((high - low) * 0.03).max(0.001);
        let floor = TOP + ROW * rows.len() as f64;
        let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor };
        Self { scale: Scale::Linear { low: low - margin, high: high + margin }, area }
    }

    fn x(&self, value: f64) -> f64 {
        self.area.x(self.scale, value)
    }
}

/// Links and variants, in their order.
fn places(outcome: &Outcome) -> Vec<(String, String)> {
    each_once(outcome.cells.iter().map(|cell| (cell.link.clone(), cell.variant.clone())))
}

fn cells_at<'o>(outcome: &'o Outcome, place: &(String, String)) -> Vec<&'o CellOutcome> {
    outcome
        .cells
        .iter()
        .filter(|cell: &&CellOutcome| (&cell.link, &cell.variant) == (&place.0, &place.1))
        .collect()
}

/// Links, with first visits and second ones, of which there are pairs.
fn kinds(outcome: &Outcome) -> Vec<(String, bool)> {
    let paired = outcome.cells.iter().filter(|cell| cell.page_load_saved.is_some());
    each_once(paired.map(|cell| (cell.link.clone(), cell.visit.again)))
}

fn seconds(ms: f64) -> String {
    format!("{:.2}", ms / 1e3)
}

fn share(share: Option<f64>) -> String {
    share.map_or("–".into(), percent)
}

fn estimate(time: Option<Estimate>) -> Markup {
    html! {
        @match time {
            None => { "–" }
            Some(time) => {
                @let [low, high] = time.ci95;
                (seconds(time.value)) small { "[" (seconds(low)) ", " (seconds(high)) "]" }
            }
        }
    }
}

fn saved(saved: Option<&Saved>) -> Markup {
    html! {
        @match saved {
            None => { "–" }
            Some(saved) => {
                @let [low, high] = saved.share.ci95;
                (percent(saved.share.value)) small { "[" (percent(low)) ", " (percent(high)) "]" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::browser::visit::Visit;

    fn cell(arm: &str, differences_ms: &[f64]) -> CellOutcome {
        let mean = Estimate { value: 100.0, ci95: [50.0, 150.0] };
        let saved =
            Saved { ms: mean, share: mean.scaled(1e-3), differences_ms: differences_ms.into() };
        CellOutcome {
            link: "near".into(),
            variant: "news".into(),
            arm: arm.into(),
            visit: Visit::default(),
            n: 2,
            failed: 0,
            flagged: 0,
            idle: 3,
            circuits: std::collections::BTreeSet::new(),
            page_load_ms: Some(mean),
            largest_paint_ms: None,
            page_load_saved: (!differences_ms.is_empty()).then_some(saved),
            largest_paint_saved: None,
            predicted_ms: Some(900.0),
            predicted_saved: Some(0.1),
            at_start_ms: None,
            at_start_saved: None,
        }
    }

    #[test]
    fn every_pair_is_a_dot_and_the_axis_has_zero() {
        let cells = vec![cell("plain", &[]), cell("turbotls", &[80.0, -40.0, 120.0])];
        let outcome = Outcome { cells, ..Outcome::default() };
        assert_eq!(kinds(&outcome), [("near".to_owned(), false)]);
        let picture = pairs(&outcome, &("near".to_owned(), false)).into_string();
        assert_eq!(picture.matches("<circle").count(), 3);
        assert!(
            picture.contains("plan: 0.100 s") && picture.contains("class=\"axis\""),
            "{picture}"
        );
        let ticks = Scale::Linear { low: -0.05, high: 0.16 }.ticks();
        assert!(ticks.contains(&0.0) && ticks.len() > 3, "{ticks:?}");
        assert_eq!(
            (places(&outcome).len(), cells_at(&outcome, &places(&outcome)[0]).len()),
            (1, 2)
        );
    }
}
