//! Edges that know of each other: those of a fleet share keys and forward joins, and a successor
//! takes over from the edge before.

use std::fs::File;
use std::io::Write;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use headstart_emulation::Node;
use headstart_openers::Carrier;

use super::setting::Setting;
use super::{Cell, Context};
use crate::lab::process::Broken;
use crate::lab::topology::{HAPROXY_ADDRESS, Site, server_address};

/// Port at which the edges of a fleet take joins from each other.
const LINK: u16 = 4433;

/// First port of the metrics of edges that take over, and how many there are: each edge has another
/// one, and opens it once it serves.
const METRICS_PORTS: u16 = 26_000;
const METRICS_PORTS_MAX: u32 = 4_000;

impl Cell {
    /// Starts successors that take over from the edges in the middle of a load.
    pub(super) fn take_over(
        &mut self,
        context: Context<'_>,
        slice: Duration,
    ) -> Result<(), Broken> {
        thread::sleep(slice / 2);
        let sites: Vec<_> = context.topology.servers(self.setting.number).collect();
        // Edges come behind the servers that are their origins.
        for (edge, site) in self.servers.iter_mut().skip(sites.len()).zip(sites) {
            let next = self.setting.edge(site, self.turns, None, context.interrupt)?;
            self.predecessors.push(mem::replace(edge, next));
        }
        Ok(())
    }
}

impl Setting {
    /// Adds what an edge has to know of the others of its fleet, and of the edge before.
    pub(super) fn know_others(&self, command: &mut Command, site: Site<'_>) -> Result<(), Broken> {
        if self.stage.variant.fleet || self.spec.arm.shares_keys() {
            command.arg("--keys").arg(self.shared_keys(site.node)?);
        }
        if self.forwards_joins() {
            command.arg("--fleet").arg(self.fleet(site.node)?);
            command.args(["--fleet-edge", &(site.number + 1).to_string()]);
        }
        if self.stage.has_haproxy() {
            command.args(["--proxy-protocol-from", &HAPROXY_ADDRESS.to_string()]);
        }
        if self.tells_clients() {
            command.arg("--proxy-protocol");
        }
        if self.stage.variant.takeover {
            command.arg("--takeover").arg(self.file(&format!("takeover-{}", site.number + 1)));
        }
        Ok(())
    }

    /// Returns true if edges forward joins that reach the wrong one of them.
    ///
    /// Programs' edges need it as soon as their agent opens by TurboTLS; but early data over UDP
    /// rules it out, and needs a balancer that keeps each client at one edge.
    fn forwards_joins(&self) -> bool {
        let arm = self.spec.arm;
        let by_programs = arm.is_of_programs() && arm.opening().carrier == Carrier::TurboTls;
        self.stage.variant.fleet || (by_programs && !arm.sends_early_data())
    }

    /// Returns the readiness address of this turn's edge, if edges take over from each other.
    pub(super) fn successor_metrics(&self, turn: u32) -> Option<SocketAddr> {
        let cells = u32::try_from(self.stage.cells.len()).unwrap_or(u32::MAX);
        let cell = u32::try_from(self.number).unwrap_or_default();
        let port = turn.wrapping_mul(cells).wrapping_add(cell) % METRICS_PORTS_MAX;
        let port = METRICS_PORTS + u16::try_from(port).unwrap_or_default();
        self.stage.variant.takeover.then(|| (Ipv4Addr::LOCALHOST, port).into())
    }

    /// One ring of keys for all edges of the cell.
    fn shared_keys(&self, node: &Node) -> Result<PathBuf, Broken> {
        let file = self.file("keys");
        if !file.exists() {
            self.new_keys(node, &[], &file)?;
        }
        Ok(file)
    }

    /// The fleet file of the cell, with all its edges.
    fn fleet(&self, node: &Node) -> Result<PathBuf, Broken> {
        let file = self.file("fleet");
        if !file.exists() {
            self.new_keys(node, &["--fleet"], &file)?;
            let edges = (0..self.stage.servers()).map(|server| {
                let address = server_address(server, 0, self.number);
                format!("edge {} {address}:{LINK}\n", server + 1)
            });
            let edges: String = edges.collect();
            let written = File::options().append(true).open(&file);
            let written = written.and_then(|mut file| file.write_all(edges.as_bytes()));
            written.map_err(|error| Broken::unwritten(&file, &error))?;
        }
        Ok(file)
    }

    fn new_keys(&self, node: &Node, option: &[&str], file: &Path) -> Result<(), Broken> {
        let made =
            node.command(self.program()).args(["keys", "new"]).args(option).arg(file).output();
        let made = made.map_err(|error| error.to_string()).and_then(|output| {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(error)
        });
        made.map_err(|why| Broken::Program(format!("headstart keys new: {}", why.trim())))
    }

    /// A file that the edges of the cell have together.
    fn file(&self, name: &str) -> PathBuf {
        self.work().join(format!("{name}-{}-{}", self.stage.number + 1, self.number + 1))
    }
}
