//! The experiment `soak`: mixed load on a fleet for hours, while its processes are killed, clocks,
//! certificates and keys change and UDP comes and goes.
//!
//! Each exchange is a sample. One that fails without a process that was killed under it breaks the
//! experiment, as does any wrong byte.

mod content;
mod http;
mod judge;
mod load;
pub(super) mod origin;
mod site;
mod spec;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cell::version;
use super::environment::About;
use super::experiment::ANY;
use super::process::{Broken, find_program};
use super::runner::{Outline, Run, Scenario};
use super::summary::{Blame, CellFacts};
use super::trial::{Key, Row};
use headstart::base::failure::Failure;
pub(super) use judge::Event;
use judge::excuse;
use load::{Exchange, Kind, Load};
use site::{Site, watched};
use spec::Step;
pub(super) use spec::{Experiment, NAME, TEXT};
use watch::Lives;
pub(super) use watch::{Point, VALUES, Value};

/// Files beside the samples.
pub(super) const SERIES: &str = "series.csv";
pub(super) const EVENTS: &str = "events.csv";

/// Column `link` of all rows; `suite`; and `variant`, by the size of bodies.
const LINK: &str = "fleet";
const SUITE: &str = "p256";
const SIZES: [&str; 2] = ["small", "large"];

/// Beginning of the column `reason` of a failure that is not the product's.
pub(super) const EXCUSED: &str = "excused: ";

/// Time that a killed process is gone.
const GONE: Duration = Duration::from_secs(1);

/// Interval at which is looked for what is due.
const LOOK: Duration = Duration::from_millis(50);

/// A run of it.
pub(super) struct Soak {
    spec: Experiment,
    text: String,
    quick: bool,
    site: Option<Site>,
    lives: Lives,
    series: Vec<Point>,
    events: Vec<Event>,
    cells: BTreeMap<(String, &'static str), Blame>,
    certificate: usize,
    broken: Option<String>,
}

impl Soak {
    /// Plans a run; `text` is the experiment as it is written beside its results, and `seed` goes
    /// before its own.
    pub(super) fn new(
        mut spec: Experiment,
        text: String,
        quick: bool,
        seed: Option<u64>,
    ) -> Result<Self, Failure> {
        if find_program(REDIS).is_none() {
            return Err(Failure::usage("a soak needs redis-server")
                .hint("install the package redis-server"));
        }
        check_bars(&spec)?;
        spec.seed = seed.unwrap_or(spec.seed);
        Ok(Self {
            spec,
            text,
            quick,
            site: None,
            lives: Lives::default(),
            series: Vec::new(),
            events: Vec::new(),
            cells: BTreeMap::new(),
            certificate: 0,
            broken: None,
        })
    }

    /// Keeps the load up until the time is over, or a program breaks.
    fn measure(&mut self, site: &mut Site, run: &mut Run) -> Result<(), Failure> {
        watched().for_each(|part| self.lives.begin(part));
        let mut steps = self.spec.schedule(self.quick).into_iter().peekable();
        let begun = Instant::now();
        let load = Load::start(site.client()?, &self.spec, &site.places(), begun);
        let load = load.map_err(cannot)?;
        let mut looked = 0;
        let duration = self.spec.duration(self.quick);
        // On a busy machine events come late, but they come.
        while (begun.elapsed() < duration || steps.peek().is_some()) && !load.has_broken() {
            if run.interrupt.is_set() {
                return Err(Broken::Interrupted.into());
            }
            if let Some((_, step)) = steps.next_if(|(at, _)| *at <= begun.elapsed()) {
                self.step(step, begun, site, &load, run)?;
            }
            let round = self.round(begun.elapsed());
            if round > looked {
                looked = round;
                self.look(site, begun.elapsed());
                self.add(load.take(), run)?;
                run.progress.step();
                let checked = site.check();
                self.note(checked)?;
            }
            if self.broken.is_some() {
                break;
            }
            thread::sleep(LOOK);
        }
        let last = load.end().map_err(cannot)?;
        self.add(last, run)
    }

    /// Number of the interval at this time, from 1.
    fn round(&self, t: Duration) -> u32 {
        let every = self.spec.every(self.quick).as_millis().max(1);
        u32::try_from(t.as_millis() / every + 1).unwrap_or(u32::MAX)
    }

    fn step(
        &mut self,
        step: Step,
        begun: Instant,
        site: &mut Site,
        load: &Load,
        run: &Run,
    ) -> Result<(), Failure> {
        // A client that was reset stays plain for a day.
        load.forget();
        let from = begun.elapsed();
        let done = match step {
            Step::Kill(part) => {
                site.kill(part);
                thread::sleep(GONE);
                let started = site.start_part(part, &run.interrupt);
                self.lives.begin(part);
                started
            }
            Step::Certificate => {
                self.certificate += 1;
                site.certify(self.certificate)
            }
            Step::Keys => site.rotate_keys(),
            Step::Udp { blocked } => {
                site.block_udp(blocked)?;
                Ok(())
            }
            Step::Clock { .. } if !site.sets_clocks() => return Ok(()),
            Step::Clock { ahead } => site.set_clocks(ahead),
        };
        self.note(done)?;
        let event = Event::new(step, from, begun.elapsed());
        run.progress.note(&format!("{:.0} s: {}", event.from_s, event.event));
        self.events.push(event);
        Ok(())
    }

    /// Reads the values of all processes.
    fn look(&mut self, site: &Site, t: Duration) {
        let round = self.round(t);
        for part in watched() {
            let point = site.pid(part).and_then(|pid| Point::look(part, pid, round, t));
            if let Some(point) = point {
                self.series.push(point.clone());
                self.lives.add(part, point);
            }
        }
    }

    /// Adds the rows of exchanges that are over; no event has begun since that is not known.
    fn add(&mut self, exchanges: Vec<Exchange>, run: &mut Run) -> Result<(), Failure> {
        for exchange in exchanges {
            let row = self.row(exchange);
            run.add(&row, self.spec.rtt)?;
        }
        Ok(())
    }

    fn row(&mut self, exchange: Exchange) -> Row {
        let Exchange { kind, large, from, to, mut trial, opening } = exchange;
        let size = SIZES[usize::from(large)];
        let round = self.round(from);
        let excuse = excuse(&self.events, from, to, kind.way());
        let blame = self.cells.entry((kind.name(), size)).or_default();
        blame.exchanges += 1;
        if !trial.ok {
            blame.outside += u64::from(excuse.is_none());
            blame.wrong += u64::from(judge::is_wrong(&trial.error));
            if let Some(event) = excuse {
                trial.reason = format!("{EXCUSED}{event}");
            }
        }
        let key = self.key(&kind.name(), size);
        let number = self.cells.get(&(kind.name(), size)).map_or(1, |blame| blame.exchanges);
        let mut row = Row::new(key, number, round, self.spec.rtt, trial);
        row.opening = opening.unwrap_or(row.opening);
        row
    }

    fn key(&self, arm: &str, variant: &str) -> Key {
        Key {
            experiment: self.spec.name.clone(),
            link: LINK.to_owned(),
            variant: variant.to_owned(),
            suite: SUITE.to_owned(),
            arm: arm.to_owned(),
        }
    }

    /// Keeps why a program broke; only the user's wish goes on as an error.
    fn note(&mut self, done: Result<(), Broken>) -> Result<(), Failure> {
        match done {
            Ok(()) => Ok(()),
            Err(Broken::Program(why)) => {
                self.broken = Some(why);
                Ok(())
            }
            Err(Broken::Interrupted) => Err(Broken::Interrupted.into()),
        }
    }

    /// Adds what is known of kinds of exchanges, and of processes as cells of their own.
    fn tell(&self, run: &mut Run) {
        for kind in Kind::all() {
            for size in SIZES {
                let blame = self.cells.get(&(kind.name(), size)).copied();
                let key = self.key(&kind.name(), size);
                let broken = self.broken.clone();
                run.groups
                    .tell(|of| *of == key, &CellFacts { blame, broken, ..CellFacts::default() });
            }
        }
        for (name, value) in VALUES {
            for part in watched() {
                let key = self.key(&part.to_string(), name);
                run.groups.expect(key.clone(), Duration::ZERO);
                let growth = self.lives.growth(part, value);
                run.groups.tell(|of| *of == key, &CellFacts { growth, ..CellFacts::default() });
            }
        }
    }
}

impl Scenario for Soak {
    type Extra = ();

    fn outline(&self) -> Outline {
        let (spec, quick) = (&self.spec, self.quick);
        let duration = spec.duration(quick);
        let redis = find_program(REDIS).and_then(|redis| version(&redis, "--version"));
        Outline {
            name: spec.name.clone(),
            text: self.text.clone(),
            stages: vec![LINK.to_owned()],
            cells: cells(),
            turns: u64::from(self.round(duration)),
            estimate: spec.estimate(quick),
            bars: spec.bar.clone(),
            about: About {
                quick,
                seed: spec.seed,
                programs: redis.map(|version| (REDIS, version)).into_iter().collect(),
                ..About::default()
            },
        }
    }

    fn build(&mut self, run: &mut Run) -> Result<(), Failure> {
        for size in SIZES {
            for kind in Kind::all() {
                run.groups.expect(self.key(&kind.name(), size), self.spec.rtt);
            }
        }
        self.site = Some(Site::start(run.folder.work()?, self.spec.rtt, &run.interrupt)?);
        Ok(())
    }

    fn stage(&mut self, _: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(mut site) = self.site.take() else { return Ok(()) };
        let measured = self.measure(&mut site, run);
        let late = self.spec.rtt / 20;
        run.environment.add_lab(
            LINK,
            late,
            json!({ "realtime": false, "pinned": false }),
            &site.lab,
        );
        run.environment.add("clocks_set", json!(site.sets_clocks()));
        measured
    }

    fn conclude(self, run: &mut Run) -> Result<(), Failure> {
        self.tell(run);
        if let Some(why) = &self.broken {
            run.progress.note(&format!("broken: {why}"));
        }
        run.folder.add_table(SERIES, &self.series)?;
        run.folder.add_table(EVENTS, &self.events)
    }
}

/// Refuses a bar that no cell could meet or miss.
fn check_bars(spec: &Experiment) -> Result<(), Failure> {
    let kinds = Kind::all().into_iter().map(Kind::name);
    let arms: Vec<String> = kinds.chain(watched().map(|part| part.to_string())).collect();
    let values = VALUES.map(|(name, _)| name);
    for bar in &spec.bar {
        let is_known = bar.arm == ANY || arms.contains(&bar.arm);
        let variant = bar.variant.as_deref().unwrap_or(ANY);
        if !is_known || !(variant == ANY || SIZES.contains(&variant) || values.contains(&variant)) {
            let what = format!("a bar is for {} and {variant}, which no cell has", bar.arm);
            return Err(Failure::usage(what).hint("lab/README.md has the form of a soak"));
        }
    }
    Ok(())
}

/// Number of cells of exchanges; processes have some as well.
pub(super) fn cells() -> usize {
    Kind::all().len() * SIZES.len()
}

/// Name of a program that is no part of the product.
const REDIS: &str = "redis-server";

fn cannot(error: io::Error) -> Failure {
    Failure::usage(format!("the soak cannot go on: {error}"))
}
