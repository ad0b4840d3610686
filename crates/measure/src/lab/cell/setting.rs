//! State on which the programs of a cell depend: where things are, and what the arm asks for.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use headstart_emulation::Node;
use headstart_openers::{Arm, Carrier, Identity, NAME, Suite};

use super::fast_open::ClientSide;
use crate::lab::experiment::OriginKind;
use crate::lab::plan::{CellSpec, Stage};
use crate::lab::process::Broken;
use crate::lab::topology::{HTTPS, Site};

/// Port of the server behind an edge.
const BEHIND: u16 = 8443;

/// State that programs share over the whole run.
#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    /// The product, `headstart`.
    pub(crate) program: PathBuf,
    /// This program, which is every peer.
    pub(crate) peer: PathBuf,
    /// A folder for keys and configurations, which goes away with the run.
    pub(crate) work: PathBuf,
    /// Programs attached for clients with private cookies, if there are any.
    pub(crate) fast_open: Option<Arc<ClientSide>>,
    /// Where programs write qlog files, if they do.
    pub(crate) qlog: Option<PathBuf>,
}

/// All that starting a program of a cell depends on.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) place: RunContext,
    pub(super) stage: Stage,
    pub(super) spec: CellSpec,
    pub(super) number: usize,
    /// Addresses, at least one.
    pub(super) targets: Vec<Ipv4Addr>,
}

impl Setting {
    /// The folder of keys: servers of one suite and flight are the same one.
    pub(super) fn identities(&self) -> PathBuf {
        self.place.work.join(if self.stage.page.is_some() { "pages" } else { "identities" })
    }

    /// The keys of this cell's servers, for servers of other making.
    pub(super) fn identity(&self) -> Result<Identity, Broken> {
        let flight = self.stage.variant.flight.and_then(|bytes| usize::try_from(bytes).ok());
        Identity::obtain(&self.identities(), self.spec.suite, NAME, flight)
            .map_err(|error| Broken::Program(format!("no keys: {error}")))
    }

    /// This program.
    pub(super) fn program(&self) -> &Path {
        &self.place.program
    }

    pub(super) fn work(&self) -> &Path {
        &self.place.work
    }

    pub(super) fn response(&self) -> u64 {
        self.stage.response
    }

    pub(super) fn kind(&self) -> OriginKind {
        self.stage.variant.origin
    }

    pub(super) fn threads(&self) -> Option<u16> {
        self.stage.variant.threads
    }

    pub(super) fn suite(&self) -> Suite {
        self.spec.suite
    }

    /// Unique among the programs of a lab.
    pub(super) fn label(&self, node: &Node) -> String {
        format!("{}-{}", node.name(), self.number + 1)
    }

    /// Returns the directory of a server's pinned maps, in a run.
    pub(super) fn pins(&self, node: &Node) -> String {
        format!("{}-{}", self.stage.number + 1, node.name())
    }

    /// Returns the first address, to which clients connect.
    pub(super) fn target(&self) -> SocketAddr {
        let ip = self.targets.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        (ip, HTTPS).into()
    }

    /// Returns the addresses of an edge: HAProxy sends TCP to its own one, and routers send UDP to
    /// the shared one.
    pub(super) fn edge_address(&self) -> SocketAddr {
        match self.stage.has_haproxy() {
            true => (Ipv4Addr::UNSPECIFIED, HTTPS).into(),
            false => self.target(),
        }
    }

    /// Returns true if edges tell the origin who their clients are; the lab's server could not read
    /// it.
    pub(super) fn tells_clients(&self) -> bool {
        self.stage.has_haproxy() && self.kind() != OriginKind::Builtin
    }

    /// All addresses that clients connect to.
    pub(super) fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.targets.iter().map(|ip| (*ip, HTTPS).into())
    }

    /// Returns the origin's address: behind an edge, or where clients connect.
    pub(super) fn origin_address(&self, site: Site<'_>) -> SocketAddr {
        if self.has_edge() { (site.own, BEHIND).into() } else { self.target() }
    }

    /// Returns true if there is an edge before the origin, or what stands in its place.
    pub(super) fn has_edge(&self) -> bool {
        let arm = self.spec.arm;
        let hides_name = arm.encrypts_hello() && arm.opening().carrier == Carrier::TurboTls;
        arm.has_agent() || arm.has_haproxy() || hides_name || arm.is_of_programs()
    }

    /// The arm that a program itself has: beside an agent clients speak plain TLS, and servers too
    /// where they speak it at all.
    pub(super) fn spoken(&self, role: &str) -> Arm {
        match (self.spec.arm, role) {
            (Arm::TURBO_AGENT | Arm::TLS13_AGENT | Arm::TLS13_HAPROXY, _) => Arm::TLS13,
            (Arm::FOP_AGENT, "client") => Arm::TLS13_RESUMED,
            // The arm whose server speaks HTTP in clear.
            (arm, "server") if arm.is_of_programs() => Arm::FOP_AGENT,
            (arm, _) => arm,
        }
    }

    /// Returns the lifetime of cookies, for servers that hand them out.
    pub(super) fn cookie_life(&self) -> Option<String> {
        let life = self.stage.variant.cookie_life;
        let life = life.filter(|_| self.spec.arm.has_private_cookies());
        life.map(|life| format!("{}s", life.as_secs()))
    }

    pub(super) fn peer(&self, node: &Node, role: &str) -> Command {
        let mut command = node.command(&self.place.peer);
        command.args(["lab", "peer", role, "--arm", self.spoken(role).name()]);
        command.args(["--suite", self.spec.suite.name(), "--identity"]).arg(self.identities());
        self.schedule(&mut command);
        command
    }

    /// Makes a program go before others, where one connection at a time leaves it asleep most of
    /// the time.
    pub(super) fn schedule(&self, command: &mut Command) {
        if let Some(scheduling) = self.stage.scheduling(self.number) {
            scheduling.apply_to(command);
        }
    }

    /// Returns the name of a program in messages.
    pub(super) fn title(&self, role: &str) -> String {
        format!("{role} of {} {}", self.spec.arm, self.spec.suite)
    }
}

/// Adds an option with its value, if there is one.
pub(super) fn option(command: &mut Command, name: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        command.arg(name).arg(value.to_string());
    }
}
