//! Single connections as pictures: for each arm the trial nearest to the median.

use maud::{Markup, html};

use super::group::Group;
use crate::chart::figure;
use crate::chart::plot::{self, Area, px};
use crate::chart::scale::{self, Scale};
use crate::lab::trial::Row;

/// Sizes in CSS pixels.
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 130.0;
/// Room for the figures after a bar.
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 34.0;
const ROW: f64 = 26.0;
const BAR: f64 = 14.0;

/// Marks of round trips, at most.
const ROUND_TRIPS_MAX: f64 = 14.0;

/// The timelines of a group, or nothing if no connection of it completed.
pub(super) fn timelines(group: &Group) -> Markup {
    let rows: Vec<Timeline<'_>> = group
        .cells
        .iter()
        .filter_map(|cell| Timeline::new(&cell.summary.arm, cell.typical.as_ref()?))
        .collect();
    let longest = rows.iter().map(Timeline::end).fold(0.0, f64::max);
    let floor = TOP + ROW * rows.len() as f64;
    let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor };
    let frame = Frame { scale: Scale::linear(longest), area, rtt: group.rtt_ms };
    let label =
        format!("{}: timeline of the connection nearest to the median, by arm", group.name());
    let content = html! {
        (frame.axes())
        @for (at, row) in rows.iter().enumerate() { (row.draw(&frame, at)) }
    };
    html! {
        @if !rows.is_empty() {
            div.timelines { (plot::svg(WIDTH, floor + BOTTOM, &label, &content)) }
        }
    }
}

/// Legend of the bars' colours.
pub(super) fn legend() -> Markup {
    html! {
        p.legend {
            @for (class, words) in [
                ("opening", "start to first request byte"),
                ("waiting", "to first response byte"),
                ("receiving", "to last response byte"),
            ] {
                span {
                    svg.key viewBox="0 0 14 14" aria-hidden="true" {
                        rect class=(class) width="14" height="14" {}
                    }
                    " " (words)
                }
            }
        }
    }
}

/// One connection. Summary in ms, in order.
struct Timeline<'a> {
    arm: &'a str,
    trial: &'a Row,
    times: [f64; 3],
}

impl<'a> Timeline<'a> {
    fn new(arm: &'a str, trial: &'a Row) -> Option<Self> {
        let times = [
            trial.ms_to_first_request_byte?,
            trial.ms_to_first_response_byte?,
            trial.ms_to_last_response_byte?,
        ];
        Some(Self { arm, trial, times })
    }

    fn end(&self) -> f64 {
        self.times.into_iter().fold(0.0, f64::max)
    }

    fn draw(&self, frame: &Frame, at: usize) -> Markup {
        let y = TOP + ROW * at as f64 + (ROW - BAR) / 2.0;
        let [request, response, last] = self.times;
        let parts = [
            ("opening", 0.0, request),
            ("waiting", request, response),
            ("receiving", response, last),
        ];
        let figures = self.times.map(figure::ms).join(" · ");
        let after = frame.x(self.end()) + 8.0;
        html! {
            g {
                title { (self.words()) }
                text.arm x=(LEFT - 8.0) y=(y + BAR - 3.0) text-anchor="end" { (self.arm) }
                @for (class, from, to) in parts {
                    (plot::bar(class, [from, to].map(|time| frame.x(time)), y, BAR))
                }
                text.figures x=(format!("{after:.1}")) y=(y + BAR - 3.0) { (figures) }
            }
        }
    }

    fn words(&self) -> String {
        let [request, response, last] = self.times.map(figure::ms);
        format!(
            "{}, trial {}, opened by {}: request after {request} ms, response after {response} ms, \
             all of it after {last} ms",
            self.arm, self.trial.trial, self.trial.opening
        )
    }
}

struct Frame {
    scale: Scale,
    area: Area,
    rtt: Option<f64>,
}

impl Frame {
    fn x(&self, time: f64) -> f64 {
        self.area.x(self.scale, time)
    }

    /// Round trips above, ms below.
    fn axes(&self) -> Markup {
        let (floor, end) = (self.area.floor, LEFT - 8.0);
        html! {
            g.grid {
                @if let Some(rtt) = self.rtt {
                    @for trips in round_trips(self.scale.high() / rtt) {
                        @let x = px(self.x(trips * rtt));
                        line.trip x1=(x) x2=(x) y1=(TOP - 6.0) y2=(floor) {}
                        text x=(x) y=(TOP - 11.0) text-anchor="middle" { (scale::mark(trips)) }
                    }
                    text.axis-title x=(end) y=(TOP - 11.0) text-anchor="end" { "round trips" }
                }
                (self.area.axis())
                @for (tick, mark) in plot::marks(self.scale) {
                    @let x = px(self.x(tick));
                    line.axis x1=(x) x2=(x) y1=(floor) y2=(floor + 5.0) {}
                    text x=(x) y=(floor + 18.0) text-anchor="middle" { (mark) }
                }
                text.axis-title x=(end) y=(floor + 18.0) text-anchor="end" { "ms" }
            }
        }
    }
}

/// The round trips to mark on an axis of so many: each, or as many as leave room for their numbers.
fn round_trips(count: f64) -> Vec<f64> {
    let step = if count <= ROUND_TRIPS_MAX { 1.0 } else { scale::step(count / ROUND_TRIPS_MAX) };
    scale::multiples(step, 0.0, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_marks_are_thinned_out() {
        assert_eq!(round_trips(2.02), [0.0, 1.0, 2.0]);
        assert_eq!(round_trips(0.4), [0.0]);
        assert_eq!(round_trips(57.0).len(), 12);
        assert!(round_trips(1e6).len() <= 15);
    }
}
