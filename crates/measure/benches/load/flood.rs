//! Attackers: datagrams at a steady rate from as many addresses as they like, and an account of
//! every answer.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headstart_net::{Datagram, RecvBuffers, UdpPort};
use headstart_proto::SessionId;
use headstart_proto::limits::{AMPLIFICATION, DATAGRAM_MAX, REQUEST_MIN};
use headstart_proto::wire::{Request, Response};

use super::{Failure, tcp};

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

/// Time that answers may be on their way after the last datagram.
const LINGER: Duration = Duration::from_millis(500);

/// Datagrams sent in one tick at most, when the attacker itself was late.
const BURST: u64 = 2_000;

/// Kind of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes without meaning, half of them behind the first two bytes of a request.
    Random,
    /// The first part of a ClientHello, each from another address, never the rest.
    HalfFinished,
    /// Whole ClientHellos with slots for a long answer, each from another address.
    WellFormed,
    /// The flight of a connection that was opened before, from its address and from others in turn.
    Replayed,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Random, Self::HalfFinished, Self::WellFormed, Self::Replayed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random datagrams",
            Self::HalfFinished => "half-finished hellos",
            Self::WellFormed => "well-formed hellos",
            Self::Replayed => "replayed flights",
        }
    }
}

/// Counts of what went out and came back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) sent: u64,
    pub(crate) bytes_sent: u64,
    /// Datagrams that the kernel did not take.
    pub(crate) unsent: u64,
    pub(crate) answers: u64,
    pub(crate) bytes_answered: u64,
    /// Answers that break a rule: to nothing, to another address, twice, or too long.
    pub(crate) wrong: u64,
}

impl Account {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.bytes_sent += other.bytes_sent;
        self.unsent += other.unsent;
        self.answers += other.answers;
        self.bytes_answered += other.bytes_answered;
        self.wrong += other.wrong;
    }
}

/// An attacker on a thread of its own.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Result<Account, Failure>, Failure>>,
}

impl Flood {
    /// Sends `source`'s datagrams to `target`, `rate` in a second.
    pub(crate) fn start(source: Source, target: SocketAddr, rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = tcp::on_thread(async move { attack(source, target, rate, &stopped).await });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Result<Account, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the attacker panicked")??
    }
}

async fn attack(
    mut source: Source,
    target: SocketAddr,
    rate: u32,
    stop: &AtomicBool,
) -> Result<Account, Failure> {
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
                received.map_err(|error| error.to_string())?;
                for answer in buffers.datagrams() {
                    account.answers += 1;
                    account.bytes_answered += answer.bytes.len() as u64;
                    account.wrong += u64::from(!source.expects(answer.to, answer.bytes, &mut answered));
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
pub(crate) struct Source {
    kind: Kind,
    number: u64,
    /// So that no round repeats another's sessions.
    era: u32,
    hello: Vec<u8>,
    pool: Vec<Vec<u8>>,
    current: Vec<u8>,
}

impl Source {
    /// Starts a flood of `kind`; `flight` is what a replaying attacker has seen.
    pub(crate) fn new(kind: Kind, era: u32, flight: &[Vec<u8>]) -> Result<Self, Failure> {
        let pool = match kind {
            Kind::Random => (0..POOL).map(random).collect(),
            Kind::Replayed => flight.to_vec(),
            Kind::HalfFinished | Kind::WellFormed => Vec::new(),
        };
        let hello = tcp::client_hello()?;
        Ok(Self { kind, number: 0, era, hello, pool, current: Vec::new() })
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
        if seq == 0 {
            tcp::renew_long(&mut self.hello);
        }
        let length = match self.kind {
            _ if seq > 0 => 0,
            Kind::HalfFinished => self.hello.len() / 2,
            _ => self.hello.len(),
        };
        let payload = self.hello.get(..length).unwrap_or_default();
        self.current = Request { id: self.id(session), seq, offset: 0, payload }.emit();
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
                let asked = self.pool.get(usize::from(response.seq));
                asked.is_some_and(|asked| answer.len() <= asked.len() * AMPLIFICATION)
            }
            Kind::HalfFinished | Kind::WellFormed => {
                let Some(session) =
                    response.id.0.last_chunk().map(|last| u64::from_be_bytes(*last))
                else {
                    return false;
                };
                let sent = session * self.datagrams_each() + u64::from(response.seq) < self.number;
                let asked = if response.seq == 0 { self.hello.len() + 20 } else { REQUEST_MIN };
                first
                    && sent
                    && response.id == self.id(session)
                    && to == address(session)
                    && answer.len() <= asked * AMPLIFICATION
            }
        }
    }
}

/// The address of a session: consecutive ones are in different networks.
fn address(session: u64) -> IpAddr {
    let low = u32::try_from(session.wrapping_mul(257) % 0xffff).unwrap_or_default();
    IpAddr::from(Ipv4Addr::from_bits(NETWORK + 1 + low))
}

/// Where the replayed flight comes from.
pub(crate) fn replayed_from() -> IpAddr {
    IpAddr::from(Ipv4Addr::from_bits(NETWORK + 0x1_0001))
}

/// The attacker's side of the flight that is going to be replayed.
pub(crate) fn replayed_from_port() -> SocketAddr {
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
