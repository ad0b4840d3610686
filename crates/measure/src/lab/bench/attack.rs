//! The edge under attack, and what it must not do then.
//!
//! The attacker sends the same datagrams to a socket that nobody reads, turn by turn. Both arms pay
//! for making the load, so the ratio of TCP connection rates is what the edge loses by looking at
//! the datagrams.

use std::fs;
use std::io;
use std::net::SocketAddr;

use headstart_emulation::Node;
use headstart_proto::limits::{
    AMPLIFICATION, CLIENT_BYTES, RECENT_ENTRIES, SERVER_BYTES, SESSIONS,
};
use serde::Serialize;

use super::flood::{self, Account, Flood, Kind, Source};
use super::turbo;
use super::work::Place;
use crate::lab::process::status_field;

/// Memory of a session beside its bytes: the task that serves it has two buffers of 8 kB for what
/// the origin and the client send, its state, channel and socket.
const PER_SESSION: usize = 24 * 1024;

/// An entry of each of the two tables of what happened within the last 10 s, in a B-tree and a
/// queue; both twice over, for nodes half full and queues that doubled.
const PER_ENTRY: usize = 2 * (16 + 24 + 24);

/// Bytes that the allocator may hold back, and TCP connections that are relayed meanwhile.
const SLACK: usize = 16 << 20;

/// Most that an attack may add to the edge's memory, in bytes: that of unproven sessions.
const MEMORY_MAX: usize =
    SESSIONS * (CLIENT_BYTES + SERVER_BYTES + PER_SESSION) + 2 * RECENT_ENTRIES * PER_ENTRY + SLACK;

/// Eras between the first turns of two attacks: no round repeats another's sessions.
const ERAS: u32 = 1_000;

/// One attack and its consequences so far.
#[derive(Debug, Serialize)]
pub(super) struct Attack {
    #[serde(skip)]
    kind: Kind,
    #[serde(skip)]
    era: u32,
    /// The flight that a replaying attacker has seen.
    #[serde(skip)]
    seen: Vec<Vec<u8>>,
    account: Account,
    /// Datagrams that left the edge, as the kernel counts them: on a busy machine the attacker does
    /// not see all of them.
    edge_sent: u64,
    /// Resident memory of the edge before the attack and at most, in bytes.
    resident_before: usize,
    resident_max: usize,
}

impl Attack {
    /// Prepares the attack of stage `stage` on the edge at `edge`, whose memory is `resident` bytes
    /// after some connections.
    pub(super) fn new(
        place: Place<'_>,
        kind: Kind,
        stage: u32,
        edge: SocketAddr,
        resident: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            kind,
            era: stage * ERAS,
            seen: turbo::open_once(place, flood::replayed_from_port(), edge)?,
            account: Account::default(),
            edge_sent: 0,
            resident_before: resident,
            resident_max: resident,
        })
    }

    pub(super) fn start(
        &self,
        place: Place<'_>,
        round: u32,
        target: SocketAddr,
        rate: u32,
    ) -> io::Result<Flood> {
        let source = Source::new(self.kind, self.era + round, &self.seen)?;
        Flood::start(place, source, target, rate)
    }

    /// Adds a turn in which `sent` datagrams left the namespace, while the edge took `resident`
    /// bytes at most.
    pub(super) fn add(&mut self, turn: &Account, sent: u64, resident: usize) {
        self.edge_sent += sent.saturating_sub(turn.sent);
        self.account.add(turn);
        self.resident_max = self.resident_max.max(resident);
    }

    /// Returns the first rule that the edge broke.
    pub(super) fn violation(&self) -> Option<String> {
        let Self { account, edge_sent, .. } = self;
        let grown = self.resident_max.saturating_sub(self.resident_before);
        let answered = account.bytes_answered;
        let rules = [
            (grown > MEMORY_MAX, format!("memory grew by {grown} bytes, more than {MEMORY_MAX}")),
            (account.wrong > 0, format!("{} answers that no datagram allows", account.wrong)),
            (
                *edge_sent > account.sent,
                format!("{edge_sent} answers to {} datagrams", account.sent),
            ),
            (
                answered > account.bytes_sent * AMPLIFICATION as u64,
                format!("{answered} bytes in answer to {}", account.bytes_sent),
            ),
        ];
        rules.into_iter().find_map(|(broken, what)| broken.then_some(what))
    }
}

/// Returns the datagrams sent in the node's namespace so far.
pub(super) fn datagrams_sent(node: &Node) -> io::Result<u64> {
    let text = node.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    sent(&text).ok_or_else(|| io::Error::other("no UDP counters in /proc/net/snmp"))
}

/// Finds `OutDatagrams` among the names, and its value in the line behind them.
fn sent(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "OutDatagrams").and_then(|(_, value)| value.parse().ok())
}

/// Returns the most resident memory that a process had, in bytes.
pub(super) fn resident(pid: u32) -> io::Result<usize> {
    memory(pid, "VmHWM:")
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident_now(pid: u32) -> io::Result<usize> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, name: &str) -> io::Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kilobytes = status_field(&status, name).and_then(|field| usize::try_from(field).ok());
    Ok(kilobytes.ok_or_else(|| io::Error::other(format!("no {name} in status")))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attack(account: Account) -> Attack {
        let answers = account.answers;
        Attack {
            kind: Kind::WellFormed,
            era: 0,
            seen: Vec::new(),
            account,
            edge_sent: answers,
            resident_before: 1 << 20,
            resident_max: 2 << 20,
        }
    }

    #[test]
    fn an_edge_that_breaks_a_rule_is_told() {
        let good = Account {
            sent: 10,
            bytes_sent: 1_000,
            answers: 9,
            bytes_answered: 3_000,
            ..Account::default()
        };
        assert_eq!(attack(good).violation(), None);
        for (account, told) in [
            (Account { bytes_answered: 3_001, ..good }, "3001 bytes"),
            (Account { answers: 11, ..good }, "11 answers"),
            (Account { wrong: 1, ..good }, "1 answers that"),
        ] {
            assert!(attack(account).violation().unwrap().starts_with(told), "{account:?}");
        }
        let large = Attack { resident_max: MEMORY_MAX + (1 << 20) + 1, ..attack(good) };
        assert!(large.violation().unwrap().starts_with("memory grew"));
        let mut added = attack(Account::default());
        added.add(&good, 19, 3 << 20);
        assert_eq!((added.edge_sent, added.resident_max, added.account.sent), (9, 3 << 20, 10));
    }

    #[test]
    fn datagrams_sent_are_found_by_name() {
        let text = "Udp: InDatagrams NoPorts OutDatagrams\nUdp: 7 8 9\n";
        assert_eq!(sent(text), Some(9));
        assert_eq!(sent("Tcp: x\nTcp: 1\n"), None);
        assert!(resident(std::process::id()).unwrap() > 1 << 20);
    }
}
