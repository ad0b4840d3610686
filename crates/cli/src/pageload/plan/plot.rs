//! Plots: page load times over round trips or bandwidths, and bars.

use std::fmt::Write as _;

use headstart_pageload::plan::Sweep;
use maud::{Markup, html};

use crate::lab::report::scale::{self, Scale};
use crate::pageload::model::short;

/// Sizes in CSS pixels: two plots stand side by side in 1,200.
const WIDTH: f64 = 590.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 46.0;
/// Room for the names of lines.
const RIGHT: f64 = 118.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Height of a name.
const LABEL: f64 = 16.0;

/// Of bars: names at the left, figures at the right.
const NAME: f64 = 122.0;
const FIGURES: f64 = 118.0;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;

/// A bar: a name, a time in ms, the share of the first that it is less.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) class: &'static str,
    pub(super) ms: f64,
    pub(super) words: String,
}

/// Times as bars from zero to `most`, in ms.
pub(super) fn bars(title: &str, bars: &[Bar], most: f64) -> Markup {
    let scale = Scale::linear(most);
    let x = |ms: f64| NAME + scale.place(ms) * (WIDTH - NAME - FIGURES);
    let height = TOP + 14.0 + ROW * bars.len() as f64;
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" aria-label=(title) {
            text x="0" y="12" font-weight="600" { (title) }
            @for (at, bar) in bars.iter().enumerate() {
                @let y = TOP + 8.0 + ROW * at as f64;
                @let width = (x(bar.ms) - NAME).max(1.0);
                text x="0" y=(y + BAR - 2.0) { (bar.name) }
                rect class=(bar.class) x=(NAME) y=(y) width=(format!("{width:.1}")) height=(BAR) {}
                text.figures x=(format!("{:.1}", NAME + width + 6.0)) y=(y + BAR - 2.0) { (bar.words) }
            }
        }
    }
}

/// Lines of page load times in s over something, in logarithmic steps.
pub(super) fn lines(title: &str, axis: &str, sweep: &Sweep) -> Markup {
    let Some(frame) = Frame::of(sweep) else { return html! {} };
    let places = frame.labels(sweep);
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(format!("{title}, over {axis}")) {
            (frame.grid(sweep))
            text.axis-title x=(frame.middle()) y=(HEIGHT - 6.0) text-anchor="middle" { (axis) " (log)" }
            text.axis-title x="4" y="12" { "s" }
            @for (arm, name) in sweep.arms.iter().enumerate() {
                path class=(format!("line {}", class(name))) d=(frame.path(sweep, arm)) { title { (name) } }
            }
            @for (arm, name) in sweep.arms.iter().enumerate() { (frame.label(sweep, arm, name, &places)) }
        }
    }
}

/// Colour of a line.
fn class(arm: &str) -> &'static str {
    match arm {
        "none" => "tls13",
        "turbotls" | "optimistic-data" => "turbo",
        "databases" => "other",
        "all" => "agent",
        arm if arm.contains("0rtt") => "turbo early",
        _ => "fop",
    }
}

struct Frame {
    x: Scale,
    /// In s.
    y: Scale,
}

impl Frame {
    fn of(sweep: &Sweep) -> Option<Self> {
        let (first, last) = (sweep.points.first()?.at, sweep.points.last()?.at);
        let most = sweep
            .points
            .iter()
            .flat_map(|point| &point.page_load_ms)
            .fold(0.0, |most, &ms| f64::max(most, ms));
        let x = Scale::Log { low: first.min(last), high: first.max(last).max(first * 1.01) };
        Some(Self { x, y: Scale::linear(most / 1e3) })
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + self.x.place(at) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(ms / 1e3) * (HEIGHT - TOP - BOTTOM)
    }

    fn middle(&self) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0
    }

    fn grid(&self, sweep: &Sweep) -> Markup {
        let floor = self.y(0.0);
        html! {
            g.grid {
                @for tick in self.y.ticks() {
                    @let y = format!("{:.1}", self.y(tick * 1e3));
                    line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
                    text x=(LEFT - 6.0) y=(format!("{:.1}", self.y(tick * 1e3) + 4.0)) text-anchor="end" { (scale::mark(tick)) }
                }
                @for point in &sweep.points {
                    @let x = format!("{:.1}", self.x(point.at));
                    line x1=(x) x2=(x) y1=(TOP) y2=(floor) {}
                    text x=(x) y=(floor + 16.0) text-anchor="middle" { (short(point.at)) }
                }
                line.axis x1=(LEFT) x2=(WIDTH - RIGHT) y1=(floor) y2=(floor) {}
            }
        }
    }

    fn path(&self, sweep: &Sweep, arm: usize) -> String {
        let mut path = String::new();
        for point in &sweep.points {
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let ms = point.page_load_ms.get(arm).copied().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = write!(path, "{verb}{:.1} {:.1}", self.x(point.at), self.y(ms));
        }
        path
    }

    /// Where the names stand: at the ends of their lines, but not on each other.
    fn labels(&self, sweep: &Sweep) -> Vec<f64> {
        let end = |arm| {
            let last = sweep.points.last().and_then(|point| point.page_load_ms.get(arm));
            self.y(last.copied().unwrap_or_default())
        };
        apart((0..sweep.arms.len()).map(end).collect(), TOP + 4.0, HEIGHT - BOTTOM - 4.0)
    }

    fn label(&self, sweep: &Sweep, arm: usize, name: &str, places: &[f64]) -> Markup {
        let Some(last) = sweep.points.last() else { return html! {} };
        let y = self.y(last.page_load_ms.get(arm).copied().unwrap_or_default());
        let place = places.get(arm).copied().unwrap_or(y);
        let x = self.x(last.at);
        html! {
            g class=(class(name)) {
                path.leader d=(format!("M{x:.1} {y:.1}L{:.1} {place:.1}", x + 10.0)) {}
                circle cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="3" {}
                text x=(format!("{:.1}", x + 14.0)) y=(format!("{:.1}", place + 4.0)) { (name) }
            }
        }
    }
}

/// Moves places apart until each has [`LABEL`] to the next, within bounds if there is room.
fn apart(places: Vec<f64>, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&one, &other| places[one].total_cmp(&places[other]));
    let mut apart = places;
    let mut least = top;
    for &at in &order {
        apart[at] = apart[at].max(least);
        least = apart[at] + LABEL;
    }
    let mut most = bottom;
    for &at in order.iter().rev() {
        apart[at] = apart[at].min(most);
        most = apart[at] - LABEL;
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_on_each_other() {
        assert_eq!(apart(vec![50.0, 52.0, 51.0], 0.0, 200.0), [50.0, 82.0, 66.0]);
        assert_eq!(apart(vec![198.0, 199.0, 20.0], 0.0, 200.0), [184.0, 200.0, 20.0]);
        assert_eq!(apart(vec![100.0], 0.0, 200.0), [100.0]);
    }

    #[test]
    fn lines_go_from_point_to_point() {
        let point = |at, ms| headstart_pageload::plan::Point { at, page_load_ms: vec![ms] };
        let sweep = Sweep {
            arms: vec!["none".into()],
            points: vec![point(1.0, 0.0), point(10.0, 500.0), point(100.0, 1000.0)],
        };
        let Some(frame) = Frame::of(&sweep) else { panic!("there are points") };
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (middle, half) = (frame.middle(), (floor + TOP) / 2.0);
        assert_eq!(
            frame.path(&sweep, 0),
            format!("M{LEFT:.1} {floor:.1}L{middle:.1} {half:.1}L{right:.1} {TOP:.1}")
        );
    }
}
