//! One connection of an application through the agent, as it sees it.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use headstart_openers::Trial;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use serde::Deserialize;

use crate::socks;

/// Protocol spoken with the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Suite {
    Http,
    Tls,
}

impl Suite {
    pub(super) const ALL: [Self; 2] = [Self::Http, Self::Tls];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Tls => 443,
        }
    }
}

/// Bytes of an answer's head at most.
const HEAD_MAX: usize = 8 << 10;

/// Interval at which the end is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Target of a visit, and its time limit.
pub(super) struct Wanted<'w> {
    pub(super) agent: SocketAddr,
    pub(super) name: &'w str,
    pub(super) suite: Suite,
    /// Bytes of the body.
    pub(super) response: usize,
    /// Time limit for the whole visit.
    pub(super) timeout: Duration,
    /// Returns true as long as the user wants it.
    pub(super) wanted: &'w (dyn Fn() -> bool + Sync),
}

/// Result of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Visited {
    pub(super) trial: Trial,
    /// The time of a second request on the same connection: a round trip of its circuit.
    pub(super) rtt_ms: Option<f64>,
    pub(super) circuit: Option<String>,
    pub(super) round: u32,
    pub(super) flagged: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    request: Duration,
    first: Duration,
    last: Duration,
    again: Duration,
}

/// A connection that ends at a time, whatever comes on it: also one byte now and then.
struct Timed<'w> {
    tcp: TcpStream,
    until: Instant,
    wanted: &'w (dyn Fn() -> bool + Sync),
}

impl<'w> Timed<'w> {
    fn connect(wanted: &Wanted<'w>, begun: Instant) -> io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&wanted.agent, wanted.timeout)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LOOK))?;
        tcp.set_write_timeout(Some(LOOK))?;
        Ok(Self { tcp, until: begun + wanted.timeout, wanted: wanted.wanted })
    }

    /// Tries until there is something else than nothing yet.
    fn again(
        &mut self,
        mut act: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if !(self.wanted)() {
                return Err(io::Error::other("interrupted"));
            }
            if Instant::now() >= self.until {
                return Err(ErrorKind::TimedOut.into());
            }
            match act(&mut self.tcp) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

impl fmt::Debug for Timed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.again(|tcp| tcp.read(buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.again(|tcp| tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gets one response, and one more; `circuit` is asked while the connection is open.
pub(super) fn visit(wanted: &Wanted<'_>, circuit: impl FnOnce() -> Option<String>) -> Visited {
    let mut circuit_found = None;
    match exchange(wanted, || circuit_found = circuit()) {
        Ok(times) => {
            let [request, first, last, rtt_ms] =
                [times.request, times.first, times.last, times.again]
                    .map(|time| Some(time.as_secs_f64() * 1e3));
            let trial = Trial {
                ok: true,
                ms_to_first_request_byte: request,
                ms_to_first_response_byte: first,
                ms_to_last_response_byte: last,
                bytes: wanted.response as u64,
                ..Trial::default()
            };
            Visited { trial, rtt_ms, circuit: circuit_found, ..Visited::default() }
        }
        Err(error) => {
            let trial = Trial { error: error.to_string(), ..Trial::default() };
            Visited { trial, circuit: circuit_found, ..Visited::default() }
        }
    }
}

fn exchange(wanted: &Wanted<'_>, on_request: impl FnOnce()) -> io::Result<Times> {
    let begun = Instant::now();
    let mut stream = Timed::connect(wanted, begun)?;
    socks::connect(&mut stream, wanted.name, wanted.suite.port())?;
    match wanted.suite {
        Suite::Http => two_requests(stream, wanted, begun, on_request),
        Suite::Tls => {
            let mut tls =
                SslConnector::builder(SslMethod::tls_client()).map_err(io::Error::other)?;
            // The network is private, and verification is not measured.
            tls.set_verify(SslVerifyMode::NONE);
            let stream = tls
                .build()
                .connect(wanted.name, stream)
                .map_err(|error| io::Error::other(error.to_string()))?;
            two_requests(stream, wanted, begun, on_request)
        }
    }
}

fn two_requests(
    mut stream: impl Read + Write,
    wanted: &Wanted<'_>,
    begun: Instant,
    on_request: impl FnOnce(),
) -> io::Result<Times> {
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", wanted.name);
    let mut times = Times { request: begun.elapsed(), ..Times::default() };
    stream.write_all(request.as_bytes())?;
    times.first = receive(&mut stream, wanted.response, begun)?;
    times.last = begun.elapsed();
    on_request();
    let again = Instant::now();
    stream.write_all(request.as_bytes())?;
    times.again = receive(&mut stream, wanted.response, again)?;
    Ok(times)
}

/// Reads a response of so many bytes; when its first byte was there.
fn receive(stream: &mut impl Read, response: usize, begun: Instant) -> io::Result<Duration> {
    let mut received = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    let mut first = None;
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        first.get_or_insert_with(|| begun.elapsed());
        received.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let head = received.windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| received.len() >= head + 4 + response) {
            return Ok(first.unwrap_or_default());
        }
        if received.len() > HEAD_MAX + response {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns the outcome of a visit to an agent that says it has connected, and then this every
    /// 10 ms.
    fn visited(chunk: Vec<u8>, timeout: Duration, wanted: &(dyn Fn() -> bool + Sync)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let agent = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let hello = [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            client.write_all(&hello).unwrap();
            while client.write_all(&chunk).is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let (suite, response) = (Suite::Http, 10);
        let wanted = Wanted { agent, name: "x.test", suite, response, timeout, wanted };
        visit(&wanted, || None).trial.error
    }

    #[test]
    fn slow_and_flooding_agents_are_abandoned() {
        let (always, brief) = (|| true, Duration::from_millis(300));
        let late = io::Error::from(ErrorKind::TimedOut).to_string();
        assert_eq!(visited(b"x".to_vec(), brief, &always), late);
        assert_eq!(visited(Vec::new(), brief, &always), late);
        let flood = io::Error::from(ErrorKind::InvalidData).to_string();
        let patience = Duration::from_secs(60);
        assert_eq!(visited(vec![b'x'; 4096], patience, &always), flood);
        assert_eq!(visited(Vec::new(), patience, &|| false), "interrupted");
    }
}
