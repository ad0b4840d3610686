//! A soak over time: the values of processes, and exchanges with their failures, beside events.

use maud::{Markup, html};

use super::folder::Folder;
use crate::chart::plot::{self, Area, px};
use crate::chart::scale::Scale;
use crate::lab::soak::{EXCUSED, Event, Point, VALUES, Value};
use crate::lab::summary::CellSummary;
use crate::table::each_once;

/// Sizes in CSS pixels.
const WIDTH: f64 = 1_100.0;
const RIGHT: f64 = 100.0;
const HEIGHT: f64 = 200.0;

/// Classes of lines, in order.
const CLASSES: [&str; 4] = ["turbo", "quic", "fop", "agent"];

/// Intervals that exchanges are counted in, at most: a line of seconds would be a band.
const BINS: u32 = 240;

/// A soak, as the report shows it.
#[derive(Debug)]
pub(super) struct Soak {
    series: Vec<Point>,
    events: Vec<Event>,
    /// Exchanges that came through in each second, those that failed with an excuse, and others.
    rates: [Line; 3],
    /// Cells of processes.
    processes: Vec<CellSummary>,
}

/// Points in minutes.
type Line = Vec<(f64, f64)>;

impl Soak {
    /// Takes the cells of processes out of a folder, if it is of a soak.
    pub(super) fn take(folder: &mut Folder) -> Option<Self> {
        let (series, events) = folder.soak.take()?;
        let rates = rates(folder, &series);
        let (processes, cells) =
            std::mem::take(&mut folder.cells).into_iter().partition(|cell| cell.growth.is_some());
        folder.cells = cells;
        Some(Self { series, events, rates, processes })
    }
}

/// Counts trials by the interval in which they began.
fn rates(folder: &Folder, series: &[Point]) -> [Line; 3] {
    let last = series.last().map_or((1, 1.0), |point| (point.round, point.t_s.max(1.0)));
    let every = last.1 / f64::from(last.0);
    let rounds = last.0.div_ceil(BINS).max(1);
    let bins = last.0.div_ceil(rounds) as usize;
    let mut counts = [(); 3].map(|()| vec![0.0; bins]);
    for trial in &folder.trials {
        let line = match trial.ok {
            true => 0,
            false if trial.reason.starts_with(EXCUSED) => 1,
            false => 2,
        };
        let bin = (trial.round.saturating_sub(1) / rounds) as usize;
        if let Some(count) = counts[line].get_mut(bin) {
            *count += 1.0;
        }
    }
    let width = every * f64::from(rounds);
    counts.map(|line| {
        let points = line.into_iter().enumerate();
        points.map(|(bin, count)| ((bin as f64 + 0.5) * width / 60.0, count / width)).collect()
    })
}

pub(super) fn section(soak: Option<&Soak>) -> Markup {
    let Some(soak) = soak else { return html! {} };
    let names = ["done", "excused", "not excused"];
    let rates = names.into_iter().zip(soak.rates.iter().cloned()).collect();
    let titles = ["resident memory, MB", "open descriptors", "threads"];
    html! {
        h2 { "Over time" }
        p.reading {
            "Vertical lines are events; the pointer shows which. " (soak.events.len())
            " of them, each in events.csv. Growth is a slope by least squares, in percent of the \
             mean in an hour, with its 95 % interval, in the longest life of the process without \
             its first quarter."
        }
        figure {
            (chart("exchanges a second", rates, &soak.events))
            figcaption {
                "By when they began. Excused are failures of exchanges that ran while a process \
                 they may have used was killed and not back."
            }
        }
        @for ((name, value), title) in VALUES.into_iter().zip(titles) {
            figure {
                (chart(title, lines(soak, name, value), &soak.events))
                figcaption { (title) ", by process." }
            }
        }
        (growth(&soak.processes))
    }
}

/// A line for each process.
fn lines<'s>(soak: &'s Soak, name: &str, value: Value) -> Vec<(&'s str, Line)> {
    let unit = if name == "memory" { 1e3 } else { 1.0 };
    let processes = each_once(soak.series.iter().map(|point| point.process.as_str()));
    processes
        .into_iter()
        .map(|process: &str| {
            let own = soak.series.iter().filter(|point| point.process == process);
            (process, own.map(|point| (point.t_s / 60.0, value(point) / unit)).collect())
        })
        .collect()
}

fn chart(title: &str, lines: Vec<(&str, Line)>, events: &[Event]) -> Markup {
    let points: Vec<_> = lines.iter().flat_map(|(_, line)| line).copied().collect();
    let across = Scale::linear(points.iter().map(|(x, _)| *x).fold(0.1, f64::max));
    let up = Scale::linear(points.iter().map(|(_, y)| *y).fold(1.0, f64::max));
    let area = Area { left: 60.0, right: WIDTH - RIGHT, top: 26.0, floor: HEIGHT };
    let ends = lines.iter().map(|(_, line)| line.last().map_or(0.0, |(_, y)| *y));
    let ends: Vec<f64> = ends.map(|y| area.y(up, y)).collect();
    let labels = plot::apart(ends.clone(), area.top, area.floor);
    let content = html! {
        text x="0" y="12" font-weight="600" { (title) }
        g.grid { (area.rows(up, plot::marks(up))) (area.columns(across, plot::marks(across))) }
        (area.title("min"))
        @for event in events {
            @let x = px(area.x(across, event.from_s / 60.0));
            line.event x1=(x) x2=(x) y1=(area.top) y2=(area.floor) { title { (event.event) } }
        }
        @let places = ends.iter().zip(labels).zip(CLASSES.iter().cycle());
        @for ((name, line), ((end, label), class)) in lines.iter().zip(places) {
            @let points = line.iter().map(|(x, y)| (area.x(across, *x), area.y(up, *y)));
            g class=(class) {
                path class=(format!("line {class}")) d=(plot::path(points)) {}
                (plot::name((area.right, *end), (area.right + 12.0, label), 3.0, name))
            }
        }
    };
    plot::svg(WIDTH, HEIGHT + 40.0, title, &content)
}

fn growth(processes: &[CellSummary]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "process" } th { "value" } th.n { "mean" } th.n { "% in an hour" }
                th.n { "interval" } th.n { "over, min" }
            } }
            tbody { @for cell in processes { @if let Some(growth) = &cell.growth {
                @let [value, low, high] = growth.percent_per_hour();
                tr {
                    td { (cell.arm) }
                    td { (cell.variant) @if cell.variant == "memory" { ", kB" } }
                    td.n { (format!("{:.1}", growth.mean)) }
                    td.n { (format!("{value:+.2}")) }
                    td.n { (format!("{low:+.2} .. {high:+.2}")) }
                    td.n { (format!("{:.1}", growth.seconds / 60.0)) }
                }
            } } }
        } }
    }
}
