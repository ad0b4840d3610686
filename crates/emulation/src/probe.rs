//! Round trips over a lab's link as programs see them, to be held against what was asked for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use crate::{Node, Scheduling};

/// Time between UDP echoes: on an idle link the forwarder and both ends sleep in between.
const ECHO_GAP: Duration = Duration::from_millis(2);

/// Time between TCP connections; longer, as each that is under way has a socket to be waited for.
const CONNECT_GAP: Duration = Duration::from_millis(10);

/// Round trips at the start that are not counted, as code and caches are cold.
const WARM_UP: usize = 20;

/// Time by which an answer may be overdue before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Interval at which the far end looks whether it may end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Options of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The round trip that was asked for; it only sets the pace.
    pub rtt: Duration,
    /// UDP echoes.
    pub echoes: usize,
    /// TCP connections.
    pub connects: usize,
    /// Scheduling of the client's thread.
    pub client: Scheduling,
    /// Scheduling of the server's thread.
    pub server: Scheduling,
}

/// Round trips that were seen, each list in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// From sending a datagram to having its echo.
    pub echoes: Vec<Duration>,
    /// From starting a TCP connection to having it.
    pub connects: Vec<Duration>,
    /// Echoes and connections that never came.
    pub lost: usize,
}

/// Measures round trips between two nodes, first by UDP, then by TCP; both programs' own time is
/// part of them.
pub fn probe(client: &Node, server: &Node, options: ProbeOptions) -> io::Result<Seen> {
    let ip = server.ipv4().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let over = AtomicBool::new(false);
    let far_end = server.run(|| FarEnd::bind(ip)).flatten()?;
    let (echo_at, connect_at) = far_end.addresses()?;
    thread::scope(|scope| {
        scope.spawn(|| far_end.serve(options.server, &over));
        let seen = client.run(|| {
            options.client.enter();
            let echoes = echoes(echo_at, options)?;
            connects(connect_at, options).map(|connects| seen(options, echoes, connects))
        });
        over.store(true, Ordering::Release);
        seen.flatten()
    })
}

fn seen(options: ProbeOptions, mut echoes: Vec<Duration>, mut connects: Vec<Duration>) -> Seen {
    let lost = options.echoes + options.connects - echoes.len() - connects.len();
    echoes.sort_unstable();
    connects.sort_unstable();
    Seen { echoes, connects, lost }
}

/// The server's side, which answers. Its sockets stay in the namespace they were made in.
struct FarEnd {
    echo: UdpSocket,
    listener: TcpListener,
}

impl FarEnd {
    fn bind(ip: Ipv4Addr) -> io::Result<FarEnd> {
        let echo = UdpSocket::bind((ip, 0))?;
        let listener = TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        echo.set_nonblocking(true)?;
        Ok(FarEnd { echo, listener })
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.echo.local_addr()?, self.listener.local_addr()?))
    }

    fn serve(&self, scheduling: Scheduling, over: &AtomicBool) {
        scheduling.enter();
        let mut buffer = [0; 64];
        while !over.load(Ordering::Acquire) {
            let mut fds = [
                PollFd::new(&self.echo, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            if wait(&mut fds, LOOK_EVERY).is_err() {
                return;
            }
            while let Ok((length, from)) = self.echo.recv_from(&mut buffer) {
                let _ = self.echo.send_to(buffer.get(..length).unwrap_or_default(), from);
            }
            while self.listener.accept().is_ok() {}
        }
    }
}

fn echoes(server: SocketAddr, options: ProbeOptions) -> io::Result<Vec<Duration>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let mut pace = Pace::new(options.echoes, options.rtt, ECHO_GAP);
    let mut sent = Vec::new();
    let mut seen = Vec::new();
    while let Some(left) = pace.wait_for(seen.len()) {
        wait(&mut [PollFd::new(&socket, PollFlags::IN)], left)?;
        let mut number = [0; 4];
        while socket.recv(&mut number).is_ok() {
            let sent = usize::try_from(u32::from_be_bytes(number)).ok().and_then(|at| sent.get(at));
            seen.extend(sent.map(Instant::elapsed));
        }
        if let Some(number) = pace.take_due() {
            sent.push(Instant::now());
            // One that is not accepted is never answered, and so counts as lost.
            let _ = socket.send(&number.to_be_bytes());
        }
    }
    Ok(without_warm_up(seen))
}

fn connects(server: SocketAddr, options: ProbeOptions) -> io::Result<Vec<Duration>> {
    let mut pace = Pace::new(options.connects, options.rtt, CONNECT_GAP);
    let mut open: Vec<(Socket, Instant)> = Vec::new();
    let mut seen = Vec::new();
    while let Some(left) = pace.wait_for(seen.len()) {
        let mut fds: Vec<_> =
            open.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::OUT)).collect();
        wait(&mut fds, left)?;
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let now = Instant::now();
        let mut ready = ready.into_iter();
        for (socket, start) in open.extract_if(.., |_| ready.next().unwrap_or_default()) {
            if socket.take_error()?.is_none() {
                seen.push(now.saturating_duration_since(start));
            }
        }
        if pace.take_due().is_some() {
            open.push(start_connecting(server)?);
        }
    }
    Ok(without_warm_up(seen))
}

fn start_connecting(server: SocketAddr) -> io::Result<(Socket, Instant)> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Ends with a reset, so that nothing of it crosses the link later.
    socket.set_linger(Some(Duration::ZERO))?;
    let start = Instant::now();
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok((socket, start)),
    }
}

fn without_warm_up(mut seen: Vec<Duration>) -> Vec<Duration> {
    seen.drain(..WARM_UP.min(seen.len()));
    seen
}

/// Schedule of round trips.
struct Pace {
    start: Instant,
    gap: Duration,
    rtt: Duration,
    count: u32,
    next: u32,
}

impl Pace {
    fn new(counted: usize, rtt: Duration, shortest: Duration) -> Pace {
        let count = u32::try_from(counted + WARM_UP).unwrap_or(u32::MAX);
        Pace { start: Instant::now(), gap: gap(rtt, shortest), rtt, count, next: 0 }
    }

    /// Returns the time to wait for an answer; `None` if no more is to come.
    fn wait_for(&self, answers: usize) -> Option<Duration> {
        let until = if self.next < self.count {
            self.gap * self.next
        } else {
            self.gap * self.count + self.rtt + PATIENCE
        };
        let left = until.saturating_sub(self.start.elapsed());
        let over = answers >= self.count as usize || self.next >= self.count && left.is_zero();
        (!over).then_some(left)
    }

    /// The number of the round trip to start now, if one is due.
    fn take_due(&mut self) -> Option<u32> {
        let due = self.next < self.count && self.start.elapsed() >= self.gap * self.next;
        due.then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// Time between starts, `shortest` or somewhat more, so that answers come half-way between two
/// starts: the ends and the forwarder are not to do two things at once.
fn gap(rtt: Duration, shortest: Duration) -> Duration {
    if rtt <= shortest {
        return shortest + rtt;
    }
    let whole = rtt.as_nanos() / shortest.as_nanos();
    rtt.div_f64(0.5 + u32::try_from(whole).map_or(f64::MAX, f64::from))
}

fn wait(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    // A wait longer than the type can hold counts as infinite.
    let timeout = Timespec::try_from(timeout).ok();
    match poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_between_two_starts() {
        for micros in [2_001, 5_000, 50_000, 133_000, 270_000] {
            let rtt = Duration::from_micros(micros);
            let gap = gap(rtt, ECHO_GAP);
            let phase = rtt.div_duration_f64(gap).fract();
            assert!((phase - 0.5).abs() < 0.01, "{rtt:?} {gap:?}");
            assert!(gap >= ECHO_GAP / 2 && gap <= 2 * ECHO_GAP, "{rtt:?} {gap:?}");
        }
        assert_eq!(gap(ECHO_GAP / 4, ECHO_GAP), ECHO_GAP * 5 / 4);
    }
}
