//! One client with one server in one case.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use headstart_emulation::{Balance, Host, Lab, LabError, Node, read_capture};

use super::case::{Case, Expected, Servers, Tls};
use super::evidence::Evidence;
use super::forger::{Forger, PORTS};
use super::implementation::Implementation;
use super::judge::judge;
use super::tls::{Ends, Facts, NAME, set_timeouts};
use crate::interrupt::Interrupt;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program};
use crate::socks;

/// Address of several servers.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

const HTTPS: u16 = 443;
const ORIGIN_PORT: u16 = 8443;

/// Port at which an edge takes joins from another edge.
const FLEET_PORT: u16 = 4433;

/// Where a client listens, on its own node.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// Advertised slots: the answers of a large flight, or of a usual one.
const SLOTS_LARGE: u8 = 14;
const SLOTS: u8 = 6;

/// Exit code of a command that does not have what the case needs, as in the QUIC interop runner.
const UNSUPPORTED: i32 = 127;

/// Bytes of a capture at most.
const CAPTURE_MAX: u64 = 64 << 20;

/// Reason why a cell does not pass.
#[derive(Debug)]
pub(super) enum NotPassed {
    Failed(String),
    /// The implementation that does not have what the case needs.
    Unsupported(String),
    Interrupted,
}

impl From<Broken> for NotPassed {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Interrupted => Self::Interrupted,
            Broken::Program(why) => Self::Failed(why),
        }
    }
}

impl From<String> for NotPassed {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<LabError> for NotPassed {
    fn from(error: LabError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<io::Error> for NotPassed {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

pub(super) struct Cell<'c> {
    pub(super) case: &'static Case,
    pub(super) client: &'c Implementation,
    pub(super) server: &'c Implementation,
    /// For captures and for files of the implementations.
    pub(super) folder: &'c Path,
    pub(super) interrupt: &'c Interrupt,
}

impl Cell<'_> {
    /// Opens all connections of the case.
    ///
    /// # Errors
    /// The first connection that does not pass, an implementation that does not start.
    pub(super) fn run(&self) -> Result<(), NotPassed> {
        let lab = Lab::build(self.hosts())?;
        let ends = Ends::new(self.case.tls)?;
        serve(node(&lab, "origin")?, &ends)?;
        let mut servers = self.start_servers(&lab)?;
        let forger = self.start_forger(&lab)?;
        for (path, text) in self.case.paths.iter().enumerate() {
            let parsed = text.parse().map_err(|error| format!("'{text}': {error}"))?;
            lab.set_path("client", parsed);
            let client = self.start_client(&lab)?;
            let mut refused = 0;
            for number in 0..self.case.openings {
                let file = self.folder.join(format!("{}-{}.pcapng", path + 1, number + 1));
                let outcome = self.open(&lab, &ends, &file)?;
                let evidence = Evidence::read(&read_capture(&file)?, self.target(&lab)?);
                refused += u8::from(outcome.is_err());
                judge(self.case, number, &outcome, &evidence)
                    .map_err(|why| format!("connection {}.{}: {why}", path + 1, number + 1))?;
                if self.case.servers == Servers::Restarted {
                    servers.clear();
                    servers = self.start_servers(&lab)?;
                }
            }
            if self.case.expected == Expected::RefusedOnce && refused > 1 {
                return Err(format!("{refused} connections were refused, not one").into());
            }
            drop(client);
        }
        drop(forger);
        Ok(())
    }

    fn hosts(&self) -> Vec<Host> {
        let [first, second] = ["server-1", "server-2"].map(Host::new);
        let mut hosts = vec![Host::new("client"), Host::new("origin"), Host::new("forger")];
        match self.case.servers {
            Servers::Two(balance) => {
                let both = [first, second].map(|host| host.shared_address(SHARED, balance));
                hosts.extend(addressed(both));
            }
            Servers::Fleet => {
                let first = first.shared_address(SHARED, Balance::Source);
                hosts.extend(addressed([first, second.tcp_of(SHARED)]));
            }
            _ => hosts.push(first),
        }
        hosts
    }

    fn start_servers(&self, lab: &Lab) -> Result<Vec<Program>, NotPassed> {
        let target = self.target(lab)?;
        let nodes: Vec<&Node> =
            ["server-1", "server-2"].iter().filter_map(|name| lab.node(name)).collect();
        let origin = SocketAddr::new(address(node(lab, "origin")?)?.into(), ORIGIN_PORT);
        let mut variables = vec![
            ("ROLE", "server".to_owned()),
            ("TESTCASE", self.case.name.into()),
            ("ORIGIN", origin.to_string()),
            ("SITE", self.folder.display().to_string()),
        ];
        for (name, node) in ["EDGE_1", "EDGE_2"].into_iter().zip(&nodes) {
            let number = name.trim_start_matches("EDGE_");
            variables.push((name, format!("{number} {}:{FLEET_PORT}", address(node)?)));
        }
        let mut programs = Vec::new();
        for (number, node) in (1..).zip(nodes) {
            let number: u8 = number;
            let more = [&variables[..], &[("NUMBER", number.to_string())]].concat();
            programs.push(self.ready(self.server, node, target, &more)?);
        }
        Ok(programs)
    }

    fn start_client(&self, lab: &Lab) -> Result<Program, NotPassed> {
        let slots = if self.case.tls == Tls::LargeFlight { SLOTS_LARGE } else { SLOTS };
        let early = if self.case.tls == Tls::EarlyData { ",ed=1" } else { "" };
        let variables = [
            ("ROLE", "client".to_owned()),
            ("TESTCASE", self.case.name.into()),
            ("NAME", NAME.into()),
            ("EDGE", self.target(lab)?.to_string()),
            ("ADVERTISED", format!("slots={slots}{early}")),
        ];
        self.ready(self.client, node(lab, "client")?, PROXY, &variables)
    }

    fn ready(
        &self,
        implementation: &Implementation,
        node: &Node,
        listen: SocketAddr,
        variables: &[(&str, String)],
    ) -> Result<Program, NotPassed> {
        let mut program = implementation.start(node, listen, variables)?;
        match await_port(node, listen, &mut program, self.interrupt) {
            Ok(()) => Ok(program),
            Err(_) if program.exit_code() == Some(UNSUPPORTED) => {
                Err(NotPassed::Unsupported(implementation.name.clone()))
            }
            Err(broken) => Err(broken.into()),
        }
    }

    fn start_forger(&self, lab: &Lab) -> Result<Option<Forger>, NotPassed> {
        if self.case.servers != Servers::Attacked {
            return Ok(None);
        }
        let client = node(lab, "client")?;
        let range = format!("{} {}", PORTS.start(), PORTS.end());
        client
            .run(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range))
            .flatten()
            .map_err(|error| format!("the range of ports: {error}"))?;
        Ok(Some(Forger::start(node(lab, "forger")?, address(client)?, self.target(lab)?)?))
    }

    /// Opens a connection, and captures it at the client.
    fn open(
        &self,
        lab: &Lab,
        ends: &Ends,
        file: &Path,
    ) -> Result<Result<Facts, String>, NotPassed> {
        if self.interrupt.is_set() {
            return Err(NotPassed::Interrupted);
        }
        let capture = lab.capture("client", file, CAPTURE_MAX)?;
        let request = || {
            let tcp = tunnel().map_err(|error| format!("the proxy: {error}"))?;
            ends.request(tcp, self.case.tls, self.case.exchange)
        };
        let outcome = node(lab, "client")?.run(request)?;
        let captured = capture.finish()?;
        if captured.full || captured.dropped > 0 {
            return Err("the capture lacks packets".to_owned().into());
        }
        Ok(outcome)
    }

    /// Where clients connect.
    fn target(&self, lab: &Lab) -> Result<SocketAddr, NotPassed> {
        let address = match self.case.servers {
            Servers::Two(_) | Servers::Fleet => SHARED,
            _ => address(node(lab, "server-1")?)?,
        };
        Ok(SocketAddr::new(address.into(), HTTPS))
    }
}

/// Gives servers addresses of their own, which those with a shared one do not get by default.
fn addressed(hosts: [Host; 2]) -> impl Iterator<Item = Host> {
    (1..).zip(hosts).map(|(number, host)| host.address(Ipv4Addr::new(10, 98, 0, number)))
}

/// Opens a connection to [`NAME`] by way of the client.
fn tunnel() -> io::Result<TcpStream> {
    let mut tcp = TcpStream::connect(PROXY)?;
    set_timeouts(&tcp)?;
    socks::connect(&mut tcp, NAME, HTTPS)?;
    Ok(tcp)
}

/// Serves connections on the origin's node, until the process ends.
fn serve(node: &Node, ends: &Ends) -> Result<(), NotPassed> {
    let listener =
        node.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, ORIGIN_PORT))).flatten()?;
    let ends = ends.clone();
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let ends = ends.clone();
            thread::spawn(move || ends.serve(tcp));
        }
    });
    Ok(())
}

fn node<'l>(lab: &'l Lab, name: &str) -> Result<&'l Node, NotPassed> {
    lab.node(name).ok_or_else(|| format!("there is no {name}").into())
}

fn address(node: &Node) -> Result<Ipv4Addr, NotPassed> {
    node.ipv4().ok_or_else(|| format!("{} has no address", node.name()).into())
}
