//! Attackers: datagrams at a steady rate from as many addresses as they like, and an account of
//! every answer.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headstart_net::{Datagram, RecvBuffers, UdpPort};
use headstart_proto::SessionId;
use headstart_proto::limits::{AMPLIFICATION, DATAGRAM_MAX, REQUEST_MIN};
use headstart_proto::wire::{Request, Response};
use serde::{Deserialize, Serialize};

use super::tcp::{Hello, Wanted};
use super::work::{Place, Running, ended};

/// The port that all datagrams come from.
const PORT: u16 = 6666;

/// Addresses of 198.18.0.0/15, of which the lowest 2^16 are the attackers'.
const NETWORK: u32 = 0xc612_0000;

/// Empty slots behind each spoofed ClientHello: enough to ask for all that an edge stores.
const SLOTS: u8 = 15;

/// Different datagrams of an attack that does not count them.
const POOL: usize = 4096;

/// Interval at which due datagrams are sent.
const TICK: Duration = Duration::from_millis(1);

/// Time without an answer after which none is on its way.
const LINGER: Duration = Duration::from_millis(500);

/// Datagrams sent in one tick at most, when the attacker itself was late.
const BURST: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Bytes without meaning, half of them behind the first two bytes of a request.
    Random,
    /// The first part of a ClientHello, each from another address, never the rest.
    HalfFinished,
    /// Whole ClientHellos with slots for a long answer, each from another address.
    WellFormed,
    /// The flight of a connection that was opened before, from its address and from others in turn.
    Replayed,
}

/// Counts of what went out and came back.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Account {
    pub(super) sent: u64,
    pub(super) bytes_sent: u64,
    /// Datagrams that the kernel did not take.
    pub(super) unsent: u64,
    pub(super) answers: u64,
    pub(super) bytes_answered: u64,
    /// Answers that break a rule: to nothing, to another address, twice, or too long.
    pub(super) wrong: u64,
}

impl Account {
    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.bytes_sent += other.bytes_sent;
        self.unsent += other.unsent;
        self.answers += other.answers;
        self.bytes_answered += other.bytes_answered;
        self.wrong += other.wrong;
    }
}

/// An attacker on a thread of its own.
#[derive(Debug)]
pub(super) struct Flood {
    stop: Arc<AtomicBool>,
    thread: Running<Account>,
}

impl Flood {
    /// Sends `source`'s datagrams to `target`, `rate` in a second.
    pub(super) fn start(
        place: Place<'_>,
        source: Source,
        target: SocketAddr,
        rate: u32,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = place.spawn(async move { attack(source, target, rate, &stopped).await })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) -> io::Result<Account> {
        self.stop.store(true, Ordering::Relaxed);
        ended(self.thread)
    }
}

async fn attack(
    mut source: Source,
    target: SocketAddr,
    rate: u32,
    stop: &AtomicBool,
) -> io::Result<Account> {
    let port = UdpPort::listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), false)?;
    let mut account = Account::default();
    let mut answered = HashSet::new();
    let mut buffers = RecvBuffers::new(8);
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    let mut end = None;
    loop {
        tokio::select! {
            received = port.recv(&mut buffers) => {
                received.map_err(|error| io::Error::other(error.to_string()))?;
                for answer in buffers.datagrams() {
                    account.answers += 1;
                    account.bytes_answered += answer.bytes.len() as u64;
                    let is_right = source.expects(answer.to, answer.bytes, &mut answered);
                    account.wrong += u64::from(!is_right);
                    end = end.map(|_| Instant::now() + LINGER);
                }
            }
            _ = ticks.tick() => {
                if stop.load(Ordering::Relaxed) {
                    let end = *end.get_or_insert_with(|| Instant::now() + LINGER);
                    if Instant::now() >= end {
                        break;
                    }
                    continue;
                }
                let due = begun.elapsed().as_micros() * u128::from(rate) / 1_000_000;
                let due = u64::try_from(due).unwrap_or(u64::MAX);
                for _ in 0..due.saturating_sub(account.sent + account.unsent).min(BURST) {
                    let (from, bytes) = source.next();
                    match port.try_send(&Datagram { to: target, from: Some(from), bytes }) {
                        Ok(()) => {
                            account.sent += 1;
                            account.bytes_sent += bytes.len() as u64;
                        }
                        Err(_) => account.unsent += 1,
                    }
                }
            }
        }
    }
    Ok(account)
}

/// Makes the datagrams of an attack. Each has a number, from which its session and address follow.
pub(super) struct Source {
    kind: Kind,
    number: u64,
    /// So that no round repeats another's sessions.
    era: u32,
    hello: Hello,
    hello_length: usize,
    pool: Vec<Vec<u8>>,
    current: Vec<u8>,
}

impl Source {
    /// Starts a flood of `kind`; `flight` is what a replaying attacker has seen.
    pub(super) fn new(kind: Kind, era: u32, flight: &[Vec<u8>]) -> io::Result<Self> {
        let pool = match kind {
            Kind::Random => (0..POOL).map(random).collect(),
            Kind::Replayed => flight.to_vec(),
            Kind::HalfFinished | Kind::WellFormed => Vec::new(),
        };
        let mut hello = Hello::new()?;
        let hello_length = hello.renew(Wanted::LongFlight).len();
        Ok(Self { kind, number: 0, era, hello, hello_length, pool, current: Vec::new() })
    }

    /// The next datagram and where it comes from.
    fn next(&mut self) -> (IpAddr, &[u8]) {
        let number = self.number;
        self.number += 1;
        let from = match self.kind {
            Kind::HalfFinished | Kind::WellFormed => self.compose(number),
            Kind::Random => self.repeat(number),
            Kind::Replayed => {
                self.repeat(number);
                let round = number / self.pool.len().max(1) as u64;
                // Every second time from the address that it came from first.
                if round.is_multiple_of(2) { replayed_from() } else { address(round) }
            }
        };
        (from, &self.current)
    }

    fn repeat(&mut self, number: u64) -> IpAddr {
        let index = number % self.pool.len().max(1) as u64;
        if let Some(bytes) = usize::try_from(index).ok().and_then(|index| self.pool.get(index)) {
            self.current.clone_from(bytes);
        }
        address(number)
    }

    fn compose(&mut self, number: u64) -> IpAddr {
        let each = self.datagrams_each();
        let session = number / each;
        let seq = u8::try_from(number % each).unwrap_or_default();
        let id = self.id(session);
        // Behind the first one there are empty slots.
        let payload = match self.kind {
            _ if seq > 0 => &[],
            Kind::HalfFinished => {
                let whole = self.hello.renew(Wanted::LongFlight);
                whole.get(..self.hello_length / 2).unwrap_or_default()
            }
            _ => self.hello.renew(Wanted::LongFlight),
        };
        self.current = Request { id, seq, offset: 0, payload }.emit();
        address(session)
    }

    fn datagrams_each(&self) -> u64 {
        if self.kind == Kind::WellFormed { 1 + u64::from(SLOTS) } else { 1 }
    }

    fn id(&self, session: u64) -> SessionId {
        let mut id = [0; 12];
        let (era, rest) = id.split_at_mut(4);
        era.copy_from_slice(&self.era.to_be_bytes());
        rest.copy_from_slice(&session.to_be_bytes());
        SessionId(id)
    }

    /// Returns true if an answer to `to` is one that a datagram of this attack allows.
    fn expects(&self, to: IpAddr, answer: &[u8], answered: &mut HashSet<(SessionId, u8)>) -> bool {
        let Ok(response) = Response::parse(answer) else { return false };
        let first = answered.insert((response.id, response.seq));
        match self.kind {
            Kind::Random => false,
            // Once the edge has forgotten the flight, any address may be the next that starts it.
            Kind::Replayed => {
                let request = self.pool.get(usize::from(response.seq));
                request.is_some_and(|request| answer.len() <= request.len() * AMPLIFICATION)
            }
            Kind::HalfFinished | Kind::WellFormed => {
                let Some(session) =
                    response.id.0.last_chunk().map(|last| u64::from_be_bytes(*last))
                else {
                    return false;
                };
                let sent = session * self.datagrams_each() + u64::from(response.seq) < self.number;
                let request_bytes =
                    if response.seq == 0 { self.hello_length + 20 } else { REQUEST_MIN };
                first
                    && sent
                    && response.id == self.id(session)
                    && to == address(session)
                    && answer.len() <= request_bytes * AMPLIFICATION
            }
        }
    }
}

/// The address of a session: consecutive ones are in different networks.
pub(super) fn address(session: u64) -> IpAddr {
    let low = u32::try_from(session.wrapping_mul(257) % 0xffff).unwrap_or_default();
    IpAddr::from(Ipv4Addr::from_bits(NETWORK + 1 + low))
}

/// The address that the replayed flight comes from.
fn replayed_from() -> IpAddr {
    IpAddr::from(Ipv4Addr::from_bits(NETWORK + 0x1_0001))
}

/// The attacker's side of the flight that is going to be replayed.
pub(super) fn replayed_from_port() -> SocketAddr {
    SocketAddr::new(replayed_from(), PORT)
}

fn random(number: usize) -> Vec<u8> {
    let length = rand::random_range(1..=DATAGRAM_MAX);
    let mut bytes: Vec<u8> = (0..length).map(|_| rand::random()).collect();
    if let (0, [first, second, ..]) = (number % 2, bytes.as_mut_slice()) {
        (*first, *second) = (0x08, 0x10);
    }
    bytes
}
