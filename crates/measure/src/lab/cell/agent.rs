//! `headstart agent` beside a client, and what it says of the openings it made.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use headstart_emulation::{Namespace, Node};
use headstart_openers::Trial;

use crate::interrupt::Interrupt;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program};

/// First port of agents; each cell has two.
const FIRST_PORT: u16 = 20_000;

/// Time that an agent may take to count a connection after the client was done with it.
const COUNTED: Duration = Duration::from_secs(10);

/// Interval at which it is asked meanwhile.
const ASK: Duration = Duration::from_millis(2);

const CONNECTIONS: &str = "headstart_connections_total";
const FALLBACKS: &str = "headstart_fallbacks_total";

/// An agent; it is on the node of its client.
#[derive(Debug)]
pub(crate) struct Agent {
    program: Program,
    namespace: Namespace,
    metrics: SocketAddr,
}

/// The counters of an agent, by metric and label.
pub(crate) type Counts = BTreeMap<String, u64>;

impl Agent {
    /// Returns the address of a cell's agent.
    pub(crate) fn listen(cell: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port(cell)).into()
    }

    pub(crate) fn start(
        node: &Node,
        title: String,
        mut command: Command,
        cell: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Broken> {
        let (listen, metrics) = (Self::listen(cell), (Ipv4Addr::LOCALHOST, port(cell) + 1).into());
        command.arg("--listen").arg(listen.to_string());
        command.arg("--metrics").arg(SocketAddr::to_string(&metrics));
        let mut program = Program::start(node, title, command)?;
        await_port(node, listen, &mut program, interrupt)?;
        await_port(node, metrics, &mut program, interrupt)?;
        Ok(Self { program, namespace: node.namespace().clone(), metrics })
    }

    pub(crate) const fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.program.cpu()
    }

    /// The same to the nanosecond.
    pub(crate) fn run_time(&self) -> Option<Duration> {
        self.program.run_time()
    }

    /// Adds the openings of the connections made since its counters were `before`, once it has
    /// counted this many.
    pub(crate) fn add_openings(
        &mut self,
        before: &Counts,
        connections: u64,
        openings: &mut BTreeMap<String, u64>,
    ) -> Result<(), Broken> {
        let until = Instant::now() + COUNTED;
        let mut more = openings_since(before, &self.counts()?);
        while more.values().sum::<u64>() < connections && Instant::now() < until {
            std::thread::sleep(ASK);
            more = openings_since(before, &self.counts()?);
        }
        for (opening, count) in more {
            *openings.entry(opening).or_default() += count;
        }
        Ok(())
    }

    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        self.program.check()
    }

    /// Its counters of connections and fallbacks.
    ///
    /// # Errors
    /// It does not say: without it, nobody knows how connections are opened.
    pub(crate) fn counts(&mut self) -> Result<Counts, Broken> {
        self.program.check()?;
        self.read_counts().ok_or_else(|| self.program.nonsense("no counters"))
    }

    fn read_counts(&self) -> Option<Counts> {
        Some(counts(&scrape(&self.namespace, self.metrics)?))
    }

    /// Puts into `trial` how the agent opened its connection, which the client cannot see: by its
    /// counters, which were `before`.
    pub(crate) fn tell_opening(
        &mut self,
        before: &Counts,
        trial: &mut Trial,
    ) -> Result<(), Broken> {
        let until = Instant::now() + COUNTED;
        while Instant::now() < until {
            let now = self.counts()?;
            if let Some(opening) = grown(before, &now, CONNECTIONS, "opening") {
                trial.opening = opening
                    .parse()
                    .map_err(|error| self.program.nonsense(&format!("{error} {opening}")))?;
                trial.reason = grown(before, &now, FALLBACKS, "reason").unwrap_or_default();
                return Ok(());
            }
            std::thread::sleep(ASK);
        }
        trial.reason = "the agent counted no connection".into();
        Ok(())
    }
}

/// Reads the metrics of a program in this namespace.
pub(crate) fn scrape(namespace: &Namespace, metrics: SocketAddr) -> Option<String> {
    namespace
        .run(move || -> std::io::Result<String> {
            let mut tcp = TcpStream::connect(metrics)?;
            tcp.set_read_timeout(Some(COUNTED))?;
            tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            tcp.read_to_string(&mut text)?;
            Ok(text)
        })
        .flatten()
        .ok()
}

/// At most 250 cells, so this stays below 20,500.
fn port(cell: usize) -> u16 {
    FIRST_PORT + 2 * u16::try_from(cell).unwrap_or(u16::MAX / 4)
}

fn counts(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    let ours =
        pairs.filter(|(name, _)| [CONNECTIONS, FALLBACKS].iter().any(|m| name.starts_with(m)));
    ours.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The label's value of the counter of this metric that has grown.
fn grown(before: &Counts, now: &Counts, metric: &str, label: &str) -> Option<String> {
    let more = |name: &String, value: u64| value > before.get(name).copied().unwrap_or(0);
    let (name, _) =
        now.iter().find(|(name, value)| name.starts_with(metric) && more(name, **value))?;
    value(name, label)
}

/// The value of a counter's label.
fn value(name: &str, label: &str) -> Option<String> {
    let (_, rest) = name.split_once(&format!("{label}=\""))?;
    Some(rest.split('"').next().unwrap_or_default().to_owned())
}

/// Connections by their opening.
fn openings_since(before: &Counts, now: &Counts) -> BTreeMap<String, u64> {
    let mut openings = BTreeMap::new();
    for (name, count) in now.iter().filter(|(name, _)| name.starts_with(CONNECTIONS)) {
        let more = count - before.get(name).copied().unwrap_or_default().min(*count);
        if let Some(opening) = value(name, "opening").filter(|_| more > 0) {
            *openings.entry(opening).or_default() += more;
        }
    }
    openings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_that_grew_tells_the_opening() {
        let before = counts("# HELP x\nheadstart_connections_total{opening=\"plain\"} 1\n");
        let now = counts(
            "headstart_connections_total{opening=\"plain\"} 1\n\
             headstart_connections_total{role=\"agent\",opening=\"turbo\"} 1\n\
             headstart_fallbacks_total{reason=\"silence\"} 2\nother 3\n",
        );
        assert_eq!(grown(&before, &now, CONNECTIONS, "opening").as_deref(), Some("turbo"));
        assert_eq!(grown(&before, &now, FALLBACKS, "reason").as_deref(), Some("silence"));
        assert_eq!(grown(&now, &now, CONNECTIONS, "opening"), None);
        assert_eq!(openings_since(&before, &now), BTreeMap::from([("turbo".to_owned(), 1)]));
    }
}
