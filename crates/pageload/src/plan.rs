//! Estimates what each technique saves on a page, what the page waits for, and which hosts would
//! benefit most from an edge.

mod hosts;
mod overall;
mod own;
mod waits;

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::page::{Confidence, Page};
use crate::sim::profile::{Expected, Model, Profile};
use crate::sim::tcp::{Technique, Techniques};
use crate::tree::{Breakdown, CriticalPath, Shape, Tree};

pub use self::hosts::{Host, Hosts, Next};
pub use self::overall::{Correlated, Correlations, Gain, HostTotal, Overall, SizeClass};
pub use self::own::{Own, OwnHost};
use self::waits::as_recorded;
pub use self::waits::{Cost, Without};

/// Round-trip times of a sweep, in ms: a city, a country, a continent, an ocean, a satellite; and
/// Tor's, from the paper.
const RTTS_MS: [u64; 8] = [5, 10, 20, 50, 100, 200, 400, 800];

/// Bandwidths of a sweep, in Mbit/s: from a mobile network far from its mast to fibre.
const RATES_MBIT: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The line of a sweep with edges that take early data at the operator's hosts, and no others.
const OWN_EDGES: &str = "your edges";

/// Questions about each page.
#[derive(Clone, Debug, PartialEq)]
pub struct Questions {
    /// Rules and link.
    pub model: Model,
    /// Techniques in the order in which they are added.
    pub order: Vec<Technique>,
    /// Hosts that may get an edge.
    pub own: Own,
    /// Round-trip times of the sweep; empty for none.
    pub rtts: Vec<Duration>,
    /// Bandwidths of the sweep, in bytes a second; empty for none.
    pub rates: Vec<u64>,
}

/// Answers about one page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PagePlan {
    /// Figures of the page.
    pub shape: Shape,
    /// Recorded time until 95 % of the resources were loaded, in ms.
    pub recorded_ms: Option<f64>,
    /// Expected times without any technique.
    pub none: Expected,
    /// Each technique that the profile knows, alone.
    pub alone: Vec<Saving>,
    /// Each technique of the order with all before it; the last has all.
    pub cumulative: Vec<Saving>,
    /// Load times over round-trip times in ms.
    pub by_rtt: Sweep,
    /// Load times over bandwidths in Mbit/s.
    pub by_rate: Sweep,
    /// Breakdown of the recorded time until 95 %.
    pub recorded_path_ms: Option<Breakdown>,
    /// Breakdown of the simulated time without any technique; here the queue includes opening
    /// connections.
    pub simulated_path_ms: Option<Breakdown>,
    /// Load times if something took no time.
    pub without: Vec<Without>,
    /// Savings of edges for the operator's hosts.
    pub hosts: Hosts,
    /// Sources of the parents.
    pub parents: Sources,
}

/// Number of parents, and of those that the recording does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// Number of resources with a parent.
    pub count: usize,
    /// Number of parents that were inferred from times ([`Confidence`]).
    pub guessed: usize,
}

impl Sources {
    fn from_page(page: &Page) -> Self {
        let children = page.resources().iter().filter(|resource| resource.parent().is_some());
        let guessed = children.clone().filter(|one| one.confidence != Confidence::Recorded);
        Self { count: children.count(), guessed: guessed.count() }
    }

    /// Returns true if the tree is a guess: more than a tenth of the parents are inferred from
    /// times. That rule is right in 57 % (docs/recordings.md), and another tree has other hosts on
    /// its critical path.
    pub fn are_a_guess(&self) -> bool {
        self.guessed * 10 > self.count
    }
}

/// Shares by which times are lower; below zero if they are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Time until 95 % of the resources are loaded.
    pub page_load: f64,
    /// Time of the largest contentful paint, where recorded.
    pub largest_paint: Option<f64>,
    /// Time of the load event, where recorded.
    pub on_load: Option<f64>,
}

impl Shares {
    fn between(before: &Expected, after: &Expected) -> Self {
        let both = |before: Option<f64>, after: Option<f64>| Some(saved(before?, after?));
        Self {
            page_load: saved(before.page_load_ms, after.page_load_ms),
            largest_paint: both(before.largest_paint_ms, after.largest_paint_ms),
            on_load: both(before.on_load_ms, after.on_load_ms),
        }
    }
}

/// A saving.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The technique that saves.
    #[serde(serialize_with = "by_name")]
    pub technique: Technique,
    /// Expected times with it.
    #[serde(flatten)]
    pub expected: Expected,
    /// Share by which the page load time is lower; below zero if it is higher.
    pub saved: f64,
    /// The same if only the operator's hosts take part.
    pub own: Shares,
}

fn by_name<S: Serializer>(technique: &Technique, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(technique)
}

/// Page load times over a range of values.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sweep {
    /// Names of the lines.
    pub arms: Vec<String>,
    /// Points, in order.
    pub points: Vec<Point>,
}

/// A point of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Value at this point.
    pub at: f64,
    /// Page load time of each line.
    pub page_load_ms: Vec<f64>,
    /// Shares by which they are lower than that of the first line, which has no technique.
    pub saved: Vec<f64>,
}

impl Point {
    fn new(at: f64, page_load_ms: Vec<f64>) -> Self {
        let none = page_load_ms.first().copied().unwrap_or_default();
        let saved = page_load_ms.iter().map(|ms| saved(none, *ms)).collect();
        Self { at, page_load_ms, saved }
    }
}

impl Questions {
    /// Returns all questions, in the profile's order.
    pub fn all(model: Model) -> Self {
        let order = model.profile.in_order().to_vec();
        let rtts = RTTS_MS.map(Duration::from_millis).to_vec();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few millions
        let rates = RATES_MBIT.map(|rate| (rate * 125_000.0) as u64).to_vec();
        Self { model, order, own: Own::default(), rtts, rates }
    }

    /// Returns all techniques of the order together.
    pub fn together(&self) -> Techniques {
        Techniques::from_list(&self.order)
    }

    /// Answers the questions for one page.
    pub fn ask(&self, page: &Page) -> PagePlan {
        let none = self.model.expected(page, Techniques::default());
        let profile = &self.model.profile;
        let own = self.own.on(page);
        let own: Vec<bool> = page
            .servers()
            .iter()
            .map(|server| own.iter().any(|own| own.takes(&server.host)))
            .collect();
        let is_own = |server: usize| own.get(server).copied().unwrap_or_default();
        let saving = |technique: Technique, list: &[Technique]| {
            let techniques = Techniques::from_list(list);
            let expected = self.model.expected(page, techniques);
            let of_own = self.model.expected_with(page, techniques, &is_own);
            let saved = saved(none.page_load_ms, expected.page_load_ms);
            Saving { technique, expected, saved, own: Shares::between(&none, &of_own) }
        };
        let alone = profile.techniques().map(|technique| saving(technique, &[technique]));
        let cumulative =
            self.order.iter().zip(1..).map(|(&last, count)| saving(last, &self.order[..count]));
        let parents = Sources::from_page(page);
        let by_rtt = self.rtts.iter().map(|&rtt| (millis(rtt), profile.with_rtt(rtt)));
        let by_rate = self.rates.iter().map(|&rate| (megabits(rate), profile.with_rate(rate)));
        let path = CriticalPath::of_page_load_time(page);
        PagePlan {
            shape: Tree::from_page(page).shape(page),
            recorded_ms: page.recorded().page_load_time.map(millis),
            none,
            alone: alone.collect(),
            cumulative: cumulative.collect(),
            by_rtt: self.sweep(page, &is_own, by_rtt),
            by_rate: self.sweep(page, &is_own, by_rate),
            recorded_path_ms: path.map(|path| path.breakdown),
            simulated_path_ms: self.simulated_path(page),
            without: waits::without(&self.model, page, none),
            hosts: Hosts::from_page(&self.model, page, none, &is_own, parents.are_a_guess()),
            parents,
        }
    }

    fn sweep(
        &self,
        page: &Page,
        is_own: &dyn Fn(usize) -> bool,
        at: impl Iterator<Item = (f64, Profile)>,
    ) -> Sweep {
        let mut arms = self.arms();
        if let Profile::Tcp(_) = &self.model.profile {
            arms.insert(1, (OWN_EDGES.to_owned(), hosts::edges()));
        }
        let points = at
            .map(|(at, profile)| {
                let model = Model { profile, ..self.model.clone() };
                let times = arms.iter().map(|(name, techniques): &(String, Techniques)| {
                    let expected = match name.as_str() {
                        OWN_EDGES => model.expected_with(page, *techniques, is_own),
                        _ => model.expected(page, *techniques),
                    };
                    expected.page_load_ms
                });
                Point::new(at, times.collect())
            })
            .collect();
        Sweep { arms: arms.into_iter().map(|(name, _)| name).collect(), points }
    }

    /// Returns the lines of a sweep in which all servers take part: nothing, what an edge does
    /// without and with state, what databases do, and everything.
    fn arms(&self) -> Vec<(String, Techniques)> {
        let (none, databases) = (Techniques::default(), databases_of(&self.order));
        let openings: &[&[Technique]] = match &self.model.profile {
            Profile::Tcp(_) => {
                &[&[Technique::TurboTls], &[Technique::TurboTls, Technique::ZeroRtt]]
            }
            Profile::Blast(_) => &[&[Technique::OptimisticData], &[Technique::ZeroRtt]],
        };
        let openings = openings.iter().map(|list| Techniques::from_list(list));
        let mut arms: Vec<(String, Techniques)> =
            [none].into_iter().chain(openings).map(|arm| (arm.to_string(), arm)).collect();
        if databases != none {
            arms.push(("databases".into(), databases));
        }
        arms.push(("all".into(), self.together()));
        arms
    }

    fn simulated_path(&self, page: &Page) -> Option<Breakdown> {
        let mut first = None;
        let once = Model { draws: 1, ..self.model.clone() };
        once.loads(page, Techniques::default(), |_, load| first = Some(load));
        let page = as_recorded(page, &first?)?;
        CriticalPath::of_page_load_time(&page).map(|path| path.breakdown)
    }
}

fn databases_of(order: &[Technique]) -> Techniques {
    Techniques::from_list(
        &order
            .iter()
            .copied()
            .filter(|technique: &Technique| {
                Techniques::from_list(&[*technique]).without_databases() == Techniques::default()
            })
            .collect::<Vec<_>>(),
    )
}

/// Returns the share by which `after` is lower than `before`; zero if `before` is zero.
fn saved(before: f64, after: f64) -> f64 {
    if before > 0.0 { 1.0 - after / before } else { 0.0 }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn megabits(rate: u64) -> f64 {
    rate as f64 * 8.0 / 1e6
}

impl PagePlan {
    /// Returns the times with all techniques of the order, or without any if that is empty.
    pub fn all(&self) -> Expected {
        self.cumulative.last().map_or(self.none, |saving| saving.expected)
    }

    /// Returns the share of the page load time that all techniques save.
    pub fn saved(&self) -> f64 {
        saved(self.none.page_load_ms, self.all().page_load_ms)
    }
}

#[cfg(test)]
mod tests;
