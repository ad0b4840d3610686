//! The experiment `tor`: optimistic data through a private Tor network, both arms on one circuit.
//!
//! It has a network and clients of its own, and shares with the other experiments how results are
//! written and judged.

mod evidence;
mod origin;
mod spec;
mod visit;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headstart_emulation::{Capture, Delay, Host, Lab, Link, Node, TorNetwork, TorStream};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cell;
use super::environment::About;
use super::listening::await_port;
use super::process::{Broken, Program, product};
use super::runner::{self, Outline, Scenario, keep_named, no_links};
use super::summary::CellFacts;
use super::trial::{Key, Row};
use crate::interrupt::Interrupt;
use crate::lab::options::LabRunOptions;
use crate::network;
use crate::stats::Summary;
use evidence::Evidence;
use headstart::base::failure::Failure;
use origin::Origin;
use spec::LinkSpec;
pub(super) use spec::{Experiment, NAME, TEXT};
use visit::{Suite, Visited, Wanted};

/// Name of the origin, for the exit to look up: of all programs of the run, that is the only one.
const ORIGIN: &str = "origin.test";

/// The nodes besides those of Tor.
const CLIENT: &str = "client";
const SERVER: &str = "origin";

/// Whom both agents log in as: streams of one login share a circuit.
const UPSTREAM_USER: &str = "lab";

/// Bytes of a capture at most; a trial has some 10 kB.
const CAPTURE_MAX: u64 = 64 << 20;

/// Share of the pairs that must have been on one circuit, for the comparison to be one.
const SAME_CIRCUIT_MIN: f64 = 0.9;

/// Ways to go through the proxy, as the results call them; the baseline first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Arm {
    Waiting,
    Optimistic,
}

impl Arm {
    const ALL: [Self; 2] = [Self::Waiting, Self::Optimistic];

    const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Optimistic => "optimistic",
        }
    }

    /// Returns the agent's option.
    const fn option(self) -> &'static str {
        match self {
            Self::Waiting => "never",
            Self::Optimistic => "always",
        }
    }

    /// Returns the agent's name for the opening.
    const fn opening(self) -> &'static str {
        match self {
            Self::Waiting => "upstream",
            Self::Optimistic => "optimistic",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Waiting => 1081,
            Self::Optimistic => 1082,
        }
    }
}

pub(super) struct Run {
    experiment: Experiment,
    quick: bool,
    seed: u64,
    program: PathBuf,
    network: Option<Network>,
    stages: Vec<Value>,
}

/// Programs that run all the time.
struct Network {
    agents: Vec<Program>,
    origin: Origin,
    tor: TorNetwork,
    lab: Lab,
    interrupt: Interrupt,
}

/// One pair of trials, or what of it there is, of one suite in one round.
type Pairs = BTreeMap<(u32, Suite), BTreeMap<&'static str, Visited>>;

impl Run {
    /// Plans a run.
    pub(super) fn new(options: &LabRunOptions) -> Result<Self, Failure> {
        if options.full {
            return Err(Failure::usage("the experiment tor has no --full").hint("leave it out"));
        }
        let mut experiment = Experiment::parse()?;
        keep_named("link", &options.links, &mut experiment.link, |link| &link.name)?;
        if experiment.links(options.quick).is_empty() {
            return Err(no_links());
        }
        Ok(Self {
            quick: options.quick,
            seed: options.seed.unwrap_or(experiment.seed),
            experiment,
            program: product()?,
            network: None,
            stages: Vec::new(),
        })
    }

    fn measure_link(
        &mut self,
        link: &LinkSpec,
        mut random: Xoshiro256PlusPlus,
        network: &mut Network,
        run: &mut runner::Run,
    ) -> Result<(), Failure> {
        set_links(&network.lab, link);
        let each: Vec<_> = self.experiment.each().collect();
        for round in 0..self.experiment.warmup {
            for &(suite, arm) in &each {
                network.visit(&self.experiment, suite, arm, round)?;
            }
        }
        let before = network.origin.connections();
        let file =
            run.folder.captures()?.join(format!("{}-exit.pcapng", link.name.replace(' ', "-")));
        let capture = network.lab.capture("tor-exit-1", &file, CAPTURE_MAX);
        let capture = capture.map_err(|error| network::not_built(&error))?;
        let (mut pairs, mut order) = (Pairs::new(), Vec::new());
        for round in 1..=self.experiment.trials(self.quick) {
            let mut turns = each.clone();
            turns.shuffle(&mut random);
            for (suite, arm) in turns {
                let visited = network.visit(&self.experiment, suite, arm, round)?;
                order.push(arm);
                pairs.entry((round, suite)).or_default().insert(arm.name(), visited);
            }
            run.progress.step();
        }
        let evidence = network.evidence(capture, &file, &order, before)?;
        self.add(link, &pairs, &evidence, network, run)
    }

    /// Writes the rows, and what is known beside them.
    fn add(
        &mut self,
        link: &LinkSpec,
        pairs: &Pairs,
        evidence: &Evidence,
        network: &Network,
        run: &mut runner::Run,
    ) -> Result<(), Failure> {
        let pings = pairs.values().flat_map(BTreeMap::values).flat_map(|visited| visited.rtt_ms);
        let pings = Summary::from_samples(&pings.collect::<Vec<_>>());
        let rtt = pings
            .and_then(|pings| pings.p50)
            .map_or(link.rtt, |ms| Duration::from_secs_f64(ms / 1e3));
        let mut trials = BTreeMap::<Key, u32>::new();
        for ((round, suite), arms) in pairs {
            for arm in Arm::ALL {
                let Some(visited) = arms.get(arm.name()) else { continue };
                let key = self.key(link, *suite, arm);
                let trial = trials.entry(key.clone()).or_default();
                *trial += 1;
                let mut row = Row::new(key, *trial, *round, rtt, visited.trial.clone());
                arm.opening().clone_into(&mut row.opening);
                row.reason = visited
                    .circuit
                    .as_ref()
                    .map_or(String::new(), |circuit| format!("circuit {circuit}"));
                row.flagged = visited.flagged;
                run.add(&row, rtt)?;
            }
        }
        let same = same_circuit(pairs);
        let broken = evidence.contradiction(rtt).or_else(|| {
            let few = same.is_none_or(|same| same < SAME_CIRCUIT_MIN);
            few.then(|| "the two arms were on different circuits".to_owned())
        });
        if let Some(why) = &broken {
            run.progress.note(&format!("broken: {}: {why}", link.name));
        }
        let facts = CellFacts { broken, ..CellFacts::default() };
        run.groups.tell(|key| key.link == link.name, &facts);
        let stage = json!({
            "link": link.name,
            "circuit_rtt_ms": pings,
            "circuit_rtt_of_links_ms": link.rtt.as_secs_f64() * 1e3,
            "pairs_on_one_circuit": same,
            "saved": saved(pairs, rtt),
            "exit": evidence.json(),
            "circuits": network.circuits(),
        });
        self.stages.push(stage);
        Ok(())
    }

    fn key(&self, link: &LinkSpec, suite: Suite, arm: Arm) -> Key {
        Key {
            experiment: self.experiment.name.clone(),
            link: link.name.clone(),
            variant: String::new(),
            suite: suite.name().to_owned(),
            arm: arm.name().to_owned(),
        }
    }
}

impl Network {
    /// One connection of a client through the agent of `arm`, and the circuit that it was on.
    fn visit(
        &mut self,
        experiment: &Experiment,
        suite: Suite,
        arm: Arm,
        round: u32,
    ) -> Result<Visited, Failure> {
        let (client, tor) = (node(&self.lab, CLIENT)?, &self.tor);
        let at = SocketAddr::from(([127, 0, 0, 1], arm.port()));
        let begun = Instant::now();
        // Once the exit has connected, Tor shows the address that it resolved.
        let origin = node(&self.lab, SERVER)?.ipv4().map(|address| format!("{address}:"));
        let interrupt = &self.interrupt;
        let wanted = Wanted {
            agent: at,
            name: ORIGIN,
            suite,
            response: experiment.response,
            timeout: experiment.timeout,
            wanted: &|| !interrupt.is_set(),
        };
        let visited = client.run(|| {
            visit::visit(&wanted, || {
                let streams = tor.streams().unwrap_or_default().into_iter();
                let own = streams.filter(|TorStream { target, .. }: &TorStream| {
                    let address = origin.as_ref().is_some_and(|origin| target.starts_with(origin));
                    address || target.starts_with(ORIGIN)
                });
                // The newest one: Tor lists them in no order.
                let newest = own.max_by_key(|stream| stream.id.parse::<u64>().unwrap_or_default());
                newest.map(|stream| stream.circuit)
            })
        });
        let mut visited = visited.map_err(|error| network::not_started(&error))?;
        visited.round = round;
        visited.flagged = self.lab.disturbed(begun, Instant::now());
        self.check()?;
        Ok(visited)
    }

    /// After each visit: one that lacks a program, or that the user broke off, is no failed one.
    fn check(&mut self) -> Result<(), Failure> {
        if self.interrupt.is_set() {
            return Err(Broken::Interrupted.into());
        }
        for agent in &mut self.agents {
            agent.check()?;
        }
        if self.tor.is_running() { Ok(()) } else { Err(ended()) }
    }

    fn evidence(
        &self,
        capture: Capture,
        file: &Path,
        order: &[Arm],
        before: u64,
    ) -> Result<Evidence, Failure> {
        let (captured, packets) = capture
            .finish()
            .and_then(|captured| Ok((captured, headstart_emulation::read_capture(file)?)))
            .map_err(|error| Failure::usage(format!("cannot write {}: {error}", file.display())))?;
        let made = self.origin.connections() - before;
        let whole = !captured.full && captured.dropped == 0 && made == order.len() as u64;
        Ok(Evidence::from_packets(&packets, order, whole))
    }

    fn circuits(&self) -> Vec<Value> {
        let circuits = self.tor.circuits().unwrap_or_default();
        circuits
            .into_iter()
            .map(|one| json!({ "id": one.id, "path": one.path.join(" ") }))
            .collect()
    }
}

impl Scenario for Run {
    type Extra = ();

    fn outline(&self) -> Outline {
        let experiment = &self.experiment;
        let links = experiment.links(self.quick);
        Outline {
            name: experiment.name.clone(),
            text: TEXT.to_owned(),
            stages: links.iter().map(|link| link.name.clone()).collect(),
            cells: experiment.cells(),
            turns: u64::from(experiment.trials(self.quick)) * links.len() as u64,
            estimate: experiment.estimate(self.quick),
            bars: experiment.bar.clone(),
            about: About {
                quick: self.quick,
                seed: self.seed,
                programs: BTreeMap::from([("tor", version())]),
                ..About::default()
            },
        }
    }

    fn build(&mut self, run: &mut runner::Run) -> Result<(), Failure> {
        run.progress.note("starting a private Tor network: 20 to 40 s");
        let first = self.experiment.link.first().ok_or_else(|| Failure::usage("no link"))?;
        let mut hosts = vec![Host::new(CLIENT), Host::new(SERVER)];
        hosts.extend(TorNetwork::hosts(Duration::ZERO));
        let lab = Lab::build(hosts).map_err(|error| network::not_built(&error))?;
        set_links(&lab, first);
        let server = node(&lab, SERVER)?
            .ipv4()
            .ok_or_else(|| Failure::usage("the origin has no address"))?;
        let names = [(ORIGIN.to_owned(), server)];
        let work = run.folder.work()?.join("tor");
        let interrupt = run.interrupt.clone();
        let tor = start(&lab, CLIENT, &names, &work, &interrupt)?;
        let origin = Origin::start(node(&lab, SERVER)?, ORIGIN, self.experiment.response)?;
        let agents = Arm::ALL.map(|arm| agent(&lab, &self.program, arm, &interrupt));
        let agents = agents.into_iter().collect::<Result<_, _>>()?;
        self.network = Some(Network { agents, origin, tor, lab, interrupt });
        Ok(())
    }

    fn stage(&mut self, number: usize, run: &mut runner::Run) -> Result<(), Failure> {
        let links = self.experiment.links(self.quick);
        let Some(link) = links.get(number).map(|link| (*link).clone()) else { return Ok(()) };
        let Some(mut network) = self.network.take() else { return Ok(()) };
        // Each link has its own order.
        let seed = self.seed.rotate_left(32) ^ number as u64;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let measured = self.measure_link(&link, random, &mut network, run);
        self.network = Some(network);
        measured
    }

    fn conclude(self, run: &mut runner::Run) -> Result<(), Failure> {
        run.environment.add("tor", json!(version()));
        if let Some(network) = &self.network {
            let seconds = (network.tor.stood_after().as_secs_f64() * 10.0).round() / 10.0;
            run.environment.add("tor_bootstrapped_after_s", json!(seconds));
        }
        run.environment.add("links", Value::Array(self.stages));
        Ok(())
    }
}

fn node<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, Failure> {
    lab.node(name).ok_or_else(|| Failure::usage(format!("the lab has no node {name}")))
}

fn set_links(lab: &Lab, link: &LinkSpec) {
    let own = [(CLIENT.to_owned(), link.client), (SERVER.to_owned(), link.origin)];
    let relays = TorNetwork::nodes().map(|name| (name, link.relay));
    for (name, delay) in own.into_iter().chain(relays) {
        let [out, back] = [delay; 2].map(|delay| Link::default().with(Delay(delay)));
        lab.set_links(&name, out, back);
    }
}

/// A private Tor network with a client on node `client`, whose exit finds `names`.
pub(super) fn start(
    lab: &Lab,
    client: &str,
    names: &[(String, Ipv4Addr)],
    work: &Path,
    interrupt: &Interrupt,
) -> Result<TorNetwork, Failure> {
    let tor = TorNetwork::start_while(lab, client, names, work, TorNetwork::PATIENCE, &|| {
        !interrupt.is_set()
    });
    tor.map_err(|error| match interrupt.is_set() {
        true => Broken::Interrupted.into(),
        false => Failure::usage(error.to_string())
            .hint(error.hint().unwrap_or("`headstart doctor` checks what this machine allows")),
    })
}

/// The failure when [`TorNetwork::is_running`] returns false.
pub(super) fn ended() -> Failure {
    Failure::usage("a process of the private Tor network has ended")
        .hint("run it again; if it ends again, is there memory?")
}

/// The command of an agent that goes through the Tor client on its node as this user, and is told
/// when to wait for it.
pub(super) fn agent_command(
    client: &Node,
    program: &Path,
    user: &str,
    optimistic: &str,
) -> Command {
    let mut command = client.command(program);
    command.args(["agent", "--upstream-optimistic", optimistic]);
    // Nothing of the user's own agent; and no password on a command line, as docs/optimistic.md has
    // it.
    command
        .env_clear()
        .env("HEADSTART_AGENT_UPSTREAM", format!("socks5://{user}:lab@{}", TorNetwork::SOCKS));
    command
}

/// An agent beside the client.
fn agent(lab: &Lab, program: &Path, arm: Arm, interrupt: &Interrupt) -> Result<Program, Failure> {
    let client = node(lab, CLIENT)?;
    let at = SocketAddr::from(([127, 0, 0, 1], arm.port()));
    let mut command = agent_command(client, program, UPSTREAM_USER, arm.option());
    command.args(["--listen", &at.to_string()]);
    let mut agent = Program::start(client, format!("the agent of {}", arm.name()), command)?;
    await_port(client, at, &mut agent, interrupt)?;
    Ok(agent)
}

/// The share of pairs whose arms were on one circuit; none without pairs.
fn same_circuit(pairs: &Pairs) -> Option<f64> {
    let circuits = pairs.values().map(|arms| {
        let [waiting, optimistic] = [Arm::Waiting, Arm::Optimistic]
            .map(|arm| arms.get(arm.name()).and_then(|visited| visited.circuit.as_ref()));
        waiting.is_some() && waiting == optimistic
    });
    let same: Vec<_> = circuits.collect();
    let count = same.iter().filter(|same| **same).count();
    (!same.is_empty()).then(|| count as f64 / same.len() as f64)
}

/// Returns the time saved to the first response byte, pair by pair, in ms and as a share of the
/// circuit's round trip.
fn saved(pairs: &Pairs, rtt: Duration) -> Value {
    let suites = Suite::ALL.into_iter().map(|suite| {
        let own = pairs.iter().filter(|((_, of), _)| *of == suite);
        let saved: Vec<f64> = own
            .filter_map(|(_, arms)| {
                let [waiting, optimistic] = [Arm::Waiting, Arm::Optimistic]
                    .map(|arm| arms.get(arm.name())?.trial.ms_to_first_response_byte);
                Some(waiting? - optimistic?)
            })
            .collect();
        let ms = Summary::from_samples(&saved);
        let share = ms.and_then(|ms| ms.p50).map(|ms| ms / (rtt.as_secs_f64() * 1e3));
        let saved = json!({ "ms_to_first_response_byte": ms, "circuit_round_trips": share });
        (suite.name().to_owned(), saved)
    });
    suites.collect()
}

fn version() -> String {
    cell::version(Path::new("tor"), "--version").unwrap_or_default()
}
