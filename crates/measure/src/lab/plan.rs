//! Work of a run, its order and approximate time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headstart_emulation::Scheduling;
use headstart_openers::{Arm, Suite};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use super::experiment::{
    Balance, CELLS_MAX, Experiment, LinkSpec, OriginKind, PageWork, Variant, Work,
};
use super::listening::NO_EARLY_DATA;
use super::page::StagePage;
use super::privacy::Boundary;
use super::workload::{self, Visit};
use headstart::base::failure::Failure;

mod hosts;

/// The whole run: one stage after the other.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) experiment: Experiment,
    pub(crate) extent: RunSize,
    pub(crate) seed: u64,
    pub(crate) stages: Vec<Stage>,
}

/// Part of an experiment that is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RunSize {
    /// Few trials of some links and variants: `--quick`.
    Quick,
    #[default]
    Usual,
    /// As many trials as the published figures have, where the experiment says so: `--full`.
    Full,
}

impl RunSize {
    pub(crate) const fn is_quick(self) -> bool {
        matches!(self, Self::Quick)
    }
}

/// One link with one variant: a lab of its own.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) number: usize,
    pub(crate) link: LinkSpec,
    pub(crate) variant: Variant,
    pub(crate) cells: Vec<CellSpec>,
    pub(crate) mode: Mode,
    /// Turns of each cell, at least.
    pub(crate) rounds: u32,
    /// Under load, connections after which a cell needs no more turns than those.
    pub(crate) connections: u64,
    pub(crate) warmup: u32,
    /// Bytes of a response.
    pub(crate) response: u64,
    pub(crate) timeout: Duration,
    pub(crate) late: Duration,
    /// The page that is loaded, once it is [read](Plan::read_pages).
    pub(crate) page: Option<Arc<StagePage>>,
}

/// Arms that are compared within a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellSpec {
    pub(crate) arm: Arm,
    pub(crate) suite: Suite,
}

/// Work of a cell in its turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// One connection.
    One,
    /// Forgets everything, then makes this many connections one after the other.
    Group(u32),
    /// This many connections at a time, for this long.
    InFlight(u32, Duration),
    /// This many connections a second, for this long.
    Rate(f64, Duration),
    /// Forgets everything, then visits one host this many times, each at another address.
    Revisits(u32),
    /// Forgets everything, then visits in front of a boundary and behind it, seen in a capture.
    Case(Boundary),
    /// One load of a whole page.
    Page,
    /// One connection of a program of others, to one of some virtual hosts.
    Workload,
    /// One connection beside a download.
    Beside,
}

impl Plan {
    /// The plan of an experiment.
    pub(crate) fn new(
        experiment: Experiment,
        extent: RunSize,
        seed: Option<u64>,
    ) -> Result<Self, Failure> {
        if extent == RunSize::Full && experiment.full_trials.is_none() {
            return Err(Failure::usage(format!("{} has no longer form", experiment.name))
                .hint("leave out --full; an experiment has one if it says full_trials"));
        }
        let quick = extent.is_quick();
        let seed = seed.unwrap_or(experiment.seed);
        let mut stages = Vec::new();
        for link in experiment.link.iter().filter(|link| !quick || link.quick) {
            for variant in experiment.variants() {
                let left_out = quick && !variant.quick;
                if !left_out && variant.on(link) {
                    let stage = Stage::new(&experiment, link, variant, extent, stages.len());
                    stages.extend((!stage.cells.is_empty()).then_some(stage));
                }
            }
        }
        if stages.is_empty() {
            return Err(Failure::usage(format!("{} has nothing to run", experiment.name))
                .hint("its arms, suites, links and variants leave no combination"));
        }
        match stages.iter().find(|stage| stage.cells.len() > CELLS_MAX) {
            Some(stage) => Err(Failure::usage(format!(
                "{}: {} arms x suites on one link are more than {CELLS_MAX}",
                stage.link.name,
                stage.cells.len()
            ))),
            None => Ok(Self { experiment, extent, seed, stages }),
        }
    }

    /// Reads the pages that are loaded, each once.
    pub(crate) fn read_pages(&mut self) -> Result<(), Failure> {
        let mut read: Vec<(PageWork, Arc<StagePage>)> = Vec::new();
        for stage in &mut self.stages {
            let Some(work) = stage.variant.work.page() else { continue };
            // The page is the same whether or not everything is forgotten before each load.
            let work = PageWork { fresh: false, ..work.clone() };
            let page = match read.iter().find(|(other, _)| *other == work) {
                Some((_, page)) => Arc::clone(page),
                None => {
                    let PageWork { file, number, connections, addresses, .. } = &work;
                    let connections = connections.unwrap_or_default();
                    let (number, addresses) = ((*number).into(), (*addresses).into());
                    Arc::new(StagePage::read(file, number, connections, addresses)?)
                }
            };
            read.push((work, Arc::clone(&page)));
            stage.page = Some(page);
        }
        Ok(())
    }

    /// Leaves out the cells of Fast Open Privacy, whose programs take root, if other arms are in
    /// each stage and no bar is about the former. Returns the arms that are left out.
    pub(crate) fn leave_out_programs(&mut self) -> BTreeSet<&'static str> {
        let arms = self.stages.iter().flat_map(|stage| &stage.cells).map(|cell| cell.arm);
        let names = arms.filter(|arm| arm.has_private_cookies()).map(Arm::name);
        let mut left_out: BTreeSet<&str> = names.collect();
        for name in self.experiment.bar.iter().flat_map(|bar| bar.against.iter().chain([&bar.arm]))
        {
            left_out.remove(name.as_str());
        }
        let mut stages = self.stages.clone();
        for stage in &mut stages {
            stage.cells.retain(|cell| !left_out.contains(cell.arm.name()));
        }
        if stages.iter().any(|stage| stage.cells.is_empty()) {
            return BTreeSet::new();
        }
        self.stages = stages;
        left_out
    }

    /// About how long it takes.
    pub(crate) fn estimate(&self) -> Duration {
        self.stages.iter().map(Stage::estimate).sum()
    }

    pub(crate) fn cells(&self) -> usize {
        self.stages.iter().map(|stage| stage.cells.len()).sum()
    }

    /// Turns of cells in all stages.
    pub(crate) fn turns(&self) -> u64 {
        self.stages.iter().map(Stage::turns).sum()
    }
}

/// Setting up a lab: namespaces, identities, the first answers of the programs (measured: 1 to 2
/// s).
const SET_UP: Duration = Duration::from_millis(1500);

/// Starting and ending one program of a cell.
const PROGRAM: Duration = Duration::from_millis(60);

/// Programs of a cell: client and server, and sometimes agent and edge.
const PROGRAMS: u32 = 3;

/// Round trips of a whole connection: up to three to the first response byte, some slow start, the
/// end.
const ROUND_TRIPS: u32 = 4;

/// Round trips of a page, about: the pages of CS244 took 33 to 35.
const PAGE_ROUND_TRIPS: u32 = 35;

/// Time that a page takes of processors, and until its connections are closed.
const PAGE_OVERHEAD: Duration = Duration::from_millis(150);

/// Time that a connection takes of processors, and the runner between two.
const OVERHEAD: Duration = Duration::from_millis(8);

/// Factor by which a cell may be loaded longer than its slices, until it has made its connections.
const MORE_SLICES: u32 = 3;

/// Visits of a case on each side of its boundary: one that is given something, and one that shows
/// it.
pub(crate) const VISITS_A_SIDE: u32 = 2;
const VISITS: u32 = 2 * VISITS_A_SIDE;

/// Between two visits of a case, so that a capture shows which of them a connection belongs to.
pub(crate) const VISIT_PAUSE: Duration = Duration::from_millis(20);

/// Time after which a cookie has surely expired: it counts in whole seconds.
const EXPIRED: Duration = Duration::from_secs(2);

/// Time that a load is waited for beyond its end, in round trips: its last connections.
const LOAD_TAIL: u32 = 4;

impl Stage {
    fn new(
        experiment: &Experiment,
        link: &LinkSpec,
        variant: Variant,
        extent: RunSize,
        number: usize,
    ) -> Self {
        let quick = extent.is_quick();
        let trials = link.trials.unwrap_or(experiment.trials);
        let trials = match extent {
            RunSize::Quick => experiment.quick_trials.min(trials),
            RunSize::Usual => trials,
            RunSize::Full => experiment.full_trials.unwrap_or(trials).max(trials),
        };
        let slice = link.slice.unwrap_or(experiment.slice);
        let slice = if quick { experiment.quick_slice } else { slice };
        let slices = if quick { 1 } else { link.slices.unwrap_or(experiment.slices) };
        let mode = Mode::new(experiment, &variant, slice);
        Self {
            number,
            link: link.clone(),
            cells: cells(experiment, &variant),
            mode,
            rounds: if mode.is_load() { slices } else { trials },
            connections: u64::from(trials),
            warmup: experiment.warmup,
            response: variant.response.or(link.response).unwrap_or(experiment.response),
            timeout: experiment.timeout,
            late: experiment.late(link.rtt),
            page: None,
            variant,
        }
    }

    /// Name for people, and for file names after [`file_name`](Self::file_name).
    pub(crate) fn name(&self) -> String {
        match self.variant.name.as_str() {
            "" => self.link.name.clone(),
            variant => format!("{}, {variant}", self.link.name),
        }
    }

    /// A file name that no other stage of the run has.
    pub(crate) fn file_name(&self) -> String {
        format!(
            "{:02}-{}",
            self.number + 1,
            self.name()
                .chars()
                .map(|c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
                .collect::<String>()
        )
    }

    pub(crate) fn turns(&self) -> u64 {
        u64::from(self.rounds) * self.cells.len() as u64
    }

    /// The order in which the cells have their turns, round by round: shuffled, the same for a
    /// seed.
    ///
    /// Interleaved, so that whatever disturbs the machine for a while disturbs all arms.
    pub(crate) fn order(&self, seed: u64) -> impl Iterator<Item = Vec<usize>> + use<> {
        let stage = self.number as u64;
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32) ^ stage);
        let mut cells: Vec<_> = (0..self.cells.len()).collect();
        let rounds = self.rounds * if self.mode.is_load() { MORE_SLICES } else { 1 };
        (0..rounds).map(move |_| {
            cells.shuffle(&mut draws);
            cells.clone()
        })
    }

    /// Scheduling of its programs: before all others where they are idle most of the time. A load
    /// would leave nothing of the processor to what is not loaded.
    pub(crate) fn scheduling(&self, program: usize) -> Option<Scheduling> {
        (!self.mode.is_load()).then(|| Scheduling::exact(program))
    }

    /// Returns true if a cell that had `turns`, and made `connections` under load, needs no more.
    pub(crate) fn is_enough(&self, turns: u32, connections: u64) -> bool {
        turns >= self.rounds && (!self.mode.is_load() || connections >= self.connections)
    }

    fn estimate(&self) -> Duration {
        let cells = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let nodes = u32::from(self.variant.servers.unwrap_or(1).max(self.clients()));
        let set_up = SET_UP + PROGRAM * PROGRAMS * cells * nodes;
        let one = self.link.rtt * ROUND_TRIPS + OVERHEAD + self.link.extra;
        let page = self.link.rtt * PAGE_ROUND_TRIPS + PAGE_OVERHEAD + self.link.extra;
        let connections = if self.link.before.is_some() { 2 } else { 1 };
        let turn = match self.mode {
            Mode::One => one * connections,
            Mode::Beside => one * connections + self.beside_download(),
            Mode::Page => page,
            // Afterwards, the last packets are awaited.
            Mode::Workload => one + PROGRAM + self.link.rtt,
            Mode::Group(connections) | Mode::Revisits(connections) => one * connections,
            Mode::Case(boundary) => {
                (one + VISIT_PAUSE) * VISITS + PROGRAM + self.case_pause(boundary)
            }
            Mode::InFlight(_, slice) | Mode::Rate(_, slice) => {
                slice + self.link.rtt * LOAD_TAIL + self.link.extra
            }
        };
        // Under load, the time beside the round trips is the wait for the last connection.
        let warm = match self.mode {
            Mode::Page => page,
            mode if mode.is_load() => one - self.link.extra,
            _ => one,
        };
        let early = |cell: &&CellSpec| cell.arm.is_of_programs() && cell.arm.sends_early_data();
        let early = u32::try_from(self.cells.iter().filter(early).count()).unwrap_or(u32::MAX);
        set_up + NO_EARLY_DATA * early + (warm * self.warmup + turn * self.rounds) * cells
    }

    pub(crate) fn clients(&self) -> u8 {
        self.variant.clients.unwrap_or(1)
    }

    /// Addresses of each server, for each cell.
    pub(crate) fn addresses(&self) -> usize {
        let hosts = self.variant.work.visits().map_or(1, |visits| visits.hosts.len());
        self.page.as_ref().map_or(hosts, |page| page.addresses())
    }

    /// The addresses that the visits of a round go to.
    pub(crate) fn visits(&self, seed: u64, round: u32) -> Vec<usize> {
        let visits = self.variant.work.visits();
        visits.map_or(Vec::new(), |visits| hosts::visits(&visits.hosts, visits.each, seed, round))
    }

    /// The connections of its programs, one for each round.
    pub(crate) fn workload(&self, seed: u64) -> Vec<Visit> {
        let count = usize::try_from(self.rounds).unwrap_or(0);
        let programs = self.variant.work.programs();
        programs.map_or(Vec::new(), |programs| {
            workload::sequence(&programs.shares, &programs.hosts, count, seed)
        })
    }

    /// Virtual hosts of each cell.
    pub(crate) fn hosts(&self) -> usize {
        self.variant.work.programs().map_or(0, |programs| programs.hosts.len())
    }

    /// The name of a virtual host: each cell has others, as each is at another address.
    pub(crate) fn host_name(&self, cell: usize, host: usize) -> String {
        format!("v{}.c{}.s{}.lab.test", host + 1, cell + 1, self.number + 1)
    }

    /// Returns how long a download goes on beside a connection, and before it.
    fn beside_download(&self) -> Duration {
        self.variant.work.beside().map_or(Duration::ZERO, |beside| beside.ahead + beside.last())
    }

    /// Returns the pause between the visits in front of a boundary and those behind it, beside the
    /// pause between any two.
    pub(crate) fn case_pause(&self, boundary: Boundary) -> Duration {
        let life = self.variant.cookie_life.filter(|_| boundary == Boundary::Period);
        life.map_or(Duration::ZERO, |life| life + EXPIRED)
    }

    /// Returns true if its clients have a second address.
    pub(crate) fn changes_address(&self) -> bool {
        matches!(self.mode, Mode::Case(Boundary::AddressChange | Boundary::Devices))
    }

    pub(crate) fn servers(&self) -> u8 {
        self.variant.servers.unwrap_or(1)
    }

    /// Returns true if TCP reaches its servers through HAProxy.
    pub(crate) fn has_haproxy(&self) -> bool {
        self.variant.balance == Some(Balance::Haproxy)
    }
}

impl Mode {
    fn new(experiment: &Experiment, variant: &Variant, slice: Duration) -> Self {
        match &variant.work {
            // Beside loaded variants, work.in_flight = 1 asks for one at a time.
            Work::InFlight(1) => Self::One,
            Work::InFlight(count) => Self::InFlight(*count, slice),
            Work::Connections => match experiment.in_flight {
                Some(1) | None => Self::One,
                Some(count) => Self::InFlight(count, slice),
            },
            Work::Rate(rate) => Self::Rate(*rate, slice),
            Work::FirstAndLater(connections) => Self::Group(*connections),
            Work::Visits(visits) => Self::Revisits(visits.each),
            Work::Privacy(boundary) => Self::Case(*boundary),
            Work::Page(_) => Self::Page,
            Work::Programs(_) => Self::Workload,
            Work::Beside(_) => Self::Beside,
        }
    }

    pub(crate) const fn is_load(self) -> bool {
        matches!(self, Self::InFlight(..) | Self::Rate(..))
    }
}

/// Each arm with each suite that it can have.
fn cells(experiment: &Experiment, variant: &Variant) -> Vec<CellSpec> {
    let arms = variant.arms.as_ref().unwrap_or(&experiment.arms);
    let suites = variant.suites.as_ref().unwrap_or(&experiment.suites);
    let all = suites.iter().flat_map(|suite| arms.iter().map(move |arm| (*arm, *suite)));
    all.filter(|(arm, suite)| arm.supports(*suite) && variant.origin.serves(*arm))
        .map(|(arm, suite)| CellSpec { arm, suite })
        .collect()
}

impl OriginKind {
    /// Returns true if a server of this kind can stand at the end of `arm`: others speak plain TLS
    /// only.
    fn serves(self, arm: Arm) -> bool {
        let is_plain =
            matches!(arm, Arm::TLS13 | Arm::TLS13_AGENT | Arm::TLS13_HAPROXY | Arm::TURBO_AGENT);
        self == Self::Builtin || is_plain
    }
}

#[cfg(test)]
mod tests;
