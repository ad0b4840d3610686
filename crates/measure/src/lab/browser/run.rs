//! A run: over each link first recordings, then rounds of loads.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use headstart_emulation::{Privilege, privilege};
use headstart_openers::site::Site;
use serde::Serialize;
use serde_json::{Value, json};

use super::arm::Arm;
use super::databases::{Databases, Recorded, Served};
use super::experiment::{BrowserExperiment, BrowserLink, CellSpec, Plan};
use super::extension;
use super::load::{Lane, Loaded, Times, Wanted, keep};
use super::outcome::{FILE, Known, Loads, Outcome, Predicted};
use super::predict::Predictor;
use super::servers::{BEFORE_CHROMIUM, Front};
use super::stage::{LATE, RunContext, SYSCTLS, Stage};
use crate::chromium::process;
use crate::chromium::session::Stopped;
use crate::chromium::tls::Classical;
use crate::interrupt::Interrupt;
use crate::lab::cell::{ClientSide, Counted};
use crate::lab::environment::About;
use crate::lab::listening::NO_EARLY_DATA;
use crate::lab::options::LabRunOptions;
use crate::lab::process::{Broken, product};
use crate::lab::results::Folder;
use crate::lab::runner::{Outline, Run, Scenario, keep_named, no_links};
use crate::lab::trial::{Row, rounded};
use headstart::base::failure::Failure;

/// Attempts at a recording: a database must have all.
const TRIES: usize = 3;

/// Recorded loads, for `headstart pageload plan` and `show`.
const RECORDINGS: &str = "recordings";

/// Loads of the first round, each with all of its requests.
const LOADS: &str = "loads";

pub(crate) struct PagesInBrowser {
    plan: Plan,
    /// The experiment as it is written beside its results.
    text: String,
    sites: Vec<Site>,
    chromium: PathBuf,
    program: PathBuf,
    fast_open: Option<Arc<ClientSide>>,
    place: Option<RunContext>,
    classical: Option<Classical>,
    outcome: Outcome,
}

impl PagesInBrowser {
    /// Plans a run; `text` is the experiment as it is written beside its results.
    pub(crate) fn new(
        options: &LabRunOptions,
        mut experiment: BrowserExperiment,
        text: String,
    ) -> Result<Self, Failure> {
        if options.full || options.pcap {
            let what = if options.full { "--full" } else { "--pcap" };
            return Err(Failure::usage(format!("{} has no {what}", experiment.name)).hint(
                "leave it out; its results have the times of each request (loads/*.har.gz)",
            ));
        }
        keep_named("link", &options.links, &mut experiment.link, |link| &link.name)?;
        let plan = Plan::new(experiment, options.quick, options.seed);
        if plan.links.is_empty() {
            return Err(no_links());
        }
        let sites = plan.read_sites()?;
        let chromium = process::find(None)?;
        if plan.cells.iter().any(|cell| cell.arm.has_extension()) {
            extension::find()?;
        }
        Ok(Self {
            plan,
            text,
            sites,
            chromium,
            program: product()?,
            fast_open: None,
            place: None,
            classical: None,
            outcome: Outcome::default(),
        })
    }
}

impl Scenario for PagesInBrowser {
    type Extra = Outcome;

    fn outline(&self) -> Outline {
        let plan = &self.plan;
        Outline {
            name: plan.experiment.name.clone(),
            text: self.text.clone(),
            stages: plan.links.iter().map(|link| link.name.clone()).collect(),
            cells: plan.cell_count(),
            turns: plan.steps(),
            estimate: plan.estimate(),
            bars: plan.experiment.bar.clone(),
            about: About {
                quick: plan.quick,
                full: false,
                seed: plan.seed,
                late: Some(LATE),
                programs: BTreeMap::new(),
                sysctls: BTreeMap::from(SYSCTLS),
            },
        }
    }

    /// Attaches programs for private cookies. Root alone may do that; without them there is early
    /// data, and no Fast Open.
    fn prepare(&mut self) -> Result<(), Failure> {
        let plan = &self.plan;
        let attaches = privilege() == Privilege::Root
            && plan.cells.iter().any(|cell| cell.arm == Arm::ZeroRtt);
        self.fast_open = attaches
            .then(|| ClientSide::attach_for(&plan.experiment.name, &self.program))
            .transpose()?
            .map(Arc::new);
        Ok(())
    }

    fn build(&mut self, run: &mut Run) -> Result<(), Failure> {
        let work = run.folder.work()?;
        let classical = self.plan.cells.iter().any(|cell| cell.visit.classical);
        self.classical = classical.then(|| Classical::copy(&self.chromium, &work)).transpose()?;
        let (program, fast_open) = (self.program.clone(), self.fast_open.clone());
        self.place = Some(RunContext { program, work, fast_open });
        Ok(())
    }

    fn stage(&mut self, number: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(link) = self.plan.links.get(number).cloned() else { return Ok(()) };
        self.link(&link, number + 1, run)
    }

    fn conclude(self, run: &mut Run) -> Result<Outcome, Failure> {
        run.folder.add_file(FILE, &self.outcome)?;
        Ok(self.outcome)
    }
}

/// Result of one load, and its time.
struct LoadResult {
    /// Index in what was asked for.
    cell: usize,
    loaded: Result<Loaded, String>,
}

/// Second visits of a turn with one arm: of all its loads together, as servers do not say whose a
/// handshake was. First visits, which go before, never resume anything; what other arms load at the
/// same time has other servers.
#[derive(Debug, Clone, Copy)]
struct Revisits {
    handshakes: Counted,
    /// Connections of second visits.
    connections: u64,
}

impl Revisits {
    /// Returns true if most connections resumed a session.
    const fn resumed(self) -> bool {
        2 * self.handshakes.resumed > self.connections
    }

    /// Returns true if early data were accepted on most of those.
    const fn early(self) -> bool {
        2 * self.handshakes.early > self.handshakes.resumed
    }
}

/// A line of loads.jsonl.
#[derive(Serialize)]
struct LoadLine<'l> {
    link: &'l str,
    variant: &'l str,
    arm: &'static str,
    trial: u32,
    flagged: bool,
    ok: bool,
    error: &'l str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(flatten)]
    times: Option<Times>,
    openings: BTreeMap<String, u64>,
    fallbacks: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    circuits: BTreeSet<String>,
    notes: Vec<String>,
    extension: Option<Value>,
    /// Responses that Early Hints brought.
    hinted: usize,
}

impl PagesInBrowser {
    fn link(&mut self, link: &BrowserLink, number: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(place) = self.place.clone() else { return Ok(()) };
        let lanes = self.plan.lanes(link);
        let mut stage = Stage::build(&place, link, number, &self.sites, lanes, &run.interrupt)?;
        let built = Instant::now();
        let recorded = self.record(&stage, link, run)?;
        let all: Vec<Recorded> = recorded.into_iter().flatten().collect();
        let databases = Databases::learn(&link.name, &all, self.plan.seed)?;
        self.outcome.databases.push(databases.facts.clone());
        let arms: HashSet<Arm> =
            self.plan.cells.iter().filter(|it| it.is_on(link)).map(|it| it.arm).collect();
        for front in arms.iter().filter_map(|arm| arm.hinting()).collect::<BTreeSet<Front>>() {
            stage.hint(front, databases.links(front)?)?;
        }
        let served = (0..lanes).map(|lane| databases.serve(stage.client(lane)?));
        let served = served.collect::<Result<Vec<_>, Failure>>()?;
        if arms.contains(&Arm::ZeroRtt) {
            thread::sleep(NO_EARLY_DATA.saturating_sub(built.elapsed()));
        }
        for cell in self.plan.cells.iter().filter(|cell| cell.is_on(link)) {
            run.groups.expect(self.plan.key(link, cell), link.rtt);
        }
        let mut loads: Vec<Loads> = self.plan.cells.iter().map(|_| Loads::default()).collect();
        for (round, turns) in (1..).zip(self.plan.rounds(link)) {
            for turn in turns {
                self.turn(&stage, link, &served, (round, &turn), &mut loads, run)?;
                stage.check()?;
                run.folder.flush()?;
                run.progress.step();
            }
        }
        self.compare(link, &databases, &all, &loads);
        let realtime = BEFORE_CHROMIUM.granted().realtime;
        let scheduled = json!({ "realtime": realtime, "pinned": false });
        run.environment.add_lab(&link.name, LATE, scheduled, &stage.lab);
        Ok(())
    }

    /// Loads each site without anything, and keeps what was seen: by site.
    fn record(
        &self,
        stage: &Stage,
        link: &BrowserLink,
        run: &mut Run,
    ) -> Result<Vec<Vec<Recorded>>, Failure> {
        let mut all: Vec<Vec<Recorded>> = self.sites.iter().map(|_| Vec::new()).collect();
        let names = self.plan.sites.iter().enumerate();
        let specs: Vec<CellSpec> =
            names.map(|(site, name)| CellSpec::first(name, site, Arm::Plain)).collect();
        for _ in 0..self.plan.recordings {
            for turn in specs.chunks(self.plan.lanes(link)) {
                let mut left: Vec<&CellSpec> = turn.iter().collect();
                for attempt in 1..=TRIES {
                    let turned = self.load_all(stage, &left, &[], &run.interrupt)?;
                    let mut failed = Vec::new();
                    for (spec, one) in left.iter().zip(turned) {
                        match one.loaded {
                            Ok(loaded) => {
                                keep_load(&run.folder, RECORDINGS, link, spec, &loaded)?;
                                let seen = loaded.seen;
                                let recorded =
                                    Recorded { recording: seen.recording, har: seen.har };
                                if let Some(own) = all.get_mut(spec.site) {
                                    own.push(recorded);
                                }
                            }
                            Err(why) if attempt == TRIES => return Err(unrecorded(spec, &why)),
                            Err(why) => {
                                run.progress.note(&format!("recording {}: {why}", spec.variant));
                                failed.push(*spec);
                            }
                        }
                    }
                    left = failed;
                    if left.is_empty() {
                        break;
                    }
                }
                run.progress.step();
            }
        }
        Ok(all)
    }

    /// Runs one turn: the loads of some cells at the same time.
    fn turn(
        &mut self,
        stage: &Stage,
        link: &BrowserLink,
        served: &[Served],
        (round, turn): (u32, &[usize]),
        loads: &mut [Loads],
        run: &mut Run,
    ) -> Result<(), Failure> {
        let cells = self.plan.cells.clone();
        // A load that never completes would use its whole timeout in each round.
        let mut turn = turn.to_vec();
        turn.retain(|at| !loads.get(*at).is_some_and(Loads::is_given_up));
        let specs: Vec<&CellSpec> = turn.iter().filter_map(|at| cells.get(*at)).collect();
        // Either all loads of a turn are second visits, or none is.
        let arms: HashSet<Arm> =
            specs.iter().filter(|it| it.visit.again).map(|it| it.arm).collect();
        let before: HashMap<Arm, Counted> =
            arms.iter().filter_map(|arm: &Arm| Some((*arm, stage.handshakes(*arm)?))).collect();
        let turned = self.load_all(stage, &specs, served, &run.interrupt)?;
        let again = before.into_iter().filter_map(|(arm, before): (Arm, Counted)| {
            let own =
                turned.iter().filter(|one| specs.get(one.cell).is_some_and(|it| it.arm == arm));
            let loaded = own.filter_map(|one| one.loaded.as_ref().ok());
            let connections = loaded.map(|loaded| loaded.times.connections as u64).sum();
            let handshakes = stage.handshakes(arm)?.since(before);
            Some((arm, Revisits { handshakes, connections }))
        });
        let again: HashMap<Arm, Revisits> = again.collect();
        for one in turned {
            let Some((spec, at)) = specs.get(one.cell).zip(turn.get(one.cell)) else { continue };
            let loaded = one.loaded.as_ref().ok();
            let flagged = loaded.is_some_and(|one| stage.lab.disturbed(one.from, one.to));
            let again = again.get(&spec.arm).copied();
            self.add(link, spec, (round, flagged), &one.loaded, again, run)?;
            // Keep one load of each cell with all its requests.
            if let Some(loaded) = loaded.filter(|_| round == 1) {
                keep_load(&run.folder, LOADS, link, spec, loaded)?;
            }
            if let Some(own) = loads.get_mut(*at) {
                own.rounds.push((round, loaded.map(|loaded| loaded.times)));
                own.flagged += usize::from(flagged);
                own.idle += usize::from(loaded.is_some_and(|one| one.is_idle(spec.arm)));
                own.circuits.extend(loaded.into_iter().flat_map(|loaded| loaded.circuits.clone()));
                if own.is_given_up() {
                    let CellSpec { variant, arm, .. } = spec;
                    run.progress.note(&format!("given up: {}, {variant}, {arm}", link.name));
                }
            }
        }
        Ok(())
    }

    /// Loads them at the same time, each on a client of its own.
    fn load_all(
        &self,
        stage: &Stage,
        specs: &[&CellSpec],
        served: &[Served],
        interrupt: &Interrupt,
    ) -> Result<Vec<LoadResult>, Failure> {
        let classical = self.classical.as_ref().map(Classical::program);
        // Over a link with Tor, a turn is of one arm.
        specs.first().map(|first| stage.lead(first.arm)).transpose()?;
        let done: Vec<Result<LoadResult, Stopped>> = thread::scope(|scope| {
            let lanes = specs.iter().enumerate().map(|(cell, spec)| {
                let lane = Lane {
                    stage,
                    number: cell,
                    chromium: &self.chromium,
                    classical: classical.as_deref(),
                    interrupt,
                    served: served.get(cell),
                };
                scope.spawn(move || self.load(&lane, spec))
            });
            let lanes: Vec<_> = lanes.collect();
            lanes
                .into_iter()
                .map(|lane: thread::ScopedJoinHandle<'_, _>| {
                    lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        done.into_iter()
            .map(|one| {
                one.map_err(|stopped| match stopped {
                    Stopped::Interrupted => Broken::Interrupted.into(),
                    Stopped::Failed(why) => Failure::usage(why),
                })
            })
            .collect()
    }

    fn load(&self, lane: &Lane<'_>, spec: &CellSpec) -> Result<LoadResult, Stopped> {
        let site = self
            .sites
            .get(spec.site)
            .ok_or_else(|| Stopped::Failed("there is no such site".into()))?;
        let CellSpec { arm, visit, .. } = *spec;
        let timeout = self.plan.experiment.timeout;
        let loaded = lane.load(Wanted { site, arm, visit, timeout })?;
        Ok(LoadResult { cell: lane.number, loaded })
    }

    fn add(
        &mut self,
        link: &BrowserLink,
        spec: &CellSpec,
        (round, flagged): (u32, bool),
        loaded: &Result<Loaded, String>,
        again: Option<Revisits>,
        run: &mut Run,
    ) -> Result<(), Failure> {
        let error = loaded.as_ref().err().cloned().unwrap_or_default().replace(['\n', '\r'], " ");
        if !error.is_empty() {
            let name = format!("{}, {}, {}", link.name, spec.variant, spec.arm);
            run.progress.note(&format!("failed: {name}: {error}"));
        }
        let loaded = loaded.as_ref().ok();
        let times = loaded.map(|loaded| loaded.times);
        let openings = loaded.map(|loaded| loaded.openings.clone()).unwrap_or_default();
        let key = self.plan.key(link, spec);
        let request = times.and_then(|times| times.first_request_ms);
        let row = Row {
            experiment: key.experiment,
            arm: key.arm,
            suite: key.suite,
            link: key.link,
            trial: round,
            opening: match loaded {
                Some(_) => openings.most().unwrap_or("plain").to_owned(),
                None => String::new(),
            },
            ms_to_first_request_byte: request,
            ms_to_first_response_byte: times.and_then(|times| times.first_response_ms),
            ms_to_last_response_byte: times.and_then(|times| times.page_load_ms),
            rtts: request.map(|ms| rounded(ms / (link.rtt.as_secs_f64() * 1e3))),
            reason: openings.words(),
            flagged,
            variant: key.variant,
            ok: times.is_some(),
            resumed: again.is_some_and(Revisits::resumed),
            // Behind a SYN it leaves after the answer to that (docs/browser-lab.md): not with the
            // first packet.
            early_data: again.is_some_and(Revisits::early) && !spec.visit.classical,
            bytes: times.map_or(0, |times| times.bytes),
            error: error.clone(),
            round,
        };
        run.add(&row, link.rtt)?;
        if let Some(loaded) = loaded.filter(|_| self.outcome.browser.is_empty()) {
            self.outcome.browser.clone_from(&loaded.browser);
        }
        run.folder.add_load(&LoadLine {
            link: &link.name,
            variant: &spec.variant,
            arm: spec.arm.name(),
            trial: round,
            flagged,
            ok: times.is_some(),
            error: &error,
            times,
            openings: openings.by_name,
            fallbacks: openings.fallbacks,
            circuits: loaded.map(|loaded| loaded.circuits.clone()).unwrap_or_default(),
            missing: loaded.map(|loaded| loaded.missing.clone()).unwrap_or_default(),
            notes: loaded.map(|loaded| loaded.seen.notes.clone()).unwrap_or_default(),
            extension: loaded.and_then(|loaded| loaded.extension.clone()),
            hinted: loaded.map_or(0, |loaded| loaded.seen.hinted),
        })
    }

    /// Puts what was predicted beside what was measured.
    fn compare(
        &mut self,
        link: &BrowserLink,
        databases: &Databases,
        recorded: &[Recorded],
        loads: &[Loads],
    ) {
        let all = self.plan.cells.iter().zip(loads).filter(|(spec, _)| spec.is_on(link));
        let cells: Vec<Known<'_>> = all
            .map(|(spec, loads): (_, _)| {
                let spec: &CellSpec = spec;
                let predictor = Predictor::new(link, databases.known_to(spec.arm));
                let url = self.sites.get(spec.site).map(Site::url).unwrap_or_default();
                let recordings: Vec<_> = recorded
                    .iter()
                    .map(|one| &one.recording)
                    .filter(|load| {
                        load.page.resources().first().is_some_and(|first| first.url == url)
                    })
                    .collect();
                let predicted = Predicted {
                    page_load_ms: predictor.page_load_ms(&recordings, spec),
                    at_start_ms: predictor.at_start_ms(&recordings, spec),
                };
                Known { link: &link.name, spec, loads, predicted }
            })
            .collect();
        self.outcome.add(&cells);
    }
}

/// Puts what was seen of a load into a folder, under the next number that is free.
fn keep_load(
    results: &Folder,
    folder: &str,
    link: &BrowserLink,
    spec: &CellSpec,
    loaded: &Loaded,
) -> Result<(), Failure> {
    let folder = results.subfolder(folder)?;
    let name = file_name(&format!("{} {} {}", link.name, spec.variant, spec.arm));
    let mut files = (1_usize..).map(|number| folder.join(format!("{name}-{number:04}.har.gz")));
    let free = files.find(|file| !file.exists());
    let kept = free.map_or(Ok(()), |file| keep(&loaded.seen.har, &file));
    kept.map_err(|error| Failure::usage(format!("cannot write {}: {error}", folder.display())))
}

/// Returns what begins the names of files about something.
pub(super) fn file_name(of: &str) -> String {
    of.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
}

fn unrecorded(spec: &CellSpec, why: &str) -> Failure {
    Failure::usage(format!("{} cannot be recorded: {why}", spec.variant))
        .hint("`headstart pageload record` loads it alone and says more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_visits_do_not_hide_what_second_ones_resume() {
        for (resumed, early, expected) in [
            (28, 25, (true, true)),
            (28, 3, (true, false)),
            (4, 4, (false, true)),
            (0, 0, (false, false)),
        ] {
            let handshakes = Counted { full: 32, resumed, early, failed: 0 };
            let again = Revisits { handshakes, connections: 28 };
            assert_eq!((again.resumed(), again.early()), expected, "{resumed} {early}");
        }
    }
}
