//! Distributions as pictures: what share of the trials had come so far, over time.

use std::fmt::Write;

use maud::{Markup, html};

use super::group::{Cell, Group};
use super::model::Run;
use crate::chart::plot::{self, Area};
use crate::chart::scale::Scale;
use crate::lab::experiment::Moment;

/// Sizes in CSS pixels: three panels stand side by side in 1,200.
const WIDTH: f64 = 390.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 4.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// Height for a label, and of a panel with few of them.
const LABEL: f64 = 19.0;
const PLOT_MIN: f64 = 170.0;

/// Width of a letter of a label, at most about, and of the gap before the first.
const LETTER: f64 = 7.2;
const GAP: f64 = 8.0;
/// Longer names are cut, so that a plot remains.
const LETTERS_MAX: usize = 20;

/// Steps of a line are drawn no finer than this.
const FINEST: f64 = 0.5;

/// The panels of a group: one for each time of a connection.
pub(super) fn panels(run: &Run, group: &Group) -> Markup {
    html! {
        div.panels {
            @for moment in run.moments() { (panel(group, moment, run.title_of(moment))) }
        }
    }
}

fn panel(group: &Group, moment: Moment, title: &str) -> Markup {
    let mut lines: Vec<Line<'_>> =
        group.cells.iter().filter_map(|cell| Line::new(cell, moment)).collect();
    lines.sort_by(|one, other| one.median().total_cmp(&other.median()));
    let frame = Frame::new(&lines);
    let axis = format!("ms to the {title}{}", if frame.scale.is_log() { " (log)" } else { "" });
    let name = format!("{}: share of trials by {axis}", group.name());
    let Area { left, right, top, floor } = frame.area;
    let (x, y) = (f64::midpoint(left, right), f64::midpoint(top, floor));
    let content = html! {
        (frame.grid())
        (frame.area.title(&axis))
        @if lines.is_empty() {
            text.axis-title x=(x) y=(y) text-anchor="middle" { "no trial came so far" }
        }
        @for line in &lines { (line.curve(&frame)) }
        @for (at, line) in lines.iter().enumerate() { (line.label(&frame, at, lines.len())) }
    };
    plot::svg(WIDTH, floor + BOTTOM, &name, &content)
}

/// One arm.
struct Line<'a> {
    arm: &'a str,
    /// In order, and at least one.
    samples: &'a [f64],
    /// All trials, also those that failed: then the line ends below 100 %.
    trials: usize,
}

impl<'a> Line<'a> {
    fn new(cell: &'a Cell, moment: Moment) -> Option<Self> {
        let samples = cell.samples(moment);
        let trials = cell.trials.max(samples.len());
        (!samples.is_empty()).then_some(Self { arm: &cell.summary.arm, samples, trials })
    }

    fn median(&self) -> f64 {
        self.samples.get((self.samples.len() - 1) / 2).copied().unwrap_or_default()
    }

    fn share(&self) -> f64 {
        self.samples.len() as f64 / self.trials as f64
    }

    /// The time by which a share of all trials had come.
    fn time_at(&self, share: f64) -> f64 {
        let count = share * self.trials as f64;
        let reached = self.samples.iter().enumerate().find(|(at, _)| *at as f64 + 1.0 >= count);
        reached.map(|(_, time)| *time).or(self.samples.last().copied()).unwrap_or_default()
    }

    fn curve(&self, frame: &Frame) -> Markup {
        html! {
            path class=(format!("line {}", class(self.arm))) d=(self.path(frame)) {
                title { (self.arm) ": " (self.samples.len()) " of " (self.trials) " trials" }
            }
        }
    }

    /// Steps up at each time; times within [`FINEST`] make one step, as high as all of them.
    fn path(&self, frame: &Frame) -> String {
        let mut path = String::new();
        let mut step: Option<(f64, usize)> = None;
        for (at, time) in self.samples.iter().enumerate() {
            let x = frame.x(*time);
            match step {
                Some((begun, _)) if x - begun < FINEST => step = Some((begun, at + 1)),
                before => {
                    self.rise(&mut path, frame, before);
                    let verb = if path.is_empty() { 'M' } else { 'H' };
                    let _ = write!(path, "{verb}{x:.1}");
                    if before.is_none() {
                        let _ = write!(path, " {:.1}", frame.y(0.0));
                    }
                    step = Some((x, at + 1));
                }
            }
        }
        self.rise(&mut path, frame, step);
        if self.samples.len() < self.trials {
            let _ = write!(path, "H{:.1}", frame.area.right);
        }
        path
    }

    fn rise(&self, path: &mut String, frame: &Frame, step: Option<(f64, usize)>) {
        if let Some((_, count)) = step {
            let _ = write!(path, "V{:.1}", frame.y(count as f64 / self.trials as f64));
        }
    }

    /// The arm's name at the right, each at a height of its own, and from there to where the line
    /// has that height. So names stand neither on each other nor on the lines.
    fn label(&self, frame: &Frame, at: usize, of: usize) -> Markup {
        let level = (1.0 - (at as f64 + 0.5) / of as f64) * 0.96 + 0.02;
        let share = level * self.share();
        let place = (frame.x(self.time_at(share)), frame.y(share));
        let label = (frame.area.right, frame.y(level));
        html! {
            g class=(class(self.arm)) { (plot::name(place, label, GAP, &shown(self.arm))) }
        }
    }
}

/// The arm's name, as much of it as there is room for.
fn shown(arm: &str) -> String {
    plot::shortened(arm, LETTERS_MAX)
}

/// Colour by what opens the connection, dashes by what is remembered of earlier ones or is
/// encrypted.
pub(super) fn class(arm: &str) -> String {
    let family = match arm {
        arm if arm.starts_with("tls13") => "tls13",
        arm if arm.starts_with("tfo") => "tfo",
        "turbo-agent" => "agent",
        "fop-agent" => "fop-agent",
        arm if arm.starts_with("turbo") => "turbo",
        arm if arm.starts_with("quic") => "quic",
        arm if arm.starts_with("fop") => "fop",
        _ => "other",
    };
    let dashes = match arm {
        arm if arm.ends_with("-ech-0rtt") => " ech early",
        arm if arm.contains("0rtt") => " early",
        arm if arm.contains("resumed") => " resumed",
        arm if arm.ends_with("-ech") => " ech",
        arm if arm.ends_with("-psk") => " key",
        _ => "",
    };
    format!("{family}{dashes}")
}

/// From none to all.
const SHARES: Scale = Scale::linear(1.0);

/// The plot's frame.
struct Frame {
    scale: Scale,
    area: Area,
}

impl Frame {
    fn new(lines: &[Line<'_>]) -> Self {
        let times = lines.iter().flat_map(|line| {
            [line.samples.first(), line.samples.last()].into_iter().flatten().copied()
        });
        let plot = (LABEL * lines.len() as f64).max(PLOT_MIN);
        let letters = lines.iter().map(|line| shown(line.arm).chars().count()).max();
        let labels = GAP + LETTER * letters.unwrap_or_default() as f64;
        let area = Area { left: LEFT, right: WIDTH - RIGHT - labels, top: TOP, floor: TOP + plot };
        Self { scale: Scale::from_times(times), area }
    }

    fn x(&self, time: f64) -> f64 {
        self.area.x(self.scale, time)
    }

    fn y(&self, share: f64) -> f64 {
        self.area.y(SHARES, share)
    }

    fn grid(&self) -> Markup {
        let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
        let shares = shares.map(|share| (share, format!("{:.0} %", share * 100.0)));
        html! {
            g.grid {
                (self.area.rows(SHARES, shares))
                (self.area.columns(self.scale, plot::marks(self.scale)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(samples: &'a [f64], trials: usize) -> Line<'a> {
        Line { arm: "turbo", samples, trials }
    }

    #[test]
    fn steps_are_at_the_times_and_end_at_the_share_that_came() {
        let all = line(&[10.0, 20.0], 2);
        let frame = Frame::new(&[line(&[10.0, 20.0], 2)]);
        let right = frame.area.right;
        let middle = f64::midpoint(LEFT, right);
        assert_eq!(all.path(&frame), format!("M{middle:.1} 180.0V95.0H{right:.1}V10.0"));
        let half = line(&[10.0, 20.0], 4);
        assert!(half.path(&frame).ends_with(&format!("V95.0H{right:.1}")));
        assert_eq!((half.time_at(0.2), half.time_at(0.4), half.time_at(0.9)), (10.0, 20.0, 20.0));
    }

    #[test]
    fn close_times_make_a_steep_curve() {
        let samples = [500.0, 500.001, 500.002, 1_000.0];
        let line = line(&samples, 4);
        let frame = Frame::new(&[Line { arm: "turbo", samples: &samples, trials: 4 }]);
        let right = frame.area.right;
        let middle = f64::midpoint(LEFT, right);
        assert_eq!(line.path(&frame), format!("M{middle:.1} 180.0V52.5H{right:.1}V10.0"));
    }

    #[test]
    fn many_samples_make_no_long_line() {
        let samples: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let line = line(&samples, samples.len());
        let frame = Frame::new(&[Line { arm: "x", samples: &samples, trials: samples.len() }]);
        let path = line.path(&frame);
        assert!(path.len() < 20_000, "{}", path.len());
        assert!(path.ends_with("V10.0"), "{path}");
    }

    #[test]
    fn arms_are_told_apart() {
        let arms = [
            "tls13",
            "tls13-resumed",
            "tls13-0rtt",
            "tfo",
            "turbo",
            "turbo-resumed",
            "turbo-0rtt",
            "turbo-psk",
            "turbo-agent",
            "tls13-ech",
            "turbo-ech",
            "tls13-ech-0rtt",
            "turbo-ech-0rtt",
            "quic",
            "quic-0rtt",
            "tfo-resumed",
            "tfo-0rtt",
            "fop",
            "fop-resumed",
            "fop-0rtt",
            "fop-agent",
            "something",
        ];
        let mut classes: Vec<String> = arms.map(class).into();
        classes.sort();
        classes.dedup();
        assert_eq!(classes.len(), arms.len());
    }
}
