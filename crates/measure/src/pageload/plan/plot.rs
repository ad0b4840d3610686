//! Plots: page load times over round trips or bandwidths, and bars.

use headstart_pageload::plan::{Point, Sweep};
use maud::{Markup, html};

use crate::chart::plot::{self, Area, px};
use crate::chart::scale::{Scale, mark};

/// Sizes in CSS pixels: two plots stand side by side in 1,200, or three narrow ones.
const WIDTH: f64 = 590.0;
const NARROW: f64 = 390.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 46.0;
/// Room for the names of lines.
const RIGHT: f64 = 118.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;

/// Gains that lie closer, in percent, are one step.
const FINEST: f64 = 0.1;

/// Pages of a plot with dots: more are one spot.
const DOTS: usize = 3000;

/// Width of bars' names at the left; figures stand at the right.
const NAME: f64 = 122.0;
const FIGURES: f64 = 118.0;
const HEADING: f64 = 22.0;
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
    let height = HEADING + 6.0 + ROW * bars.len() as f64;
    let content = html! {
            text x="0" y="12" font-weight="600" { (title) }
            @for (at, bar) in bars.iter().enumerate() {
                @let y = HEADING + ROW * at as f64;
                @let end = NAME + scale.place(bar.ms) * (WIDTH - NAME - FIGURES);
                text x="0" y=(y + BAR - 2.0) { (bar.name) }
                (plot::bar(bar.class, [NAME, end], y, BAR))
                text.figures x=(px(end + 6.0)) y=(y + BAR - 2.0) { (bar.words) }
            }
    };
    plot::svg(WIDTH, height, title, &content)
}

/// Lines of savings in percent over something, in logarithmic steps.
pub(super) fn lines(title: &str, axis: &str, sweep: &Sweep) -> Markup {
    let (Some(first), Some(last)) = (sweep.points.first(), sweep.points.last()) else {
        return html! {};
    };
    // Without the first line: nothing saves nothing.
    let saved = sweep.points.iter().flat_map(|point| point.saved.iter().skip(1));
    let (low, high) =
        saved.fold((0.0_f64, 0.1_f64), |(low, high), saved| (low.min(*saved), high.max(*saved)));
    let frame = Frame {
        x: Scale::Log { low: first.at, high: last.at.max(first.at * 1.01) },
        y: Scale::Linear { low: 100.0 * low, high: 100.0 * high },
        right: RIGHT,
        width: WIDTH,
    };
    let lines: Vec<Line> = sweep
        .arms
        .iter()
        .enumerate()
        .skip(1)
        .map(|(arm, name): (usize, &String)| Line {
            name: name.clone(),
            points: sweep
                .points
                .iter()
                .filter_map(|point: &Point| Some((point.at, 100.0 * point.saved.get(arm)?)))
                .collect(),
        })
        .collect();
    let marks = sweep.points.iter().map(|point| (point.at, mark(point.at)));
    let label = format!("{title}, over {axis}");
    let content = html! {
        (frame.grid(marks, plot::marks(frame.y)))
        (frame.titles(&format!("{axis} (log)"), "% shorter"))
        (frame.named(&lines))
    };
    plot::svg(WIDTH, HEIGHT, &label, &content)
}

/// Draws, for each arm, the share of the pages that gain so much or more.
pub(super) fn gains(arms: &[(&str, Vec<f64>)]) -> Markup {
    let frame =
        Frame { x: Scale::linear(100.0), y: Scale::linear(100.0), right: RIGHT, width: WIDTH };
    let lines: Vec<Line> = arms
        .iter()
        .map(|(name, saved)| Line { name: (*name).to_owned(), points: steps(saved) })
        .collect();
    let marks = [0.0, 25.0, 50.0, 75.0, 100.0].map(|at| (at, mark(at)));
    let content = html! {
        (frame.grid(marks.clone(), marks))
        (frame.titles("page load time less by, %", "% of the pages"))
        (frame.named(&lines))
    };
    plot::svg(WIDTH, HEIGHT, "Share of the pages that gain so much or more", &content)
}

/// For each gain the percentage of the pages that have it or more, as corners of a line that falls
/// in steps.
fn steps(saved: &[f64]) -> Vec<(f64, f64)> {
    let mut saved: Vec<f64> = saved.iter().map(|share| 100.0 * share.max(0.0)).collect();
    saved.sort_by(f64::total_cmp);
    let count = saved.len().max(1) as f64;
    let (mut points, mut before) = (vec![(0.0, 100.0)], 0.0);
    for (less, gain) in saved.into_iter().enumerate() {
        if gain - before > FINEST {
            let share = 100.0 * (count - less as f64) / count;
            points.extend([(before, share), (gain, share)]);
            before = gain;
        }
    }
    points.push((before, 0.0));
    points
}

/// Page load times in s over something, a dot for each page.
pub(super) fn dots(axis: &str, points: &[(f64, f64)]) -> Markup {
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(most_x, most_y): (f64, f64), (x, y)| (most_x.max(*x), most_y.max(*y)));
    let frame = Frame { x: Scale::linear(x), y: Scale::linear(y), right: LEFT, width: NARROW };
    let label = format!("Page load time over {axis}");
    let content = html! {
        (frame.grid(plot::marks(frame.x), plot::marks(frame.y)))
        (frame.titles(axis, "s"))
        g.turbo { @for (x, y) in points.iter().take(DOTS) {
            circle cx=(px(frame.x(*x))) cy=(px(frame.y(*y))) r="3.5" {}
        } }
    };
    plot::svg(NARROW, HEIGHT, &label, &content)
}

/// Colour of a line.
fn class(arm: &str) -> &'static str {
    match arm {
        "your edges" => "fop",
        "turbotls" => "turbo",
        "databases" | "prefetch-db" => "other",
        "all" => "agent",
        arm if arm.contains("0rtt") => "turbo early",
        _ => "quic",
    }
}

struct Line {
    name: String,
    /// In the units of the axes.
    points: Vec<(f64, f64)>,
}

struct Frame {
    x: Scale,
    y: Scale,
    /// Room at the right.
    right: f64,
    width: f64,
}

impl Frame {
    const fn area(&self) -> Area {
        Area { left: LEFT, right: self.width - self.right, top: TOP, floor: HEIGHT - BOTTOM }
    }

    fn x(&self, value: f64) -> f64 {
        self.area().x(self.x, value)
    }

    fn y(&self, value: f64) -> f64 {
        self.area().y(self.y, value)
    }

    fn titles(&self, x: &str, y: &str) -> Markup {
        html! { (self.area().title(x)) text.axis-title x="2" y="11" { (y) } }
    }

    fn grid(
        &self,
        x_marks: impl IntoIterator<Item = (f64, String)>,
        y_marks: impl IntoIterator<Item = (f64, String)>,
    ) -> Markup {
        let area = self.area();
        html! {
            g.grid { (area.rows(self.y, y_marks)) (area.columns(self.x, x_marks)) (area.axis()) }
        }
    }

    /// Lines with their names where they end, but not on each other.
    fn named(&self, lines: &[Line]) -> Markup {
        let ends: Vec<(f64, f64)> = lines
            .iter()
            .map(|line: &Line| {
                let (x, y) = line.points.last().copied().unwrap_or_default();
                (self.x(x), self.y(y))
            })
            .collect();
        let heights = ends.iter().map(|(_, y)| *y).collect();
        let places = plot::apart(heights, TOP + 4.0, HEIGHT - BOTTOM - 4.0);
        html! {
            @for line in lines {
                path class=(format!("line {}", class(&line.name))) d=(self.path(line)) {
                    title { (line.name) }
                }
            }
            @for ((line, (x, y)), place) in lines.iter().zip(ends).zip(places) {
                @let label = (self.width - self.right + 12.0, place);
                g class=(class(&line.name)) { (plot::name((x, y), label, 3.0, &line.name)) }
            }
        }
    }

    fn path(&self, line: &Line) -> String {
        plot::path(line.points.iter().map(|(x, y)| (self.x(*x), self.y(*y))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_from_point_to_point() {
        let x = Scale::Log { low: 1.0, high: 100.0 };
        let frame = Frame { x, y: Scale::linear(2.0), right: RIGHT, width: WIDTH };
        let points = vec![(1.0, 0.0), (10.0, 1.0), (100.0, 2.0)];
        let path = frame.path(&Line { name: "none".into(), points });
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (middle, half) = ((LEFT + right) / 2.0, (floor + TOP) / 2.0);
        assert_eq!(
            path,
            format!("M{LEFT:.1} {floor:.1}L{middle:.1} {half:.1}L{right:.1} {TOP:.1}")
        );
    }

    #[test]
    fn shares_fall_with_the_gain() {
        // Two pages gain half, three a quarter or more, and one nothing.
        let corners = steps(&[0.5, -0.2, 0.25, 0.5]);
        let expected =
            [(0.0, 100.0), (0.0, 75.0), (25.0, 75.0), (25.0, 50.0), (50.0, 50.0), (50.0, 0.0)];
        assert_eq!(corners, expected);
        assert_eq!(steps(&[]), [(0.0, 100.0), (0.0, 0.0)]);
    }
}
