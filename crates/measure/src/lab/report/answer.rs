//! The answer of a run in two sentences, its picture, and charts over what is swept.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use maud::{Markup, html};

use super::distribution::class;
use super::group::Group;
use super::model::Run;
use crate::chart::figure;
use crate::chart::plot::{self, Area, px};
use crate::chart::scale::{Scale, mark, multiples, step};
use crate::lab::experiment::Moment;
use crate::table::{each_once, joined};

/// Sizes in CSS pixels.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 40.0;
const ROW: f64 = 22.0;
/// Dimensions of a chart over what is swept.
const HEIGHT: f64 = 300.0;
const NAMES: f64 = 96.0;

/// Letters of the name of a place on an axis.
const LETTERS: usize = 22;

/// Charts of a run: more are no overview.
const CHARTS: usize = 12;

/// Marks of an axis of ratios, about.
const MARKS: f64 = 8.0;

/// Flagged trials that are worth a warning, as a share.
const MANY: f64 = 0.1;

/// An arm beside the baseline: the ratio of medians in each group that has one.
struct Beside {
    arm: String,
    baseline: &'static str,
    ratios: Vec<f64>,
}

impl Beside {
    fn middle(&self) -> f64 {
        self.ratios.get((self.ratios.len().max(1) - 1) / 2).copied().unwrap_or(f64::INFINITY)
    }

    fn range(&self) -> (f64, f64) {
        let ends = self.ratios.first().zip(self.ratios.last());
        ends.map_or((0.0, 0.0), |(low, high)| (*low, *high))
    }
}

/// The arms that can be compared, those that take least first.
fn beside(run: &Run) -> Vec<Beside> {
    let mut all: Vec<Beside> = Vec::new();
    for group in &run.groups {
        for cell in &group.cells {
            let Some(ratio) = cell.ratio(run.moments()[0]) else { continue };
            let (arm, baseline) = (&cell.summary.arm, group.baseline());
            let place = all.iter().position(|one| one.arm == *arm && one.baseline == baseline);
            let place = place.unwrap_or_else(|| {
                all.push(Beside { arm: arm.clone(), baseline, ratios: Vec::new() });
                all.len() - 1
            });
            all[place].ratios.push(ratio.value);
        }
    }
    all.iter_mut().for_each(|one| one.ratios.sort_by(f64::total_cmp));
    all.sort_by(|one, other| one.middle().total_cmp(&other.middle()));
    all
}

/// The answer in sentences.
pub(super) fn words(run: &Run) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(best) = beside(run).first() {
        let (low, high) = best.range();
        let of = match best.ratios.len() {
            1 => String::new(),
            count => format!(
                " in the median of {count} comparisons, {} to {} in each",
                figure::ratio(low),
                figure::ratio(high)
            ),
        };
        let least = if best.middle() < 1.0 { "takes least" } else { "is not faster" };
        let _ = write!(
            text,
            "{} {least}: {} of the time of {} to the {}{of}. ",
            best.arm,
            figure::ratio(best.middle()),
            best.baseline,
            run.title_of(run.moments()[0]),
        );
    }
    if !run.verdicts.is_empty() {
        let met = run.verdicts.iter().filter(|verdict| verdict.met).count();
        let _ = write!(text, "{met} of {} demands are met. ", run.verdicts.len());
    }
    let _ = write!(text, "{} of {} trials failed.", run.failed, run.trials);
    text
}

/// The meaning and the number of flagged trials; nothing without any.
pub(super) fn flags(run: &Run) -> String {
    if run.flagged == 0 {
        return String::new();
    }
    let mut text = format!(
        "{} of the trials are flagged: while they ran, the lab's forwarder sent a packet later \
            than the experiment allows (late), so that their times have some of the lab's own. \
            They count all the same.",
        figure::share(run.flagged, run.trials)
    );
    if run.flagged as f64 > MANY * run.trials as f64 {
        text.push_str(
            " That is more than a tenth: compare the medians without them, and take differences \
             as small as the lateness for noise.",
        );
    }
    text
}

/// A row for each arm, a dot for each comparison, and a bar to their median; nothing without any.
pub(super) fn picture(run: &Run) -> Markup {
    let all = beside(run);
    if all.is_empty() {
        return html! {};
    }
    let most = all.iter().filter_map(|one| one.ratios.last()).copied();
    let scale = Scale::linear(most.filter(|ratio| ratio.is_finite()).fold(1.0, f64::max));
    let area =
        Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor: TOP + ROW * all.len() as f64 };
    let marks = multiples(step(scale.high() / MARKS), 0.0, scale.high());
    let title =
        format!("time to the {}, as a share of the baseline's", run.title_of(run.moments()[0]));
    let content = html! {
        g.grid {
            (area.columns(scale, marks.into_iter().map(|at| (at, mark(at)))))
            @let one = px(area.x(scale, 1.0));
            line.axis x1=(one) x2=(one) y1=(area.top) y2=(area.floor) {}
        }
        (area.title(&title))
        @for (at, one) in all.iter().enumerate() {
            @let y = TOP + ROW * at as f64;
            g class=(class(&one.arm)) {
                text x="0" y=(y + 15.0) { (one.arm) }
                rect.median x=(LEFT) y=(y + 6.0) height="10"
                    width=(px(area.x(scale, one.middle().min(scale.high())) - LEFT)) {}
                @for ratio in one.ratios.iter().filter(|ratio| ratio.is_finite()) {
                    circle cx=(px(area.x(scale, *ratio))) cy=(y + 11.0) r="3" {}
                }
            }
            text.figures x=(WIDTH - RIGHT + 10.0) y=(y + 15.0) {
                (figure::ratio(one.middle())) " of " (one.baseline)
            }
        }
    };
    html! { figure {
        (plot::svg(WIDTH, area.floor + BOTTOM, &title, &content))
        figcaption {
            "A dot for each link, suite and variant; the bar ends at their median. Left of 1 is \
             faster than what it is compared with."
        }
    } }
}

/// Words in which groups differ.
const DIMENSIONS: [fn(&Group) -> &str; 3] =
    [|group| &group.variant, |group| &group.link, |group| &group.suite];

/// Medians over what takes most values, a chart for each combination of the rest; nothing where
/// nothing is swept.
pub(super) fn sweeps(run: &Run) -> Markup {
    let values = |of: fn(&Group) -> &str| run.groups.iter().map(of).collect::<BTreeSet<_>>().len();
    // Of as many, the first.
    let counts = DIMENSIONS.map(values);
    let most = counts.iter().copied().max().unwrap_or_default();
    let Some(over) = counts.iter().position(|count| *count == most && most > 1) else {
        return html! {};
    };
    let rest = |group: &Group| -> String {
        let others = DIMENSIONS.iter().enumerate().filter(|(at, _)| *at != over);
        joined(&others.map(|(_, of)| of(group)).collect::<Vec<_>>(), " · ")
    };
    let mut charts: Vec<(String, Vec<&Group>)> = Vec::new();
    for group in &run.groups {
        let name = rest(group);
        match charts.iter_mut().find(|(other, _)| *other == name) {
            Some((_, groups)) => groups.push(group),
            None => charts.push((name, vec![group])),
        }
    }
    charts.retain(|(_, groups)| groups.len() > 1);
    let moment = run.moments()[0];
    html! { figure {
        div.panels.two {
            @for (name, groups) in charts.iter().take(CHARTS) {
                (sweep(name, groups, DIMENSIONS[over], moment, run.title_of(moment)))
            }
        }
        figcaption { "Median time to the " (run.title_of(moment)) ", over what is swept." }
    } }
}

fn sweep(
    name: &str,
    groups: &[&Group],
    of: fn(&Group) -> &str,
    moment: Moment,
    title: &str,
) -> Markup {
    let median = |group: &Group, arm: &str| group.cell(arm)?.times(moment)?.p50;
    let cells = groups.iter().flat_map(|group| &group.cells);
    let arms = each_once(cells.map(|cell| cell.summary.arm.as_str()));
    let times: Vec<f64> =
        groups.iter().flat_map(|group| arms.iter().filter_map(|arm| median(group, arm))).collect();
    let scale = Scale::from_times(times.into_iter());
    let area = Area { left: 60.0, right: WIDTH - RIGHT, top: 26.0, floor: HEIGHT };
    let last = groups.len().max(2) as f64 - 1.0;
    let x = |at: usize| area.left + 14.0 + at as f64 / last * (area.right - area.left - 28.0);
    let lines: Vec<(&str, Vec<(f64, f64)>)> = arms
        .iter()
        .map(|arm: &&str| {
            let points = groups.iter().enumerate();
            let points =
                points.filter_map(|(at, group)| Some((x(at), area.y(scale, median(group, arm)?))));
            (*arm, points.collect())
        })
        .collect();
    let ends: Vec<(f64, f64)> =
        lines.iter().map(|(_, points)| points.last().copied().unwrap_or_default()).collect();
    let labels = plot::apart(ends.iter().map(|(_, y)| *y).collect(), area.top, area.floor);
    let label = format!("Median time to the {title} over what is swept: {name}");
    let content = html! {
        text x="0" y="12" font-weight="600" { (name) }
        g.grid { (area.rows(scale, plot::marks(scale))) (area.axis()) }
        text.axis-title x="0" y="30" { "ms" @if scale.is_log() { " (log)" } }
        @for (at, group) in groups.iter().enumerate() {
            @let (x, y) = (px(x(at)), px(area.floor + 12.0));
            @let turned = format!("rotate(-32 {x} {y})");
            text.axis-title x=(x) y=(y) text-anchor="end" transform=(turned) {
                (plot::shortened(shown(of(group)), LETTERS))
            }
        }
        @for (((arm, points), end), y) in lines.iter().zip(&ends).zip(labels) {
            @if !points.is_empty() { g class=(class(arm)) {
                @let line = plot::path(points.iter().copied());
                path class=(format!("line {}", class(arm))) d=(line) { title { (arm) } }
                @for (x, y) in points { circle cx=(px(*x)) cy=(px(*y)) r="3" {} }
                (plot::name(*end, (area.right + 12.0, y), 3.0, arm))
            } }
        }
    };
    plot::svg(WIDTH, HEIGHT + NAMES, &label, &content)
}

const fn shown(name: &str) -> &str {
    if name.is_empty() { "–" } else { name }
}
