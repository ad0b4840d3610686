//! What a run does, in which order, and about how long it takes.

use std::time::Duration;

use headstart_lab::Scheduling;
use headstart_peers::{Arm, Suite};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use super::experiment::{CELLS_MAX, Experiment, LinkSpec, OriginKind, Variant};
use crate::failure::Failure;

/// The whole run: one stage after the other.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) experiment: Experiment,
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    pub(crate) stages: Vec<Stage>,
}

/// One link with one variant: a lab of its own.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) number: usize,
    pub(crate) link: LinkSpec,
    pub(crate) variant: Variant,
    pub(crate) cells: Vec<CellSpec>,
    pub(crate) mode: Mode,
    /// How often each cell has its turn, at least.
    pub(crate) rounds: u32,
    /// Under load, connections after which a cell needs no more turns than those.
    pub(crate) connections: u64,
    pub(crate) warmup: u32,
    /// Bytes of a response.
    pub(crate) response: u64,
    pub(crate) timeout: Duration,
    pub(crate) late: Duration,
}

/// What is compared within a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellSpec {
    pub(crate) arm: Arm,
    pub(crate) suite: Suite,
}

/// What a cell does in its turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// One connection.
    One,
    /// Forgets everything, then so many connections one after the other.
    Group(u32),
    /// Connections at a time, for so long.
    InFlight(u32, Duration),
    /// Connections a second, for so long.
    Rate(f64, Duration),
}

impl Plan {
    /// The plan of an experiment.
    ///
    /// # Errors
    /// Nothing is left to do, or a link has too many cells.
    pub(crate) fn new(
        experiment: Experiment,
        quick: bool,
        seed: Option<u64>,
    ) -> Result<Self, Failure> {
        let seed = seed.unwrap_or(experiment.seed);
        let mut stages = Vec::new();
        for link in experiment.link.iter().filter(|link| !quick || link.quick) {
            for variant in experiment.variants() {
                let left_out = quick && !variant.quick;
                if !left_out && variant.on(link) {
                    let stage = Stage::new(&experiment, link, variant, quick, stages.len());
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
            None => Ok(Self { experiment, quick, seed, stages }),
        }
    }

    /// About how long it takes.
    pub(crate) fn estimate(&self) -> Duration {
        self.stages.iter().map(Stage::estimate).sum()
    }

    /// Cells of all stages.
    pub(crate) fn cells(&self) -> usize {
        self.stages.iter().map(|stage| stage.cells.len()).sum()
    }

    /// Turns of cells in all stages.
    pub(crate) fn turns(&self) -> u64 {
        self.stages.iter().map(Stage::turns).sum()
    }
}

/// Setting up a lab: namespaces, identities, the first answers of the programs (measured: 1 to 2 s).
const SET_UP: Duration = Duration::from_millis(1500);

/// Starting and ending one program of a cell.
const PROGRAM: Duration = Duration::from_millis(60);

/// Programs of a cell: client and server, and sometimes agent and edge.
const PROGRAMS: u32 = 3;

/// Round trips of a whole connection: up to three to the first response byte, some slow start, the end.
const ROUND_TRIPS: u32 = 4;

/// What a connection takes of processors, and the runner between two.
const OVERHEAD: Duration = Duration::from_millis(8);

/// How many times its slices a cell may be loaded until it has made its connections.
const MORE_SLICES: u32 = 3;

/// How long a load is waited for beyond its time, in round trips: its last connections.
const LOAD_TAIL: u32 = 4;

impl Stage {
    fn new(
        experiment: &Experiment,
        link: &LinkSpec,
        variant: Variant,
        quick: bool,
        number: usize,
    ) -> Self {
        let trials = link.trials.unwrap_or(experiment.trials);
        let trials = if quick { experiment.quick_trials.min(trials) } else { trials };
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
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        format!("{:02}-{}", self.number + 1, self.name().chars().map(safe).collect::<String>())
    }

    pub(crate) fn turns(&self) -> u64 {
        u64::from(self.rounds) * self.cells.len() as u64
    }

    /// The order in which the cells have their turns, round by round: shuffled, the same for a seed.
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

    /// How its programs run: before all others where they are idle most of the time. A load would leave nothing of
    /// the processor to what is not loaded.
    pub(crate) fn scheduling(&self, program: usize) -> Option<Scheduling> {
        (!self.mode.is_load()).then(|| Scheduling::exact(program))
    }

    /// Whether a cell that had so many turns, and made so many connections under load, needs no more.
    pub(crate) fn is_enough(&self, turns: u32, connections: u64) -> bool {
        turns >= self.rounds && (!self.mode.is_load() || connections >= self.connections)
    }

    fn estimate(&self) -> Duration {
        let cells = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let nodes = u32::from(self.variant.servers.unwrap_or(1).max(self.clients()));
        let set_up = SET_UP + PROGRAM * PROGRAMS * cells * nodes;
        let one = self.link.rtt * ROUND_TRIPS + OVERHEAD + self.link.extra;
        let turn = match self.mode {
            Mode::One => one,
            Mode::Group(connections) => one * connections,
            Mode::InFlight(_, slice) | Mode::Rate(_, slice) => {
                slice + self.link.rtt * LOAD_TAIL + self.link.extra
            }
        };
        // Under load, what is beside the round trips is the wait for the last of many.
        let warm = if self.mode.is_load() { one - self.link.extra } else { one };
        set_up + (warm * self.warmup + turn * self.rounds) * cells
    }

    pub(crate) fn clients(&self) -> u8 {
        self.variant.clients.unwrap_or(1)
    }

    pub(crate) fn servers(&self) -> u8 {
        self.variant.servers.unwrap_or(1)
    }
}

impl Mode {
    fn new(experiment: &Experiment, variant: &Variant, slice: Duration) -> Self {
        match (variant.first_and_later, variant.rate, variant.in_flight.or(experiment.in_flight)) {
            (Some(connections), ..) => Self::Group(connections),
            (None, Some(rate), _) => Self::Rate(rate, slice),
            // One at a time is what a variant beside others says with in_flight = 1.
            (None, None, Some(1) | None) => Self::One,
            (None, None, Some(in_flight)) => Self::InFlight(in_flight, slice),
        }
    }

    pub(crate) const fn is_load(self) -> bool {
        matches!(self, Self::InFlight(..) | Self::Rate(..))
    }
}

impl Variant {
    fn on(&self, link: &LinkSpec) -> bool {
        self.links.as_ref().is_none_or(|links| links.contains(&link.name))
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
    /// Whether a server of this kind can stand at the end of `arm`: others speak plain TLS only.
    fn serves(self, arm: Arm) -> bool {
        self == Self::Builtin || matches!(arm, Arm::Tls13 | Arm::TurboAgent)
    }
}

#[cfg(test)]
mod tests;
