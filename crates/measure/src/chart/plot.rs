//! Elements of charts: the area between the axes with its grid, names of lines, parts of bars.

use maud::{Markup, html};

use super::scale::{self, Scale};

/// Heights of words below an axis: marks, then the title.
const MARKS: f64 = 16.0;
const TITLE: f64 = 34.0;

/// Height of a name.
const LABEL: f64 = 16.0;

/// The area between the axes, in CSS pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) floor: f64,
}

impl Area {
    pub(crate) fn x(&self, scale: Scale, value: f64) -> f64 {
        self.left + scale.place(value) * (self.right - self.left)
    }

    pub(crate) fn y(&self, scale: Scale, value: f64) -> f64 {
        self.floor - scale.place(value) * (self.floor - self.top)
    }

    /// The horizontal lines of a grid, each with its words.
    pub(crate) fn rows(
        &self,
        scale: Scale,
        marks: impl IntoIterator<Item = (f64, String)>,
    ) -> Markup {
        html! {
            @for (value, words) in marks {
                @let y = self.y(scale, value);
                line x1=(self.left) x2=(self.right) y1=(px(y)) y2=(px(y)) {}
                text x=(self.left - 6.0) y=(px(y + 4.0)) text-anchor="end" { (words) }
            }
        }
    }

    /// The vertical lines of a grid, each with its words.
    pub(crate) fn columns(
        &self,
        scale: Scale,
        marks: impl IntoIterator<Item = (f64, String)>,
    ) -> Markup {
        html! {
            @for (value, words) in marks {
                @let x = px(self.x(scale, value));
                line x1=(x) x2=(x) y1=(self.top) y2=(self.floor) {}
                text x=(x) y=(self.floor + MARKS) text-anchor="middle" { (words) }
            }
        }
    }

    /// The horizontal axis.
    pub(crate) fn axis(&self) -> Markup {
        html! { line.axis x1=(self.left) x2=(self.right) y1=(self.floor) y2=(self.floor) {} }
    }

    /// The title of the horizontal axis.
    pub(crate) fn title(&self, words: &str) -> Markup {
        let middle = f64::midpoint(self.left, self.right);
        html! {
            text.axis-title x=(middle) y=(self.floor + TITLE) text-anchor="middle" { (words) }
        }
    }
}

/// A chart in an area as wide and high as this; the label says what it shows.
pub(crate) fn svg(width: f64, height: f64, label: &str, content: &Markup) -> Markup {
    html! {
        svg.chart viewBox=(format!("0 0 {width} {height:.0}")) role="img" aria-label=(label) {
            (content)
        }
    }
}

/// The ticks of a scale with their words.
pub(crate) fn marks(scale: Scale) -> impl Iterator<Item = (f64, String)> {
    scale.ticks().into_iter().map(|tick| (tick, scale::mark(tick)))
}

/// The name of a line at `label`, with a leader to the line's own place.
pub(crate) fn name((x, y): (f64, f64), label: (f64, f64), gap: f64, name: &str) -> Markup {
    let (to_x, to_y) = label;
    html! {
        path.leader d=(format!("M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}")) {}
        circle cx=(px(x)) cy=(px(y)) r="3" {}
        text x=(px(to_x + gap)) y=(px(to_y + 4.0)) { (name) }
    }
}

/// The path of a line from point to point.
pub(crate) fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let steps = points.into_iter().enumerate();
    steps.map(|(at, (x, y))| format!("{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' })).collect()
}

/// Moves places apart until each has [`LABEL`] to the next, within bounds if there is room.
pub(crate) fn apart(places: Vec<f64>, top: f64, bottom: f64) -> Vec<f64> {
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

/// A part of a bar, at least so wide that it is seen.
pub(crate) fn bar(class: &str, [from, to]: [f64; 2], y: f64, height: f64) -> Markup {
    const NARROWEST: f64 = 1.0;
    let width = px((to - from).max(NARROWEST));
    html! { rect class=(class) x=(px(from)) y=(y) width=(width) height=(height) {} }
}

/// Returns a name, or as many letters of it as there is room for.
pub(crate) fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}

/// A length or place, to a tenth of a pixel.
pub(crate) fn px(place: f64) -> String {
    format!("{place:.1}")
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
}
