//! The edge under attack, beside the same attacker writing to a socket that nobody reads.
//!
//! Both arms pay for making the load, so the ratio of TCP connection rates is what the edge loses
//! by looking at the datagrams.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use headstart_proto::limits::{CLIENT_BYTES, RECENT_ENTRIES, SERVER_BYTES, SESSIONS};

use super::flood::{self, Account, Flood, Kind, Source};
use super::process::{self, Program};
use super::relay::ratios;
use super::report::Report;
use super::{Failure, Plan, namespace, tcp, turbo};

/// Share of their connection rate that TCP clients have to keep.
const RATE_FLOOR: f64 = 0.9;

/// Bytes sent for each byte received, at most.
const AMPLIFICATION: f64 = 3.0;

/// Memory of a session beside its bytes: the task that serves it has two buffers of 8 kB for what
/// the origin and the client send, its state, channel and socket.
const PER_SESSION: usize = 24 * 1024;

/// An entry of each of the two tables of what happened within the last 10 s, in a B-tree and a
/// queue; both twice over, for nodes half full and queues that doubled.
const PER_ENTRY: usize = 2 * (16 + 24 + 24);

/// Bytes that the allocator may hold back, and TCP connections that are relayed meanwhile.
const SLACK: usize = 16 << 20;

const EDGE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9100);

/// Counting is part of what an attack costs.
const METRICS: &str = "127.0.0.1:9190";

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<bool, Failure> {
    let origin = tcp::start_origin()?;
    let unread = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sink = unread.local_addr()?;
    let mut met = true;
    let kinds = Kind::ALL.into_iter().enumerate();
    for (index, kind) in kinds.filter(|(_, kind)| kind.name().contains(&plan.only)) {
        let threads = plan.threads.to_string();
        let edge = process::edge(
            plan.beside.as_deref(),
            EDGE,
            origin,
            &["--workers", &threads, "--metrics", METRICS],
        )?;
        let era = u32::try_from(index * 1_000)?;
        let mut plan = plan.clone();
        if kind == Kind::WellFormed {
            plan.turn = plan.turn.max(LONG_TURN);
            plan.rounds = plan.rounds.min(LONG_ROUNDS);
        }
        met &= Attack { plan: &plan, kind, edge, sink, era }.run(report)?;
    }
    Ok(met)
}

/// A turn of well-formed ClientHellos: their sessions live 10 s and are then started again all at
/// once, so that shorter turns with pauses in between count these bursts more often than they come.
const LONG_TURN: Duration = Duration::from_secs(12);

/// Long turns at most.
const LONG_ROUNDS: usize = 6;

struct Attack<'a> {
    plan: &'a Plan,
    kind: Kind,
    edge: Program,
    sink: SocketAddr,
    era: u32,
}

impl Attack<'_> {
    fn run(&self, report: &mut Report) -> Result<bool, Failure> {
        let test = self.kind.name();
        let flight = turbo::open_once(flood::replayed_from_port(), EDGE)?;
        // What TCP needs is there before memory is looked at.
        tcp::connections(EDGE, Duration::from_secs(1))?;
        let (before, _) = self.edge.memory()?;
        let mut account = Account::default();
        let mut edge_sent = 0;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..self.plan.rounds {
            let mut turns = [("edge", EDGE), ("sink", self.sink)];
            if round % 2 == 1 {
                turns.reverse();
            }
            for (arm, target) in turns {
                let (out, _) = namespace::udp_counters()?;
                let (rate, turn) = self.turn(round, target, &flight)?;
                let (out_after, _) = namespace::udp_counters()?;
                report.sample(test, round, arm, "TCP connections per s", rate);
                report.sample(test, round, arm, "datagrams sent", turn.sent as f64);
                report.sample(test, round, arm, "answers", turn.answers as f64);
                if arm == "edge" {
                    with.push(rate);
                    edge_sent += (out_after - out).saturating_sub(turn.sent);
                    account.add(&turn);
                } else {
                    without.push(rate);
                }
            }
        }
        let (after, most) = self.edge.memory()?;
        let metrics = metrics()?;
        for line in metrics.lines().filter(|line| COUNTED.iter().any(|name| line.starts_with(name)))
        {
            println!("    {line}");
        }
        report.median(test, "TCP connections per s, sink attacked", &without);
        report.median(test, "TCP connections per s, edge attacked", &with);
        let kept = report.median(test, "part of the rate kept", &ratios(&with, &without));
        let seconds = self.plan.turn.as_secs_f64() * self.plan.rounds as f64;
        report.figure(test, "datagrams per s to the edge", account.sent as f64 / seconds);
        report.figure(test, "datagrams from the edge", edge_sent as f64);
        report.figure(
            test,
            "bytes out per byte in",
            account.bytes_answered as f64 / account.bytes_sent as f64,
        );
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        report.figure(test, "RSS before, MB", megabytes(before));
        report.figure(test, "RSS after, MB", megabytes(after));
        report.figure(test, "RSS at most, MB", megabytes(most));
        let grown = usize::try_from(most.saturating_sub(before))?;
        Ok(self.bars(report, &account, edge_sent, grown)
            & report.bar(test, "at least 0.9 of the TCP rate", kept.value >= RATE_FLOOR))
    }

    /// Connections in a second while `target` is attacked.
    fn turn(
        &self,
        round: usize,
        target: SocketAddr,
        flight: &[Vec<u8>],
    ) -> Result<(f64, Account), Failure> {
        let source = Source::new(self.kind, self.era + u32::try_from(round)?, flight)?;
        let flood = Flood::start(source, target, self.plan.rate);
        let done = tcp::connections(EDGE, self.plan.turn);
        let account = flood.stop()?;
        let done = done?;
        if done.failed > 0 {
            println!("{} TCP connections failed", done.failed);
        }
        Ok((done.rate(), account))
    }

    fn bars(&self, report: &mut Report, account: &Account, edge_sent: u64, grown: usize) -> bool {
        let test = self.kind.name();
        let bound = memory_bound();
        report.figure(test, "memory bound, MB", bound as f64 / 1e6);
        report.bar(test, "memory within the bound", grown <= bound)
            & report.bar(test, "all answers were seen", edge_sent == account.answers)
            & report.bar(test, "each answer allowed by a datagram", account.wrong == 0)
            & report.bar(test, "no more datagrams out than in", account.answers <= account.sent)
            & report.bar(
                test,
                "bytes out at most 3 times those in",
                account.bytes_answered as f64 <= AMPLIFICATION * account.bytes_sent as f64,
            )
    }
}

/// Metrics that tell what became of an attack.
const COUNTED: [&str; 3] =
    ["headstart_udp_datagrams_total", "headstart_limits_hit_total", "headstart_sessions_unproven"];

fn metrics() -> Result<String, Failure> {
    let mut stream = TcpStream::connect(METRICS)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: edge\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the bound of unproven sessions and the memory of them, in bytes.
const fn memory_bound() -> usize {
    SESSIONS * (CLIENT_BYTES + SERVER_BYTES + PER_SESSION) + 2 * RECENT_ENTRIES * PER_ENTRY + SLACK
}
