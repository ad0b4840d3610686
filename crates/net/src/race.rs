//! A race of TCP connections to the addresses of one name: Happy Eyeballs version 2, RFC 8305.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

mod connecting;
mod second;
#[cfg(test)]
mod tests;

pub(crate) use connecting::Connecting;
use connecting::FAR;
use second::SecondSyn;

use crate::tcp_info::TcpInfo;

/// Delay before the next attempt starts beside a running one: the value recommended by RFC 8305
/// section 5.
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Least delay between attempts that still run: RFC 8305 section 5, "MUST NOT be less than 10
/// milliseconds".
const DELAY_MIN: Duration = Duration::from_millis(10);

/// Most addresses in one race; further ones are ignored.
///
/// A resolver's answer may hold hundreds, each of which would cost a socket; at the recommended
/// delay the 32nd starts after 8 s, when every caller has given up.
pub(crate) const MAX_ADDRESSES: usize = 32;

/// Attempts to connect to one of several addresses; the first to succeed wins.
///
/// Addresses alternate between the families, starting with the family given first, and keep their
/// order within a family (RFC 8305 section 4, which also wants the list sorted by RFC 6724: that is
/// the resolver's part). The first attempt starts with the first poll; the next one after the
/// delay, or at once when one has failed. With [`Self::second_syn`], the first that has no answer
/// is tried once more beside itself. When one connects, the others are closed before the winner is
/// returned. Dropping the race closes all.
pub(crate) struct Race {
    held: bool,
    delay: Duration,
    limit: Option<Duration>,
    more_expected: bool,
    queue: AddressQueue,
    known: Vec<SocketAddr>,
    running: Vec<Running>,
    attempts: Vec<Attempt>,
    second: SecondSyn,
    /// True if the first address is known to be far.
    far: bool,
    next_start: Option<Instant>,
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The connection that won a race.
#[derive(Debug)]
pub(crate) struct RaceWinner {
    /// The connection; TCP_NODELAY is set.
    pub(crate) stream: TcpStream,
    /// Remote address.
    pub(crate) addr: SocketAddr,
    /// Time when it was seen to be connected.
    pub(crate) connected: Instant,
    /// Time from the SYN that was answered, as far as the kernel knows which one that was.
    pub(crate) rtt: Duration,
    /// True if the kernel has sent the SYN again.
    pub(crate) repeated: bool,
    /// Index of this attempt in [`Race::attempts`].
    pub(crate) number: usize,
}

/// One attempt of a race.
#[derive(Debug)]
pub struct Attempt {
    /// Address tried.
    pub addr: SocketAddr,
    /// Time when it started.
    pub started: Instant,
    /// Time when it ended.
    pub ended: Option<Instant>,
    /// Result.
    pub outcome: AttemptOutcome,
}

/// Result of an attempt.
#[derive(Debug)]
pub enum AttemptOutcome {
    /// Not decided yet.
    Running,
    /// It won.
    Connected,
    /// The connection failed.
    Failed(io::Error),
    /// Another attempt won first.
    Lost,
    /// The time limit of the whole race was reached.
    OutOfTime,
}

/// Failure of a whole race.
#[derive(Debug)]
pub struct RaceError {
    /// Reason.
    pub cause: RaceFailure,
    /// Attempts, in the order of starting.
    pub attempts: Vec<Attempt>,
}

/// Reason why a race had no winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaceFailure {
    /// The race had no address.
    NoAddress,
    /// Every address failed.
    AllFailed,
    /// The time limit was reached.
    OutOfTime,
}

impl Race {
    /// Creates a race to these addresses, in the resolver's order; it starts when first polled.
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>, delay: Duration) -> Self {
        let mut race = Self {
            held: false,
            delay: delay.max(DELAY_MIN),
            limit: None,
            more_expected: false,
            queue: AddressQueue::default(),
            known: Vec::new(),
            running: Vec::new(),
            attempts: Vec::new(),
            second: SecondSyn::Off,
            far: false,
            next_start: None,
            deadline: None,
            timer: None,
        };
        race.add(addresses);
        race
    }

    /// Ends the race this long after its first poll.
    #[must_use]
    pub(crate) fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets whether [`Self::add`] may still be called: as long as it may, a race without addresses
    /// waits.
    pub(crate) fn expect_more(&mut self, expected: bool) {
        self.more_expected = expected;
    }

    /// Pauses or resumes starting attempts; poll again afterwards.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Offers a larger receive window where a round trip to the first address is known to be long.
    pub(crate) fn expect_rtt(&mut self, rtt: Option<Duration>) {
        self.far = rtt.is_some_and(|rtt| rtt >= FAR);
    }

    /// Sends a second SYN, once, if the first is not answered within two round trips; `rtt` is
    /// `None` if none is known.
    pub(crate) fn second_syn(&mut self, rtt: Option<Duration>) {
        if self.second == SecondSyn::Off {
            self.second = SecondSyn::for_path(rtt);
        }
    }

    /// Takes note of a round trip to the address that TCP tries first: the second SYN need not wait
    /// longer than two of them.
    pub(crate) fn learn_rtt(&mut self, rtt: Duration) {
        self.second.learn(rtt);
    }

    /// Sends no second SYN.
    pub(crate) fn without_second_syn(&mut self) {
        self.second = SecondSyn::Off;
    }

    /// Returns the number of the second SYN among the attempts, once it has left.
    pub(crate) fn second_attempt(&self) -> Option<usize> {
        self.second.attempt()
    }

    /// Adds a running attempt at `addr` that was started elsewhere, for instance with data in the
    /// SYN; returns its number among the attempts. If it fails, the race tries `addr` again at
    /// once.
    pub(crate) fn start(&mut self, addr: SocketAddr, connecting: Connecting) -> usize {
        self.queue.remove(addr);
        self.run(addr, Ok(connecting), true, Instant::now())
    }

    /// Tries `addr` at once, beside any running attempt, even one at `addr`; poll again afterwards.
    ///
    /// If an attempt at `addr` that was started elsewhere fails, it is then not repeated.
    pub(crate) fn try_beside(&mut self, addr: SocketAddr) {
        for running in &mut self.running {
            let here = self.attempts.get(running.number).is_some_and(|tried| tried.addr == addr);
            running.try_beside &= !here;
        }
        self.queue.push_first(addr);
        self.next_start = None;
    }

    /// Tries `addr` after the others, if it was not tried yet: one of the other family comes next.
    pub(crate) fn defer(&mut self, addr: SocketAddr) {
        self.queue.move_last(addr);
    }

    /// Adds addresses, also while the race runs; poll again afterwards. Ignores known ones and
    /// those beyond [`MAX_ADDRESSES`].
    pub(crate) fn add(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        for addr in addresses {
            if self.known.len() < MAX_ADDRESSES && !self.known.contains(&addr) {
                self.known.push(addr);
                self.queue.push(addr);
            }
        }
    }

    /// Returns the address tried first, past or future, among those that have not failed: the
    /// destination for a UDP flight.
    pub(crate) fn first(&self) -> Option<SocketAddr> {
        let mut attempts = self.attempts.iter();
        let tried = attempts.find(|attempt| !matches!(attempt.outcome, AttemptOutcome::Failed(_)));
        tried.map(|attempt| attempt.addr).or_else(|| self.queue.peek())
    }

    /// Returns true if `addr` is one of the addresses.
    pub(crate) fn knows(&self, addr: SocketAddr) -> bool {
        self.known.contains(&addr)
    }

    /// Returns the attempts so far, in the order of starting.
    pub(crate) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Waits for the winner.
    ///
    /// # Errors
    /// [`RaceError`] when all have failed, at the time limit, or if there was no address.
    pub(crate) async fn winner(&mut self) -> Result<RaceWinner, RaceError> {
        poll_fn(|cx| self.poll_winner(cx)).await
    }

    /// Drives the race; must not be polled again after it was ready.
    pub(crate) fn poll_winner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RaceWinner, RaceError>> {
        loop {
            if let Some(won) = self.poll_running(cx) {
                return Poll::Ready(Ok(won));
            }
            let now = Instant::now();
            if self.deadline(now).is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(Err(self.fail(RaceFailure::OutOfTime)));
            }
            if self.start_next(now) {
                continue;
            }
            if self.second_due().is_some_and(|(_, due)| due <= now) && !self.is_answered() {
                self.start_second(now);
                continue;
            }
            if self.running.is_empty() && !self.more_expected && !self.held {
                let none = self.attempts.is_empty();
                let cause = if none { RaceFailure::NoAddress } else { RaceFailure::AllFailed };
                return Poll::Ready(Err(self.fail(cause)));
            }
            if self.poll_timer(now, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Polls all attempts; records those that failed.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> Option<RaceWinner> {
        let mut index = 0;
        while let Some(running) = self.running.get_mut(index) {
            let Poll::Ready(result) = running.connecting.poll(cx) else {
                index += 1;
                continue;
            };
            let Running { number, try_beside, .. } = self.running.swap_remove(index);
            match result {
                Ok(stream) => return self.win(number, stream),
                Err(error) => self.note(number, AttemptOutcome::Failed(error)),
            }
            if let Some(attempt) = self.attempts.get(number).filter(|_| try_beside) {
                self.queue.push_first(attempt.addr);
            }
            self.next_start = None;
        }
        None
    }

    /// Starts the next attempt if it is due.
    fn start_next(&mut self, now: Instant) -> bool {
        let due = self.running.is_empty() || self.next_start.is_none_or(|start| start <= now);
        if !due || self.held {
            return false;
        }
        let Some(addr) = self.queue.pop() else {
            return false;
        };
        self.run(addr, Connecting::to(addr, self.far), false, now);
        true
    }

    /// Returns true if the kernel knows the outcome of an attempt: on a busy machine, the runtime
    /// sees it much later.
    fn is_answered(&self) -> bool {
        self.running.iter().any(|running| running.connecting.is_over())
    }

    /// Starts the second SYN.
    fn start_second(&mut self, now: Instant) {
        let Some((addr, _)) = self.second_due() else { return };
        // Other addresses come when they would have come.
        let next_start = self.next_start;
        let number = self.run(addr, Connecting::to(addr, self.far), false, now);
        self.next_start = next_start;
        self.second = SecondSyn::Sent(number);
    }

    /// Returns where and when the second SYN leaves: to the address of the first attempt that still
    /// runs, unless another runs there already.
    fn second_due(&self) -> Option<(SocketAddr, Instant)> {
        let running = |attempt: &&Attempt| matches!(attempt.outcome, AttemptOutcome::Running);
        let mut running = self.attempts.iter().filter(running);
        let first = running.next()?;
        let is_alone = running.all(|other| other.addr != first.addr);
        let due = self.second.due(first.started).filter(|_| is_alone)?;
        Some((first.addr, due))
    }

    /// Runs an attempt; if it fails and `again` is true, `addr` is tried again.
    fn run(
        &mut self,
        addr: SocketAddr,
        connecting: io::Result<Connecting>,
        try_beside: bool,
        now: Instant,
    ) -> usize {
        let number = self.attempts.len();
        let outcome = AttemptOutcome::Running;
        self.attempts.push(Attempt { addr, started: now, ended: None, outcome });
        self.next_start = now.checked_add(self.delay);
        match connecting {
            Ok(connecting) => self.running.push(Running { number, connecting, try_beside }),
            Err(error) => {
                self.note(number, AttemptOutcome::Failed(error));
                self.next_start = None;
            }
        }
        number
    }

    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        if self.deadline.is_none() {
            self.deadline = self.limit.and_then(|limit| now.checked_add(limit));
        }
        self.deadline
    }

    /// Waits for the next start, the second SYN or the time limit, whichever is first; stays
    /// pending without any.
    fn poll_timer(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let start = self.next_start.filter(|_| !self.held && self.queue.peek().is_some());
        // One that is due has not left because the outcome is known, which wakes this task.
        let second = self.second_due().map(|(_, due)| due).filter(|due| *due > now);
        let Some(at) = start.into_iter().chain(second).chain(self.deadline).min() else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    fn win(&mut self, number: usize, stream: TcpStream) -> Option<RaceWinner> {
        self.note(number, AttemptOutcome::Connected);
        self.stop(|| AttemptOutcome::Lost);
        let Attempt { addr, started, ended, .. } = *self.attempts.get(number)?;
        let connected = ended?;
        let took = connected - started;
        let repeated = TcpInfo::read(&stream).ok().filter(TcpInfo::has_retransmitted);
        // Of a handshake with a repeated SYN, the kernel has a sample of its own.
        let rtt = repeated.as_ref().and_then(TcpInfo::rtt).map_or(took, |rtt| rtt.min(took));
        Some(RaceWinner { stream, addr, connected, rtt, repeated: repeated.is_some(), number })
    }

    fn fail(&mut self, cause: RaceFailure) -> RaceError {
        self.stop(|| AttemptOutcome::OutOfTime);
        RaceError { cause, attempts: std::mem::take(&mut self.attempts) }
    }

    /// Closes all running attempts.
    fn stop(&mut self, outcome: impl Fn() -> AttemptOutcome) {
        for running in std::mem::take(&mut self.running) {
            self.note(running.number, outcome());
        }
        self.queue = AddressQueue::default();
    }

    fn note(&mut self, number: usize, outcome: AttemptOutcome) {
        if let Some(attempt) = self.attempts.get_mut(number) {
            attempt.ended = Some(Instant::now());
            attempt.outcome = outcome;
        }
    }
}

impl RaceError {
    /// Returns the error kind of the first attempt that failed by itself, since its address was
    /// preferred.
    pub fn kind(&self) -> io::ErrorKind {
        let failed = self.attempts.iter().find_map(|attempt| match &attempt.outcome {
            AttemptOutcome::Failed(error) => Some(error.kind()),
            _ => None,
        });
        match self.cause {
            RaceFailure::NoAddress => io::ErrorKind::AddrNotAvailable,
            RaceFailure::OutOfTime => io::ErrorKind::TimedOut,
            RaceFailure::AllFailed => failed.unwrap_or(io::ErrorKind::Other),
        }
    }
}

impl fmt::Display for RaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cause {
            RaceFailure::NoAddress => "no address to connect to",
            RaceFailure::AllFailed => "every connection attempt failed",
            RaceFailure::OutOfTime => "no connection in time",
        })?;
        for (number, attempt) in self.attempts.iter().enumerate() {
            let separator = if number == 0 { ": " } else { ", " };
            match &attempt.outcome {
                AttemptOutcome::Failed(error) => write!(f, "{separator}{} {error}", attempt.addr)?,
                _ => write!(f, "{separator}{} no answer", attempt.addr)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for RaceError {}

impl From<RaceError> for io::Error {
    fn from(error: RaceError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

struct Running {
    number: usize,
    connecting: Connecting,
    /// True if the address is to be tried again should this fail.
    try_beside: bool,
}

/// Addresses not tried yet, handed out by alternating families.
#[derive(Default)]
struct AddressQueue {
    ipv4: VecDeque<SocketAddr>,
    ipv6: VecDeque<SocketAddr>,
    /// True if the next one should be IPv6; set by the first address given, then by the one handed
    /// out last.
    next_is_ipv6: Option<bool>,
}

impl AddressQueue {
    fn push(&mut self, addr: SocketAddr) {
        self.next_is_ipv6.get_or_insert(addr.is_ipv6());
        let family = if addr.is_ipv6() { &mut self.ipv6 } else { &mut self.ipv4 };
        family.push_back(addr);
    }

    /// Adds an address in front of all others.
    fn push_first(&mut self, addr: SocketAddr) {
        self.next_is_ipv6 = Some(addr.is_ipv6());
        let family = if addr.is_ipv6() { &mut self.ipv6 } else { &mut self.ipv4 };
        family.push_front(addr);
    }

    /// Moves an address behind all others of its family, which then has its turn after the other
    /// one.
    fn move_last(&mut self, addr: SocketAddr) {
        let family = if addr.is_ipv6() { &mut self.ipv6 } else { &mut self.ipv4 };
        if let Some(at) = family.iter().position(|waiting| *waiting == addr) {
            family.remove(at);
            family.push_back(addr);
            self.next_is_ipv6 = Some(!addr.is_ipv6());
        }
    }

    /// Removes an address as if it had been handed out.
    fn remove(&mut self, addr: SocketAddr) {
        self.next_is_ipv6 = Some(!addr.is_ipv6());
        let family = if addr.is_ipv6() { &mut self.ipv6 } else { &mut self.ipv4 };
        family.retain(|waiting| *waiting != addr);
    }

    fn peek(&self) -> Option<SocketAddr> {
        let (first, second) = if self.next_is_ipv6.unwrap_or_default() {
            (&self.ipv6, &self.ipv4)
        } else {
            (&self.ipv4, &self.ipv6)
        };
        first.front().or_else(|| second.front()).copied()
    }

    fn pop(&mut self) -> Option<SocketAddr> {
        let addr = self.peek()?;
        self.next_is_ipv6 = Some(!addr.is_ipv6());
        let family = if addr.is_ipv6() { &mut self.ipv6 } else { &mut self.ipv4 };
        family.pop_front()
    }
}
