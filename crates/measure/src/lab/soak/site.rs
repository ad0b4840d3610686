//! The site of a soak: a fleet of edges with Redis, their origins, and an agent beside the clients.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headstart_emulation::{Balance, Host, Lab, Node};
use headstart_openers::{Identity, NAME, Suite};

use super::load::Places;
use super::spec::{EDGES, Part};
use crate::interrupt::Interrupt;
use crate::lab::listening::{await_port, await_socket};
use crate::lab::process::{Broken, Program, product, this_program};
use crate::lab::topology::{HTTPS, server_address};
use crate::network;
use headstart::base::failure::Failure;

/// Address that the edges share, and that of Redis.
const SITE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const STORE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 98, 0, 1)), 6379);

/// Ports of origins, of the links between edges, and of the agent.
const ORIGIN: u16 = 8080;
const LINK: u16 = 4433;
const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

const CLIENT: &str = "client";

/// Bytes of a first flight with the second certificate, by which the two differ in length, too.
const LONGER: usize = 3_000;

/// Library by which the clocks of processes are set, and the variable that names the file.
const CLOCK: &str = include_str!("clock.c");
const CLOCK_FILE: &str = "HEADSTART_LAB_CLOCK";

/// Amount by which clocks jump: more than any tolerance, less than the life of a certificate.
const JUMP: Duration = Duration::from_secs(3_600);

/// The processes and the network between them.
pub(super) struct Site {
    /// Ended before the lab.
    programs: BTreeMap<Part, Program>,
    pub(super) lab: Lab,
    files: PathBuf,
    product: PathBuf,
    peer: PathBuf,
    identities: [Identity; 2],
    /// Library that sets clocks, where the machine has a C compiler.
    clock: Option<PathBuf>,
    /// Half of the round trip.
    delay: Duration,
}

impl Site {
    /// Builds the network and starts all processes; keys lie in `files`.
    pub(super) fn start(
        files: PathBuf,
        rtt: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let delay = rtt / 2;
        let edges = (0..EDGES).map(|number| {
            Host::new(Part::Edge(number).to_string())
                .address(own(number))
                .shared_address(SITE, Balance::Flow)
        });
        let client = Host::new(CLIENT).path(path(delay, "")?);
        let store = Host::new(Part::Redis.to_string()).address(STORE.ip());
        let lab = Lab::build([client, store].into_iter().chain(edges).collect());
        let lab = lab.map_err(|error| network::not_built(&error))?;
        let identities = [identity(&files, None)?, identity(&files, Some(LONGER))?];
        let clock = clock_library(&files);
        let (product, peer, programs) = (product()?, this_program()?, BTreeMap::new());
        let mut site = Self { programs, lab, files, product, peer, identities, clock, delay };
        site.write_files()?;
        for part in all() {
            site.start_part(part, interrupt)?;
        }
        Ok(site)
    }

    fn write_files(&self) -> Result<(), Broken> {
        let roots = self.identities.iter().map(|identity| fs::read_to_string(identity.root_file()));
        let roots = roots.collect::<io::Result<String>>();
        let written = roots.and_then(|text| fs::write(self.roots(), text));
        written.map_err(|error| Broken::unwritten(&self.roots(), &error))?;
        self.certify(0)?;
        let fleet = self.file("fleet");
        self.keys("new", &["--fleet".as_ref(), fleet.as_path()])?;
        let edges =
            (0..EDGES).map(|number| format!("edge {} {}:{LINK}\n", number + 1, own(number)));
        let file = File::options().append(true).open(&fleet);
        let written =
            file.and_then(|mut file| file.write_all(edges.collect::<String>().as_bytes()));
        written.map_err(|error| Broken::unwritten(&fleet, &error))?;
        all().try_for_each(|part| self.set_clock(part, Duration::ZERO))
    }

    /// Puts one of the two certificates into the files that edges read, and its key.
    pub(super) fn certify(&self, number: usize) -> Result<(), Broken> {
        let identity = &self.identities[number % self.identities.len()];
        for (from, name) in [(identity.chain_file(), "chain.pem"), (identity.key_file(), "key.pem")]
        {
            let (new, to) = (self.file("new.pem"), self.file(name));
            let moved = fs::copy(from, &new).and_then(|_| fs::rename(&new, &to));
            moved.map_err(|error| Broken::unwritten(&to, &error))?;
        }
        Ok(())
    }

    /// Makes the next key of the ring current.
    pub(super) fn rotate_keys(&self) -> Result<(), Broken> {
        self.ring("rotate")
    }

    /// Has the client's network drop UDP, or pass it again.
    pub(super) fn block_udp(&self, blocked: bool) -> Result<(), Failure> {
        let path = path(self.delay, if blocked { ", drop udp" } else { "" })?;
        match self.lab.set_path(CLIENT, path) {
            true => Ok(()),
            false => Err(Failure::usage("the client's network cannot be changed")),
        }
    }

    /// Has the wall clocks of the first edge and of the agent jump ahead, or back.
    pub(super) fn set_clocks(&self, ahead: bool) -> Result<(), Broken> {
        let time = if ahead { JUMP } else { Duration::ZERO };
        [Part::Edge(0), Part::Agent].into_iter().try_for_each(|part| self.set_clock(part, time))
    }

    fn set_clock(&self, part: Part, ahead: Duration) -> Result<(), Broken> {
        let file = self.file(&format!("clock-{part}"));
        // In place: the process has it in its memory.
        let opened = File::options().create(true).truncate(false).write(true).open(&file);
        let written = opened.and_then(|mut to| to.write_all(&ahead.as_secs().to_ne_bytes()));
        written.map_err(|error| Broken::unwritten(&file, &error))
    }

    pub(super) const fn sets_clocks(&self) -> bool {
        self.clock.is_some()
    }

    /// Kills a process.
    pub(super) fn kill(&mut self, part: Part) {
        drop(self.programs.remove(&part));
    }

    /// Starts a process, and waits until it serves.
    pub(super) fn start_part(&mut self, part: Part, interrupt: &Interrupt) -> Result<(), Broken> {
        let node = self.node(part)?;
        let (command, listens) = match part {
            Part::Redis => (self.redis(node), STORE),
            Part::Origin(number) => (self.origin(node, number), (own(number), ORIGIN).into()),
            Part::Edge(number) => (self.edge(node, number), site()),
            Part::Agent => (self.agent(node), PROXY),
        };
        let mut program = Program::start(node, part.to_string(), command)?;
        await_port(node, listens, &mut program, interrupt)?;
        match part {
            // It has lost its ring, if it had one.
            Part::Redis => self.ring("new")?,
            Part::Agent => await_socket(&self.file("agent"), &mut program, interrupt)?,
            Part::Origin(_) | Part::Edge(_) => {}
        }
        self.programs.insert(part, program);
        Ok(())
    }

    /// Checks that all processes run, but for those that were killed.
    pub(super) fn check(&mut self) -> Result<(), Broken> {
        self.programs.values_mut().try_for_each(Program::check)
    }

    pub(super) fn pid(&self, part: Part) -> Option<u32> {
        self.programs.get(&part).map(Program::pid)
    }

    pub(super) fn client(&self) -> Result<&Node, Broken> {
        self.node(Part::Agent)
    }

    pub(super) fn places(&self) -> Places {
        Places {
            site: site(),
            proxy: PROXY,
            socket: self.file("agent"),
            identities: self.file("identities"),
            roots: self.roots(),
        }
    }

    /// The node of a process: origins are beside their edges, and the agent beside the clients.
    fn node(&self, part: Part) -> Result<&Node, Broken> {
        let name = match part {
            Part::Origin(number) | Part::Edge(number) => Part::Edge(number).to_string(),
            Part::Redis => part.to_string(),
            Part::Agent => CLIENT.to_owned(),
        };
        self.lab.node(&name).ok_or_else(|| Broken::Program(format!("there is no node {name}")))
    }

    fn redis(&self, node: &Node) -> Command {
        let mut command = node.command("redis-server");
        let (ip, port) = (STORE.ip().to_string(), STORE.port().to_string());
        command.args(["--bind", &ip, "--port", &port, "--protected-mode", "no"]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.args(["--loglevel", "warning", "--dir"]).arg(&self.files);
        command
    }

    fn origin(&self, node: &Node, number: u8) -> Command {
        let mut command = node.command(&self.peer);
        command.args(["lab", "peer", "origin", "--listen"]);
        command.arg(SocketAddr::from((own(number), ORIGIN)).to_string());
        command
    }

    fn edge(&self, node: &Node, number: u8) -> Command {
        let mut command = self.timed(node, Part::Edge(number));
        command.args(["edge", "--log", "error", "--listen", &site().to_string()]);
        command.args(["--origin", &format!("http://{}:{ORIGIN}", own(number))]);
        command.arg("--cert").arg(self.file("chain.pem")).arg("--key").arg(self.file("key.pem"));
        command.arg("--fleet").arg(self.file("fleet"));
        command.args(["--fleet-edge", &(number + 1).to_string(), "--keys", &store()]);
        command.args(["--early-data-requests", "safe"]);
        command.args(["--early-data-filter", &store()]);
        command
    }

    fn agent(&self, node: &Node) -> Command {
        let mut command = self.timed(node, Part::Agent);
        command.args(["agent", "--log", "error", "--listen", &PROXY.to_string()]);
        command.args(["--edge", &format!("{NAME}={}", site())]);
        command.arg("--socket").arg(self.file("agent"));
        command
    }

    /// The product, as a process whose clock can be set.
    fn timed(&self, node: &Node, part: Part) -> Command {
        let mut command = node.command(&self.product);
        if let Some(library) = &self.clock {
            command.env("LD_PRELOAD", library);
            command.env(CLOCK_FILE, self.file(&format!("clock-{part}")));
        }
        command
    }

    fn ring(&self, action: &str) -> Result<(), Broken> {
        let (store, fleet) = (PathBuf::from(store()), self.file("fleet"));
        self.keys(action, &[store.as_path(), "--fleet".as_ref(), fleet.as_path()])
    }

    /// Runs `headstart keys` beside Redis.
    fn keys(&self, action: &str, arguments: &[&Path]) -> Result<(), Broken> {
        let mut command = self.node(Part::Redis)?.command(&self.product);
        let done = command.args(["keys", action]).args(arguments).output();
        let done = done.map_err(|error| error.to_string()).and_then(|output| {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(error)
        });
        done.map_err(|why| Broken::Program(format!("headstart keys {action}: {}", why.trim())))
    }

    fn roots(&self) -> PathBuf {
        self.file("roots.pem")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }
}

/// All processes, in the order in which they start.
fn all() -> impl Iterator<Item = Part> {
    let pairs = (0..EDGES).flat_map(|number| [Part::Origin(number), Part::Edge(number)]);
    [Part::Redis].into_iter().chain(pairs).chain([Part::Agent])
}

/// Processes of the product, which are looked at.
pub(super) fn watched() -> impl Iterator<Item = Part> {
    all().filter(|part| matches!(part, Part::Edge(_) | Part::Agent))
}

fn own(edge: u8) -> Ipv4Addr {
    server_address(edge, 0, 0)
}

fn site() -> SocketAddr {
    (SITE, HTTPS).into()
}

fn store() -> String {
    format!("redis://{STORE}?name=soak")
}

fn path(delay: Duration, more: &str) -> Result<headstart_emulation::Path, Failure> {
    let text = format!("delay {}us{more}", delay.as_micros());
    text.parse().map_err(|error| Failure::usage(format!("rtt: '{text}': {error}")))
}

fn identity(files: &Path, flight: Option<usize>) -> Result<Identity, Failure> {
    let identity = Identity::obtain(&files.join("identities"), Suite::P256, NAME, flight);
    identity.map_err(|error| network::failed(&error))
}

/// Compiles the library that sets clocks; `None` without a C compiler.
fn clock_library(files: &Path) -> Option<PathBuf> {
    let [source, library] = ["clock.c", "clock.so"].map(|name| files.join(name));
    fs::write(&source, CLOCK).ok()?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    let status = compiler.stdin(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then_some(library)
}
