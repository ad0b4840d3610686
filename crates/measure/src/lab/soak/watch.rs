//! Memory, descriptors and threads of processes over time, and whether they grow.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::Part;
use crate::lab::growth::Growth;
use crate::lab::process::status_field;

/// Share of a process's life that is left out: its caches fill.
const WARM_UP: f64 = 0.25;

/// Values of one process at one moment: a line of series.csv.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::lab) struct Point {
    /// Number of the interval, from 1, as the column `round` of samples has it.
    pub(in crate::lab) round: u32,
    pub(in crate::lab) t_s: f64,
    pub(in crate::lab) process: String,
    pub(in crate::lab) rss_kb: f64,
    pub(in crate::lab) descriptors: f64,
    pub(in crate::lab) threads: f64,
}

/// A value of a process.
pub(in crate::lab) type Value = fn(&Point) -> f64;

/// The names of the values, and how to read them.
pub(in crate::lab) const VALUES: [(&str, Value); 3] = [
    ("memory", |point| point.rss_kb),
    ("descriptors", |point| point.descriptors),
    ("threads", |point| point.threads),
];

/// Lives of the processes that are looked at.
#[derive(Debug, Default)]
pub(super) struct Lives(Vec<(Part, Vec<Point>)>);

impl Point {
    /// Looks at a process now; `None` if it is gone.
    pub(super) fn look(part: Part, pid: u32, round: u32, t: Duration) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Self {
            round,
            t_s: t.as_secs_f64(),
            process: part.to_string(),
            rss_kb: status_field(&status, "VmRSS:")? as f64,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64,
            threads: status_field(&status, "Threads:")? as f64,
        })
    }
}

impl Lives {
    /// Begins a new life of a process.
    pub(super) fn begin(&mut self, part: Part) {
        self.0.push((part, Vec::new()));
    }

    pub(super) fn add(&mut self, part: Part, point: Point) {
        if let Some((_, life)) = self.0.iter_mut().rev().find(|(own, _)| *own == part) {
            life.push(point);
        }
    }

    /// Returns the growth of a value of a process in its longest life.
    pub(super) fn growth(&self, part: Part, value: Value) -> Option<Growth> {
        let lives = self.0.iter().filter(|(own, _)| *own == part).map(|(_, life)| life);
        let longest = lives.max_by(|one, other| span(one).total_cmp(&span(other)))?;
        let from = longest.first()?.t_s + WARM_UP * span(longest);
        let points = longest.iter().filter(|point| point.t_s >= from);
        Growth::new(&points.map(|point| (point.t_s, value(point))).collect::<Vec<_>>())
    }
}

fn span(life: &[Point]) -> f64 {
    life.first().zip(life.last()).map_or(0.0, |(first, last)| last.t_s - first.t_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Estimate;

    /// Wanders by 1 around 100, and grows by this in an hour.
    fn life(from: u32, count: u32, growth: f64) -> impl Iterator<Item = Point> {
        (0..count).map(move |number| {
            let wander = [1.0, -1.0, -1.0, 1.0][number as usize % 4];
            let rss_kb = 100.0 + wander + growth * f64::from(number) * 10.0 / 3600.0;
            Point {
                round: from + number,
                t_s: f64::from(from + number) * 10.0,
                process: "edge-1".into(),
                rss_kb,
                descriptors: 9.0,
                threads: 4.0,
            }
        })
    }

    fn grown(lives: &[(u32, u32, f64)]) -> Growth {
        let mut all = Lives::default();
        for (from, count, growth) in lives {
            all.begin(Part::Edge(0));
            life(*from, *count, *growth).for_each(|point| all.add(Part::Edge(0), point));
            all.begin(Part::Agent);
        }
        assert!(all.growth(Part::Edge(1), VALUES[0].1).is_none());
        assert_eq!(all.growth(Part::Edge(0), VALUES[2].1).unwrap().certain(), 0.0);
        all.growth(Part::Edge(0), VALUES[0].1).unwrap()
    }

    #[test]
    fn growth_is_that_of_the_longest_life_after_its_warm_up() {
        let flat = grown(&[(0, 100, 900.0), (100, 360, 0.0), (460, 100, 900.0)]);
        assert_eq!(flat.certain(), 0.0, "{flat:?}");
        let Estimate { ci95: [low, high], .. } = flat.per_hour;
        assert!(low <= 0.0 && (0.0..0.02).contains(&high), "{flat:?}");
        let leak = grown(&[(0, 361, 10.0)]);
        assert!((leak.per_hour.value - 0.095).abs() < 0.01, "{leak:?}");
        assert!((leak.seconds - 2_700.0).abs() < 200.0 && leak.certain() > 0.06, "{leak:?}");
        let less = grown(&[(0, 361, -10.0)]);
        assert!(less.certain() < -0.06, "{less:?}");
    }

    #[test]
    fn a_process_is_looked_at_by_its_files() {
        let own = Point::look(Part::Agent, std::process::id(), 1, Duration::ZERO).unwrap();
        assert!(own.rss_kb > 100.0 && own.descriptors >= 3.0 && own.threads >= 1.0, "{own:?}");
        assert_eq!(Point::look(Part::Agent, u32::MAX, 1, Duration::ZERO), None);
    }
}
