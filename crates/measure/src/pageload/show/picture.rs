//! Tree and waterfall as a picture.

use maud::{Markup, PreEscaped, html};

use super::summary::{Event, PageSummary, ResourceSummary, Times};
use super::text;
use super::waterfall::{LEGEND, words};
use crate::chart::STYLE;
use crate::chart::figure;
use crate::chart::plot::{self, Area, px};
use crate::chart::scale::Scale;

pub(super) const SHOW_STYLE: &str = include_str!("show.css");

/// Sizes in CSS pixels.
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 330.0;
/// Room for the figures after a bar.
const RIGHT: f64 = 120.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 34.0;
const ROW: f64 = 18.0;
const BAR: f64 = 11.0;
/// To the right for each that is above in the tree, and how often.
const INDENT: f64 = 9.0;
const INDENTS: usize = 12;
/// Width of a letter, about: names are cut to what fits.
const LETTER: f64 = 5.9;

/// Resources of a picture: those of nearly all pages, and no more than programs can draw.
const ROWS_MAX: usize = 600;

/// From one key of the legend to the next.
const LEGEND_STEP: f64 = 145.0;

/// The picture as a file of its own; none if there are no times.
pub(super) fn standalone(page: &PageSummary) -> Option<String> {
    let all = page.resources.as_deref().unwrap_or_default();
    let rows: Vec<Row<'_>> = all
        .iter()
        .take(ROWS_MAX)
        .filter_map(|one| Some(Row { one, times: one.times_ms? }))
        .collect();
    let end = page.end();
    if rows.is_empty() {
        return None;
    }
    let floor = TOP + ROW * rows.len() as f64;
    let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor };
    let frame = Frame { scale: Scale::linear(end), area, rows: rows.len() };
    let more = page.shape.resources.saturating_sub(rows.len());
    let size = format!("0 0 {WIDTH} {:.0}", frame.height());
    let drawn = html! {
        svg.load xmlns="http://www.w3.org/2000/svg" viewBox=(size) role="img"
            aria-label=(format!("Tree and waterfall of {}", page.name)) {
            style { (PreEscaped(STYLE)) (PreEscaped(SHOW_STYLE)) }
            rect width=(WIDTH) height=(format!("{:.0}", frame.height())) fill="var(--page)" {}
            (heading(page, more))
            (frame.bands())
            (frame.axes(&page.events()))
            @for (at, row) in rows.iter().enumerate() { (row.draw(&frame, at)) }
            @for (at, row) in rows.iter().enumerate() { (row.link(&frame, &rows, at)) }
        }
    };
    Some(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", drawn.into_string()))
}

fn heading(page: &PageSummary, more: usize) -> Markup {
    let load = page
        .page_load_ms
        .map_or_else(String::new, |ms| format!("95 % loaded after {:.2} s, ", ms / 1e3));
    let more = if more > 0 { format!("; {more} more are not drawn") } else { String::new() };
    let shape = &page.shape;
    let words = format!(
        "{load}{} resources, {} servers, {}, minRTT {}{more}",
        shape.resources,
        shape.servers,
        text::bytes(shape.response_bytes),
        shape.min_rtt
    );
    html! {
        text x="4" y="15" font-weight="600" { (cut(&page.name, WIDTH / 2.0 - 60.0)) }
        text.figures x=(WIDTH - 4.0) y="15" text-anchor="end" { (words) }
        @for (at, (class, words)) in LEGEND.into_iter().enumerate() {
            @let x = LEFT + LEGEND_STEP * at as f64;
            rect class=(class) x=(x) y="24" width="11" height="11" {}
            text x=(x + 15.0) y="33" { (words) }
        }
        text.critical x="4" y="33" { "critical path" }
    }
}

/// As much of a text as fits.
fn cut(text: &str, width: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few hundred
    let letters = (width / LETTER).max(4.0) as usize;
    text::cut(text, letters)
}

struct Row<'a> {
    one: &'a ResourceSummary,
    times: Times,
}

impl Row<'_> {
    fn draw(&self, frame: &Frame, at: usize) -> Markup {
        let y = frame.y(at);
        let indent = 4.0 + INDENT * self.one.above.min(INDENTS) as f64;
        let url = self.one.short_url();
        let class = if self.one.is_on_critical_path { "url critical" } else { "url" };
        let after = frame.x(self.times.end()) + 5.0;
        let took = format!("{} ms", figure::ms(self.times.end() - self.times.started));
        let mut from = self.times.started;
        html! {
            g {
                title { (words(self.one, &self.times)) }
                text class=(class) x=(indent) y=(y + BAR - 2.0) { (cut(url, LEFT - indent - 8.0)) }
                @for (class, time) in self.times.parts() { @if time > 0.0 {
                    @let (start, _) = (from, from += time);
                    (plot::bar(class, [start, start + time].map(|time| frame.x(time)), y, BAR))
                } }
                text.figures x=(format!("{after:.1}")) y=(y + BAR - 2.0) { (took) }
            }
        }
    }

    /// From where the parent's bytes brought it up, down to where it begins.
    fn link(&self, frame: &Frame, rows: &[Row<'_>], at: usize) -> Markup {
        let parent = rows.iter().take(at).rposition(|row| Some(row.one.id) == self.one.parent);
        let class = if self.one.is_on_critical_path { "link critical" } else { "link" };
        html! {
            @if let Some(parent) = parent {
                @let to = self.times.started;
                @let from = to - self.one.client_ms.unwrap_or_default();
                path class=(class) d=(format!("M{:.1} {:.1} V{:.1} H{:.1}",
                    frame.x(from), frame.y(parent) + BAR, frame.y(at) + BAR / 2.0, frame.x(to))) {}
            }
        }
    }
}

struct Frame {
    scale: Scale,
    area: Area,
    rows: usize,
}

impl Frame {
    fn x(&self, time: f64) -> f64 {
        self.area.x(self.scale, time)
    }

    fn y(&self, row: usize) -> f64 {
        TOP + ROW * row as f64 + (ROW - BAR) / 2.0
    }

    fn height(&self) -> f64 {
        self.area.floor + BOTTOM
    }

    /// Under every other row: the eye follows them.
    fn bands(&self) -> Markup {
        html! {
            @for row in (1..self.rows).step_by(2) {
                rect.band x="0" y=(TOP + ROW * row as f64) width=(WIDTH) height=(ROW) {}
            }
        }
    }

    fn axes(&self, events: &[Event]) -> Markup {
        let floor = self.area.floor;
        html! {
            g.grid {
                (self.area.columns(self.scale, plot::marks(self.scale)))
                @for (tick, mark) in plot::marks(self.scale) {
                    text x=(px(self.x(tick))) y=(TOP - 5.0) text-anchor="middle" { (mark) }
                }
                (self.area.axis())
                text.axis-title x=(LEFT - 12.0) y=(floor + 16.0) text-anchor="end" { "ms" }
                @for event in events {
                    @let x = px(self.x(event.at));
                    line.(event.class) x1=(x) x2=(x) y1=(TOP) y2=(floor) { title { (event.name) } }
                    text x=(x) y=(floor + 28.0) text-anchor="middle" { (event.name) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(cut("a.test/x.js", 200.0), "a.test/x.js");
        let cut = cut("a.test/a/very/long/way/to/x.js", 10.0 * LETTER);
        assert_eq!((cut.chars().count(), cut.as_str()), (10, "a.tes…x.js"));
    }
}
