//! One connection of an application through the agent, as it sees it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use headstart_peers::Trial;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};

/// What is spoken with the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// What came of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Visited {
    pub(super) trial: Trial,
    /// The time of a second request on the same connection: a round trip of its circuit.
    pub(super) rtt_ms: Option<f64>,
    /// The circuit that it was on.
    pub(super) circuit: Option<String>,
    pub(super) round: u32,
    pub(super) flagged: bool,
}

/// When things happened.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    request: Duration,
    first: Duration,
    last: Duration,
    again: Duration,
}

/// Gets one response, and one more; `circuit` is asked while the connection is open.
pub(super) fn visit(
    agent: SocketAddr,
    name: &str,
    suite: Suite,
    response: usize,
    timeout: Duration,
    circuit: impl FnOnce() -> Option<String>,
) -> Visited {
    let mut circuit_found = None;
    let asked = || circuit_found = circuit();
    match exchange(agent, name, suite, response, timeout, asked) {
        Ok(times) => {
            let ms = |time: Duration| Some(time.as_secs_f64() * 1e3);
            let trial = Trial {
                ok: true,
                ms_to_first_request_byte: ms(times.request),
                ms_to_first_response_byte: ms(times.first),
                ms_to_last_response_byte: ms(times.last),
                bytes: response as u64,
                ..Trial::default()
            };
            let rtt_ms = ms(times.again);
            Visited { trial, rtt_ms, circuit: circuit_found, ..Visited::default() }
        }
        Err(error) => {
            let trial = Trial { error: error.to_string(), ..Trial::default() };
            Visited { trial, circuit: circuit_found, ..Visited::default() }
        }
    }
}

fn exchange(
    agent: SocketAddr,
    name: &str,
    suite: Suite,
    response: usize,
    timeout: Duration,
    asked: impl FnOnce(),
) -> io::Result<Times> {
    let begun = Instant::now();
    let mut tcp = TcpStream::connect_timeout(&agent, timeout)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(timeout))?;
    connect(&mut tcp, name, suite.port())?;
    match suite {
        Suite::Http => two_requests(tcp, name, response, begun, asked),
        Suite::Tls => {
            let mut tls =
                SslConnector::builder(SslMethod::tls_client()).map_err(io::Error::other)?;
            // Nobody else is on this network, and what is measured is not verification.
            tls.set_verify(SslVerifyMode::NONE);
            let stream = tls
                .build()
                .connect(name, tcp)
                .map_err(|error| io::Error::other(error.to_string()))?;
            two_requests(stream, name, response, begun, asked)
        }
    }
}

/// SOCKS5 with the agent, step by step as applications do.
fn connect(tcp: &mut TcpStream, name: &str, port: u16) -> io::Result<()> {
    tcp.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    tcp.read_exact(&mut method)?;
    let length = u8::try_from(name.len()).map_err(io::Error::other)?;
    let request = [&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat();
    tcp.write_all(&request)?;
    let mut reply = [0; 10];
    tcp.read_exact(&mut reply)?;
    match reply {
        [5, 0, ..] => Ok(()),
        [_, code, ..] => Err(io::Error::other(format!("the agent's reply is {code}"))),
    }
}

fn two_requests(
    mut stream: impl Read + Write,
    name: &str,
    response: usize,
    begun: Instant,
    asked: impl FnOnce(),
) -> io::Result<Times> {
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
    let mut times = Times { request: begun.elapsed(), ..Times::default() };
    stream.write_all(request.as_bytes())?;
    times.first = receive(&mut stream, response, begun)?;
    times.last = begun.elapsed();
    asked();
    let again = Instant::now();
    stream.write_all(request.as_bytes())?;
    times.again = receive(&mut stream, response, again)?;
    Ok(times)
}

/// Reads a response of so many bytes; when its first byte was there.
fn receive(stream: &mut impl Read, response: usize, begun: Instant) -> io::Result<Duration> {
    let mut received = Vec::new();
    let mut room = vec![0; 16 * 1024];
    let mut first = None;
    loop {
        let read = stream.read(&mut room)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.get_or_insert_with(|| begun.elapsed());
        received.extend_from_slice(room.get(..read).unwrap_or_default());
        let head = received.windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| received.len() >= head + 4 + response) {
            return Ok(first.unwrap_or_default());
        }
    }
}
