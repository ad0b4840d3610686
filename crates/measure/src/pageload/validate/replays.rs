//! The profile `tcp` against loads of pages over real sockets.

use std::fs;
use std::path::Path;

use headstart_openers::{Arm, Suite};
use headstart_pageload::sim::tcp::Link;
use headstart_pageload::statistics::Accuracy;
use serde::Serialize;

use crate::lab::experiment::{Experiment, LinkSpec, Variant};
use crate::lab::page;
use crate::lab::summary::CellSummary;
use crate::pageload::text::counted;
use crate::simulated::{ReplaySettings, Simulated, network};
use crate::table::table;
use headstart::base::failure::Failure;

/// Bar for held-out pages.
const RANK_MIN: f64 = 0.95;
const ERROR_MAX: f64 = 0.10;

/// Results. The names are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Replays {
    /// True if the pages that were held out meet both bars.
    pub(super) holds: bool,
    rank_min: f64,
    error_max: f64,
    groups: Vec<Group>,
    loads: Vec<Compared>,
    /// Cells without a median, or over links that the simulator does not have.
    left_out: usize,
}

/// Medians that have something in common.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    times: Accuracy,
    /// Mean absolute error of an arm's saving, as a share of the first arm's time, in percentage
    /// points.
    saving_error_points: Option<f64>,
}

/// One cell: the median of its loads, and what the simulator says; in ms.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    page: String,
    held_out: bool,
    link: String,
    arm: String,
    loads: u64,
    measured_ms: f64,
    simulated_ms: f64,
    /// Share of the first arm's time on this page and link that it saves.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<Saved>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Saved {
    measured: f64,
    simulated: f64,
}

impl Replays {
    /// Simulates what a folder has measured.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let (experiment, _) = Experiment::read(&folder.join("experiment.toml"))?;
        let cells = summary(&folder.join("summary.json"))?;
        let mut pages = experiment.variants();
        pages.retain(|variant| variant.work.page().is_some());
        let mut loads = Vec::new();
        for (place, variant) in pages.iter().enumerate() {
            let own = cells.iter().filter(|cell| cell.variant == variant.name);
            // The first half may have influenced the simulator.
            let of_page = OfPage::new(&experiment, variant, place >= pages.len().div_ceil(2))?;
            loads.extend(own.filter_map(|cell| of_page.compare(cell)));
        }
        if loads.is_empty() {
            return Err(Failure::usage(format!(
                "{} has no loads of pages that can be simulated",
                folder.display()
            ))
            .hint("`headstart lab run pages` and `headstart lab run cs244` write such folders"));
        }
        Ok(Self::new(loads, &experiment, cells.len()))
    }

    fn new(mut loads: Vec<Compared>, experiment: &Experiment, cells: usize) -> Self {
        let first = experiment.arms.first().map(|arm| arm.name()).unwrap_or_default();
        add_savings(&mut loads, first);
        let mut groups = vec![
            Group::from_loads("pages held out", loads.iter().filter(|load| load.held_out)),
            Group::from_loads("other pages", loads.iter().filter(|load| !load.held_out)),
        ];
        for link in &experiment.link {
            let own = loads.iter().filter(|load| load.link == link.name);
            groups.push(Group::from_loads(&link.name, own));
        }
        for arm in &experiment.arms {
            groups.push(Group::from_loads(
                arm.name(),
                loads.iter().filter(|load| load.arm == arm.name()),
            ));
        }
        groups.push(Group::from_loads("all", loads.iter()));
        let holds =
            groups.first().is_some_and(|held_out| held_out.as_ref().is_some_and(Group::holds));
        Self {
            holds,
            rank_min: RANK_MIN,
            error_max: ERROR_MAX,
            left_out: cells - loads.len(),
            groups: groups.into_iter().flatten().collect(),
            loads,
        }
    }

    pub(super) fn text(&self) -> String {
        let header = ["medians of", "n", "rank", "error, %", "bias, %", "saving, points"];
        let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
        rows.extend(self.groups.iter().map(Group::row));
        let verdict = match self.holds {
            true => "kept",
            false => "missed",
        };
        let left_out = match self.left_out {
            0 => String::new(),
            some => format!(
                "{} without a median, or over links that the simulator does not have, left out.\n",
                counted(some as u64, "cell is", "cells are")
            ),
        };
        format!(
            "Profile tcp against loads over real sockets: rank correlation (Spearman), mean \
                absolute error and mean\n\
             error of the median load time, and mean absolute error of what an arm saves of the \
             first arm's time\n\n{}\n\
             Held out: rank correlation at least {}, error at most {:.0} %: {verdict}.\n{left_out}",
            table(&rows, &[0]),
            self.rank_min,
            self.error_max * 100.0
        )
    }
}

fn summary(path: &Path) -> Result<Vec<CellSummary>, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("cannot read {name}: {error}"))
            .hint("name a folder that `headstart lab run` has written")
    })
}

/// A page of an experiment, ready to be simulated.
struct OfPage<'e> {
    experiment: &'e Experiment,
    name: String,
    held_out: bool,
    /// Simulations with each suite that its cells may have.
    simulated: Vec<(Suite, Simulated)>,
}

impl<'e> OfPage<'e> {
    fn new(experiment: &'e Experiment, variant: &Variant, held_out: bool) -> Result<Self, Failure> {
        let work = variant.work.page().ok_or_else(|| Failure::usage("a variant without a page"))?;
        let page = page::recorded(&work.file, work.number.into())?;
        let simulated = experiment.suites.iter().filter_map(|suite: &Suite| {
            let way = ReplaySettings {
                connections: work.connections.unwrap_or_default(),
                first_visit: work.fresh,
                suite: *suite,
            };
            Some((*suite, Simulated::new(&page, way)?))
        });
        let simulated = simulated.collect();
        Ok(Self { experiment, name: variant.name.clone(), held_out, simulated })
    }

    fn compare(&self, cell: &CellSummary) -> Option<Compared> {
        let link = self.experiment.link.iter().find(|link| link.name == cell.link)?;
        let arm: Arm = cell.arm.parse().ok()?;
        let of_suite = self.simulated.iter().find(|(suite, _)| suite.name() == cell.suite);
        let measured_ms = cell.last_response_byte?.p50?;
        Some(Compared {
            page: self.name.clone(),
            held_out: self.held_out,
            link: cell.link.clone(),
            arm: cell.arm.clone(),
            loads: cell.n,
            measured_ms,
            simulated_ms: of_suite?.1.full_load_ms(arm, of_link(link)?),
            saved: None,
        })
    }
}

/// Returns the link; `None` for those that the simulator does not have.
fn of_link(link: &LinkSpec) -> Option<Link> {
    if link.server_path.is_some() || link.split_tcp {
        return None;
    }
    match &link.path {
        Some(path) => network(path, link.rtt),
        None => Some(Link { rtt: link.rtt, ..Link::default() }),
    }
}

/// Adds what each saves of the time of the first arm of its page and link.
fn add_savings(loads: &mut [Compared], first: &str) {
    let firsts: Vec<Compared> = loads.iter().filter(|load| load.arm == first).cloned().collect();
    for load in loads.iter_mut().filter(|load| load.arm != first) {
        let own = firsts.iter().find(|other| other.page == load.page && other.link == load.link);
        load.saved = own.map(|own| Saved {
            measured: 1.0 - load.measured_ms / own.measured_ms,
            simulated: 1.0 - load.simulated_ms / own.simulated_ms,
        });
    }
}

impl Group {
    /// Compares loads; `None` without any.
    fn from_loads<'l>(name: &str, loads: impl Iterator<Item = &'l Compared>) -> Option<Self> {
        let loads: Vec<&Compared> = loads.collect();
        let pairs: Vec<_> =
            loads.iter().map(|load| (load.simulated_ms, load.measured_ms)).collect();
        let errors: Vec<f64> = loads
            .iter()
            .filter_map(|load| load.saved)
            .map(|saved| (saved.simulated - saved.measured).abs() * 100.0)
            .collect();
        Some(Self {
            name: name.to_owned(),
            times: Accuracy::from_pairs(&pairs)?,
            saving_error_points: (!errors.is_empty())
                .then(|| errors.iter().sum::<f64>() / errors.len() as f64),
        })
    }

    fn holds(&self) -> bool {
        self.times.rank_correlation.is_some_and(|rank| rank >= RANK_MIN)
            && self.times.mean_absolute_percentage_error <= ERROR_MAX
    }

    fn row(&self) -> Vec<String> {
        let times = &self.times;
        let [rank, points] = [(times.rank_correlation, 3), (self.saving_error_points, 1)]
            .map(|(value, digits)| value.map_or("-".into(), |value| format!("{value:.digits$}")));
        vec![
            self.name.clone(),
            times.n.to_string(),
            rank,
            format!("{:.1}", times.mean_absolute_percentage_error * 100.0),
            format!("{:+.1}", times.bias * 100.0),
            points,
        ]
    }
}
