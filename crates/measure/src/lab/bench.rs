//! Benchmarks on loopback: the load that proxies and programs that speak TLS sustain, beside each
//! other and under attack. bench/README.md tells what is compared, and what came out.
//!
//! Everything happens on one node, in whose namespace 198.18.0.0/15 (RFC 2544, for benchmarks) is
//! local, so that traffic has as many true source addresses as it needs. All arms run at the same
//! time and have their turns in changing order; a turn is a row of the results unless each exchange
//! is.

mod attack;
mod flood;
mod honest;
mod outcome;
mod programs;
mod siege;
mod spec;
mod tcp;
mod turbo;
mod web;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Host, Lab, Node};
use headstart_openers::{Identity, NAME, Suite, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cell::{scrape, version};
use super::environment::About;
use super::process::{Broken, Program, find_program, product};
use super::runner::{Outline, Run, Scenario};
use super::summary::CellFacts;
use super::trial::{Key, Row};
use crate::lab::options::LabRunOptions;
use crate::network;
use attack::Attack;
use flood::{Account, Flood, Source};
use headstart::base::failure::Failure;
use honest::{Honest, Times};
use outcome::{Besieged, Reading, Turn};
pub(super) use outcome::{Outcome, text};
use programs::{Access, Contender, Starter, cannot, differs, installed, metrics};
use siege::{Attackers, Done, Kind, Siege};
pub(super) use spec::{Benchmark, all, find};
use spec::{OTHER, QUIET_MAX, Subject, Variant, Work as Load};
use web::Way;
use work::{Place, Work};

/// The column `link` of all rows.
const LINK: &str = "loopback";

/// Files here are memory, and what was never written of them takes none: reading it costs no disk.
const MEMORY: &str = "/dev/shm";

/// Load before a turn is measured, and exchanges of each client until sessions are there: windows
/// have opened by then. A client without any after [`SETTLE_MAX`] has none in its turn.
const SETTLE: Duration = Duration::from_millis(200);
const SETTLE_EXCHANGES: u64 = 4;
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Pause after a turn: what is left of it is then over, such as connections that are being closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest time in which the connections that wait during a turn are opened.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// Time in which a connection that was ended is open again, at the end of a turn.
const RETURNED_MAX: Duration = Duration::from_secs(1);

/// Nice value of attackers: honest clients, with whom they share a CPU, go first.
const NICE: i32 = 19;

/// Load before memory is looked at.
const WARM_UP: Duration = Duration::from_secs(1);

/// TCP clients during an attack.
const TCP_CLIENTS: u16 = 32;

/// Room for the connections of a run: those in TIME-WAIT would fill the ports of one address. None
/// has a port of the programs, which could not listen there meanwhile.
const SYSCTLS: [(&str, &str); 3] = [
    ("/proc/sys/net/ipv4/ip_local_port_range", "10000 65000"),
    ("/proc/sys/net/ipv4/tcp_max_tw_buckets", "1024"),
    ("/proc/sys/net/core/somaxconn", "4096"),
];

/// Counters of the edge that tell what became of an attack.
const COUNTED: [&str; 3] =
    ["headstart_udp_datagrams_total", "headstart_limits_hit_total", "headstart_sessions_unproven"];

/// A run of a benchmark.
pub(super) struct Bench {
    bench: Benchmark,
    text: String,
    quick: bool,
    product: PathBuf,
    other: PathBuf,
    ground: Option<Ground>,
    outcome: Outcome,
}

/// State of the whole run.
struct Ground {
    /// The origin, where it is a program of its own.
    _program: Option<Program>,
    lab: Lab,
    folder: TempDir,
    identity: Identity,
    /// A key that is slow to sign with.
    rsa: Option<Identity>,
    origin: SocketAddr,
    cpus: Cpus,
    /// Takes datagrams of attackers, and is never read.
    unread: UdpSocket,
}

/// CPUs for the parts of a benchmark; each `None` if they share all.
#[derive(Debug, Clone, Copy, Default)]
struct Cpus {
    load: Option<usize>,
    programs: Option<usize>,
    origin: Option<usize>,
}

impl Ground {
    fn node(&self) -> Result<&Node, Failure> {
        self.lab.nodes().first().ok_or_else(|| Failure::usage("the lab has no node"))
    }

    fn place(&self) -> Result<Place<'_>, Failure> {
        Ok(Place { node: self.node()?, cpu: self.cpus.load, nice: 0 })
    }
}

impl Bench {
    /// Plans a run; `text` is the benchmark as it is written beside its results.
    pub(super) fn new(
        options: &LabRunOptions,
        mut bench: Benchmark,
        text: String,
    ) -> Result<Self, Failure> {
        if options.full || options.pcap || !options.links.is_empty() {
            return Err(Failure::usage("a benchmark has no --full, --pcap or --link"));
        }
        let product = product()?;
        let other = options.beside.clone().unwrap_or_else(|| product.clone());
        if options.beside.is_some() && bench.bench == Subject::Attack {
            return Err(Failure::usage("an attack is on one edge, and has no --beside"));
        }
        if options.beside.is_some() {
            bench.arms.push(OTHER.to_owned());
        }
        let (quick, ground, outcome) = (options.quick, None, Outcome::new(bench.arms.clone()));
        let bench = Self { bench, text, quick, product, other, ground, outcome };
        for name in ["nginx", "haproxy"].into_iter().filter(|name| bench.needs(name)) {
            installed(name)?;
        }
        Ok(bench)
    }

    /// Returns true if an arm, or the origin, is this program.
    fn needs(&self, program: &str) -> bool {
        let is_managed = self.bench.bench == Subject::Managed;
        let is_behind = is_managed || self.bench.variant.iter().any(|variant| variant.passes);
        is_behind && program == "nginx"
            || self.bench.arms.iter().any(|arm| arm.starts_with(program))
    }

    fn starter<'s>(
        &'s self,
        ground: &'s Ground,
        variant: &Variant,
        run: &'s Run,
    ) -> Result<Starter<'s>, Failure> {
        let rsa = ground.rsa.as_ref().filter(|_| variant.has_slow_key());
        Ok(Starter {
            place: Place { node: ground.node()?, cpu: ground.cpus.programs, nice: 0 },
            folder: ground.folder.path(),
            bench: &self.bench,
            product: &self.product,
            other: &self.other,
            identity: rsa.unwrap_or(&ground.identity),
            origin: ground.origin,
            interrupt: &run.interrupt,
        })
    }

    /// Starts the arms of a variant.
    fn contenders(
        &self,
        ground: &Ground,
        variant: &Variant,
        run: &Run,
    ) -> Result<Vec<Contender>, Failure> {
        let starter = self.starter(ground, variant, run)?;
        let mut all = Vec::new();
        for (number, arm) in (0..).zip(self.bench.arms_of(variant)) {
            match starter.start(arm, number, variant)? {
                Some(contender) => all.push(contender),
                None => run
                    .progress
                    .note(&format!("{}: without {arm}: install libnginx-mod-stream", variant.name)),
            }
        }
        // Under attack, each is compared with itself before.
        let speaks_tls = matches!(self.bench.bench, Subject::Handshakes | Subject::Managed);
        if let Some(why) = differs(&all).filter(|_| speaks_tls) {
            // A short run shows the shape of results, not who is faster.
            if !self.quick {
                return Err(Failure::usage(format!("{why}, so versions of it would be compared"))
                    .hint("build with the system's OpenSSL, see bench/README.md"));
            }
            run.progress.note(&format!("note: {why}: figures are not comparable"));
        }
        Ok(all)
    }

    fn key(&self, variant: &Variant, arm: &str) -> Key {
        Key {
            experiment: self.bench.name.clone(),
            link: LINK.to_owned(),
            variant: variant.name.clone(),
            suite: String::new(),
            arm: arm.to_owned(),
        }
    }

    /// Takes a turn, and adds its rows.
    fn turn(
        &mut self,
        ground: &Ground,
        variant: &Variant,
        round: u32,
        on: &mut Contender,
        run: &mut Run,
    ) -> Result<(), Failure> {
        on.program.as_mut().map_or(Ok(()), Program::check)?;
        let time = self.bench.turn(variant, self.quick);
        let waiting = hold(ground.place()?, variant, on).map_err(cannot)?;
        let work = load(ground.place()?, variant, on).map_err(cannot)?;
        settle(&work, variant);
        let before = Reading::take(&work, on, ground.cpus.programs);
        thread::sleep(time);
        let after = Reading::take(&work, on, ground.cpus.programs);
        let trials = work.end().map_err(cannot)?;
        if let Some(waiting) = waiting {
            // One that a client opens anew is soon back.
            all_wait(&waiting, variant.held(), RETURNED_MAX).map_err(cannot)?;
            waiting.stop().map_err(cannot)?;
        }
        let turn = Turn::new(variant, &on.arm, round, before, after);
        let rows = match variant.work {
            Load::Connections(count) if count.get() == 1 => turn.trials(variant, trials, before),
            _ => vec![turn.trial(variant, &trials)],
        };
        self.add(variant, round, turn, rows, run)
    }

    /// Adds a turn and its rows.
    fn add(
        &mut self,
        variant: &Variant,
        round: u32,
        turn: Turn,
        rows: Vec<Trial>,
        run: &mut Run,
    ) -> Result<(), Failure> {
        let key = self.key(variant, turn.arm());
        let first = run.groups.iter().find(|group| group.key == key).map_or(0, |group| group.n);
        for (number, trial) in (1 + u32::try_from(first).unwrap_or(u32::MAX)..).zip(rows) {
            run.add(&Row::new(key.clone(), number, round, Duration::ZERO, trial), Duration::ZERO)?;
        }
        self.outcome.turns.push(turn);
        thread::sleep(PAUSE);
        run.progress.step();
        match run.interrupt.is_set() {
            true => Err(Broken::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Adds what is known of whole cells, and what came of an attack.
    fn conclude_variant(
        &self,
        ground: &Ground,
        variant: &Variant,
        violation: Option<String>,
        account: Option<Value>,
        run: &mut Run,
    ) -> Result<(), Failure> {
        if let Some(why) = &violation {
            run.progress.note(&format!("broken: {}: {why}", variant.name));
        }
        for arm in self.bench.arms_of(variant) {
            let key = self.key(variant, arm);
            let load = self.outcome.totals(&variant.name, arm);
            let kept = self.outcome.kept(&variant.name, arm);
            let broken = violation.clone().filter(|_| arm == "edge");
            let facts = CellFacts { load, broken, kept, ..CellFacts::default() };
            run.groups.tell(|of| *of == key, &facts);
        }
        if let Some(account) = account {
            let text = scrape(ground.node()?.namespace(), metrics()).unwrap_or_default();
            let lines = text.lines();
            let counters: Vec<_> =
                lines.filter(|line| COUNTED.iter().any(|name| line.starts_with(name))).collect();
            let found = json!({ "account": account, "counters": counters });
            run.environment.add(&format!("attack: {}", variant.name), found);
        }
        Ok(())
    }

    fn measure(&mut self, ground: &Ground, number: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(variant) = self.bench.variant.get(number).cloned() else { return Ok(()) };
        let variant = &variant;
        let mut contenders = self.contenders(ground, variant, run)?;
        for contender in &contenders {
            run.groups.expect(self.key(variant, &contender.arm), Duration::ZERO);
        }
        let mut attack = self.attack(ground, variant, number, &contenders)?;
        // Of sieges: what came back to forged addresses.
        let mut account = Account::default();
        let count = contenders.len();
        for round in 1..=self.bench.rounds(variant, self.quick) {
            // Another order each round: what a turn leaves behind meets each arm alike.
            let first = usize::try_from(round).unwrap_or_default() % count.max(1);
            for at in (first..count).chain(0..first) {
                let Some(on) = contenders.get_mut(at) else { continue };
                match (&mut attack, variant.work) {
                    (Some(attack), _) => {
                        self.attacked_turn(attack, ground, variant, round, on, run)?;
                    }
                    (None, Load::Siege(siege)) => {
                        let facts = self.siege(siege, ground, variant, round, on, run)?;
                        account.add(&facts);
                    }
                    (None, _) => self.turn(ground, variant, round, on, run)?,
                }
            }
        }
        let is_siege = matches!(variant.work, Load::Siege(_));
        let wrong = (account.wrong > 0).then(|| format!("{} wrong answers", account.wrong));
        let violation = attack.as_ref().map_or(wrong, Attack::violation);
        let account = attack.map(|attack| json!(attack)).or(is_siege.then(|| json!(account)));
        self.conclude_variant(ground, variant, violation, account, run)
    }

    /// Prepares an attack, if the variant has one.
    fn attack(
        &self,
        ground: &Ground,
        variant: &Variant,
        number: usize,
        contenders: &[Contender],
    ) -> Result<Option<Attack>, Failure> {
        let Load::Flood(kind) = variant.work else { return Ok(None) };
        let mut edges = contenders.iter().filter_map(|one| match (&one.access, &one.program) {
            (Access::Relay(at), Some(program)) => Some((*at, program)),
            _ => None,
        });
        let (Some((at, edge)), None) = (edges.next(), edges.next()) else {
            return Err(Failure::usage("an attack is on one edge"));
        };
        let place = ground.place()?;
        // What TCP needs is there before memory is looked at.
        let warm_up = tcp::clients(place, at, TCP_CLIENTS).map_err(cannot)?;
        thread::sleep(WARM_UP);
        warm_up.end().map_err(cannot)?;
        let stage = u32::try_from(number).unwrap_or_default();
        let resident = attack::resident(edge.pid()).map_err(cannot)?;
        Attack::new(place, kind, stage, at, resident).map_err(cannot).map(Some)
    }

    /// Takes a turn while datagrams come to the edge, or to the socket that nobody reads.
    fn attacked_turn(
        &mut self,
        attack: &mut Attack,
        ground: &Ground,
        variant: &Variant,
        round: u32,
        on: &mut Contender,
        run: &mut Run,
    ) -> Result<(), Failure> {
        let (place, edge) = (ground.place()?, on.program.as_ref().map(Program::pid));
        let target = match (&on.access, edge) {
            (Access::Relay(at), Some(_)) => *at,
            _ => ground.unread.local_addr().map_err(cannot)?,
        };
        let sent = attack::datagrams_sent(place.node).map_err(cannot)?;
        let flood = attack.start(place, round, target, self.bench.rate).map_err(cannot)?;
        let taken = self.turn(ground, variant, round, on, run);
        let account = flood.stop().map_err(cannot)?;
        taken?;
        if let Some(pid) = edge {
            let left = attack::datagrams_sent(place.node).map_err(cannot)? - sent;
            attack.add(&account, left, attack::resident(pid).map_err(cannot)?);
        }
        Ok(())
    }

    /// Takes a turn with honest clients before, during and after an attack by others. Returns what
    /// came back to forged addresses.
    fn siege(
        &mut self,
        siege: Siege,
        ground: &Ground,
        variant: &Variant,
        round: u32,
        on: &mut Contender,
        run: &mut Run,
    ) -> Result<Account, Failure> {
        let (Access::Web(way @ Way::Direct(server)), Some(program)) = (&on.access, &mut on.program)
        else {
            return Err(Failure::usage("a siege is of servers that speak TLS"));
        };
        program.check()?;
        let (pid, target) = (program.pid(), server.address());
        let (place, time) = (ground.place()?, self.bench.turn(variant, self.quick));
        let is_spoofed = siege.kind == Kind::SpoofedHellos;
        let unread = ground.unread.local_addr().map_err(cannot)?;
        let honest = Honest::start(place, way, self.bench.honest).map_err(cannot)?;
        let start_flood = |target| {
            let source = Source::new(flood::Kind::WellFormed, round, &[])?;
            Flood::start(Place { nice: NICE, ..place }, source, target, siege.rate)
        };
        thread::sleep(SETTLE);
        let cpu = ground.cpus.programs;

        // Making datagrams costs honest clients something as well.
        let unread = is_spoofed.then(|| start_flood(unread)).transpose().map_err(cannot)?;
        let before = Reading::take(&honest.work, on, cpu);
        thread::sleep(time.min(QUIET_MAX));
        let after = Reading::take(&honest.work, on, cpu);
        unread.map(Flood::stop).transpose().map_err(cannot)?;
        let is_quiet = (before.at(), after.at());
        let resident = attack::resident(pid).map_err(cannot)?;
        let resident = *on.resident.get_or_insert(resident);

        let flood = is_spoofed.then(|| start_flood(target)).transpose().map_err(cannot)?;
        let attackers =
            Attackers::start(Place { nice: NICE, ..place }, siege, target).map_err(cannot)?;
        attackers.begun(siege.connections, SETTLE_MAX);
        thread::sleep(siege.begins());
        let before = Reading::take(&honest.work, on, cpu);
        thread::sleep(time / 2);
        let half = attack::resident_now(pid).map_err(cannot)?;
        let held = attackers.done().held;
        let held_kib = half.saturating_sub(resident) as f64 / 1024.0 / held as f64;
        thread::sleep(time / 2);
        let after = Reading::take(&honest.work, on, cpu);
        let late = attack::resident_now(pid).map_err(cannot)?.saturating_sub(half);
        let done = attackers.done();
        attackers.stop().map_err(cannot)?;
        let end = Instant::now();
        let account = flood.map(Flood::stop).transpose().map_err(cannot)?.unwrap_or_default();

        let log = honest.log.clone();
        // Read late, as those in flight at the end of a time are part of it.
        let times = |from, to| log.times(from, to).unwrap_or(Times::NEVER);
        let quiet = times(is_quiet.0, is_quiet.1);
        let recovery = honest.recovery(end, quiet.p50);
        let most = attack::resident(pid).map_err(cannot)?;
        let trials = honest.work.end().map_err(cannot)?;
        let Times { per_s, p50, p99 } = times(before.at(), after.at());
        let besieged = Besieged {
            quiet_per_s: quiet.per_s,
            quiet_p50_ms: quiet.p50,
            quiet_p99_ms: quiet.p99,
            honest_per_s: per_s,
            p50_ms: p50,
            p99_ms: p99,
            grown_mb: most.saturating_sub(resident) as f64 / 1e6,
            held_kib: (held > 0).then_some(held_kib),
            late_mb: late as f64 / 1e6,
            recovery_s: recovery.as_secs_f64(),
            attackers: Done { sent: done.sent + account.sent, ..done },
        };
        let turn = Turn::new(variant, &on.arm, round, before, after).besieged(besieged);
        let rows = vec![turn.trial(variant, &trials)];
        self.add(variant, round, turn, rows, run)?;
        Ok(account)
    }

    /// Makes the node, the files and the origin of a run.
    fn ground(&self, run: &Run) -> Result<Ground, Failure> {
        let lab = Lab::build(vec![Host::new("bench")]);
        let lab = lab.map_err(|error| network::not_built(&error))?;
        let folder = tempfile::tempdir_in(MEMORY).map_err(cannot)?;
        let identity = Identity::obtain(folder.path(), Suite::P256, NAME, None);
        let identity = identity.map_err(|error| network::failed(&error))?;
        let rsa = self.bench.variant.iter().any(Variant::has_slow_key);
        let rsa = rsa.then(|| Identity::obtain(folder.path(), Suite::RsaChain, NAME, None));
        let rsa = rsa.transpose().map_err(|error| network::failed(&error))?;
        let cpus = Cpus::new(self.bench.bench)?;
        let node = lab.nodes().first().ok_or_else(|| Failure::usage("the lab has no node"))?;
        prepare(node).map_err(cannot)?;
        let place = Place { node, cpu: cpus.origin, nice: 0 };
        let unread = node.run(|| UdpSocket::bind("127.0.0.1:0")).flatten().map_err(cannot)?;
        let (origin, program) = match self.bench.bench {
            Subject::Managed => {
                let (origin, interrupt) = (Starter::origin_address(), &run.interrupt);
                let (folder, bench, identity) = (folder.path(), &self.bench, &identity);
                let (product, other) = (&*self.product, &*self.other);
                let starter =
                    Starter { place, folder, bench, product, other, identity, origin, interrupt };
                (origin, Some(starter.origin()?))
            }
            Subject::Handshakes | Subject::AttackHttp => {
                (tcp::serve(place, web::answer).map_err(cannot)?, None)
            }
            _ => (tcp::serve(place, tcp::answer).map_err(cannot)?, None),
        };
        Ok(Ground { _program: program, lab, folder, identity, rsa, origin, cpus, unread })
    }
}

impl Scenario for Bench {
    type Extra = Outcome;

    fn outline(&self) -> Outline {
        let (bench, quick) = (&self.bench, self.quick);
        let versions = ["nginx", "haproxy"].into_iter().filter(|name| self.needs(name));
        let versions = versions
            .filter_map(|name: &'static str| Some((name, version(&find_program(name)?, "-v")?)));
        Outline {
            name: bench.name.clone(),
            text: self.text.clone(),
            stages: bench.stages(),
            cells: bench.cells(),
            turns: bench.turns(quick),
            estimate: bench.estimate(quick),
            bars: bench.bar.clone(),
            about: About {
                quick,
                programs: versions.collect(),
                sysctls: BTreeMap::from(SYSCTLS),
                ..About::default()
            },
        }
    }

    fn build(&mut self, run: &mut Run) -> Result<(), Failure> {
        self.ground = Some(self.ground(run)?);
        Ok(())
    }

    fn stage(&mut self, number: usize, run: &mut Run) -> Result<(), Failure> {
        let Some(ground) = self.ground.take() else { return Ok(()) };
        let measured = self.measure(&ground, number, run);
        self.ground = Some(ground);
        measured
    }

    fn conclude(mut self, run: &mut Run) -> Result<Outcome, Failure> {
        self.outcome.compare();
        run.folder.add_file(outcome::FILE, &self.outcome)?;
        if let Some(Ground { cpus: Cpus { load, programs, origin }, .. }) = self.ground {
            let cpus = json!({ "load": load, "programs": programs, "origin": origin });
            run.environment.add("pinned_to", cpus);
        }
        Ok(self.outcome)
    }
}

impl Cpus {
    /// Gives servers that are compared a CPU for themselves, on which they take turns; what speaks
    /// TLS for a client shares the client's, as on a machine where both have work to do.
    fn new(subject: Subject) -> Result<Self, Failure> {
        if !(subject.terminates() || subject == Subject::Managed) {
            return Ok(Self::default());
        }
        let set = sched_getaffinity(None).map_err(|error| cannot(error.into()))?;
        let mut all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
        let (Some(first), Some(second)) = (all.next(), all.next()) else {
            return Err(Failure::usage("server and client need a CPU each, and there is one"));
        };
        let (load, other) = (Some(second), Some(first));
        Ok(match subject {
            Subject::Managed => Self { load, programs: load, origin: other },
            _ => Self { load, programs: other, origin: load },
        })
    }
}

/// Makes room for addresses, ports and connections.
fn prepare(node: &Node) -> io::Result<()> {
    node.run(|| SYSCTLS.iter().try_for_each(|(file, value)| fs::write(file, value)))??;
    let route = ["route", "add", "local", "198.18.0.0/15", "dev", "lo"];
    if !node.run(|| node.command("ip").args(route).status())??.success() {
        return Err(io::Error::other("ip cannot add a route"));
    }
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Waits until a load is as it is in the middle.
fn settle(work: &Work, variant: &Variant) {
    let until = Instant::now() + SETTLE_MAX;
    thread::sleep(SETTLE);
    let Load::Connections(clients) = variant.work else { return };
    let wanted = SETTLE_EXCHANGES * u64::from(clients.get());
    while work.counts().done < wanted && Instant::now() < until {
        thread::sleep(PAUSE);
    }
}

/// Opens the connections that wait during a turn, if there are any.
fn hold(place: Place<'_>, variant: &Variant, on: &Contender) -> io::Result<Option<Attackers>> {
    let count = variant.held();
    if count == 0 {
        return Ok(None);
    }
    let (kind, target) = match &on.access {
        Access::Relay(at) => (Kind::PassedOn, *at),
        Access::Web(Way::Direct(server)) => (Kind::Idle, server.address()),
        Access::Web(_) => return Err(io::Error::other("no connections are held by this way")),
    };
    let clients = Attackers::start(place, Siege::waiting(kind, count), target)?;
    all_wait(&clients, count, HOLD_MAX)?;
    Ok(Some(clients))
}

/// Checks that all connections wait, or begin to `within` this time.
fn all_wait(clients: &Attackers, count: u16, within: Duration) -> io::Result<()> {
    let held = clients.holding(count, within);
    let why = || io::Error::other(format!("{held} of {count} connections wait"));
    if held >= count.into() { Ok(()) } else { Err(why()) }
}

fn load(place: Place<'_>, variant: &Variant, on: &Contender) -> io::Result<Work> {
    match (&on.access, variant.work) {
        (Access::Relay(at), Load::Bulk(count)) => tcp::streams(place, *at, count.get().into()),
        (Access::Relay(at), Load::Connections(count)) => tcp::clients(place, *at, count.get()),
        (Access::Relay(at), Load::Flood(_)) => tcp::clients(place, *at, TCP_CLIENTS),
        (Access::Web(way), Load::Bulk(count)) => way.streams(place, count.get().into()),
        (Access::Web(way), Load::Connections(count)) => way.clients(place, count.get()),
        (_, Load::Flood(_) | Load::Siege(_)) => {
            Err(io::Error::other("work.flood and work.siege are of attacks alone"))
        }
    }
}
