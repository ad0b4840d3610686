//! A proxy between edges and Redis, which may say what Redis would not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Fate of Redis's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is passed on.
    Pass,
    /// It is kept back for longer than anybody waits.
    Silent,
    /// It comes too late.
    Slow,
    /// Bytes that are no answer come in its place.
    Garbage,
    /// An answer comes before it that says yes, so that all answers are one off.
    Ahead,
    /// An array of a billion answers begins in its place.
    Huge,
    /// A string without end comes in its place.
    Endless,
    /// Its clock is a minute ahead.
    Clock,
    /// Connections are closed as soon as something is asked.
    Closed,
}

impl Mode {
    /// All that are wrong.
    pub(crate) const ALL: [Self; 8] = [
        Self::Silent,
        Self::Slow,
        Self::Garbage,
        Self::Ahead,
        Self::Huge,
        Self::Endless,
        Self::Clock,
        Self::Closed,
    ];
}

/// A way to Redis.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    redis: Arc<Mutex<SocketAddr>>,
}

impl Proxy {
    pub(crate) fn start(redis: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, redis) = (Arc::new(Mutex::new(Mode::Pass)), Arc::new(Mutex::new(redis)));
        let (shown, now) = (Arc::clone(&mode), Arc::clone(&redis));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (mode, redis) = (Arc::clone(&shown), *now.lock().unwrap());
                thread::spawn(move || {
                    if let Ok(server) = TcpStream::connect(redis) {
                        pass(&client, &server, &mode);
                    }
                });
            }
        });
        Self { address, mode, redis }
    }

    /// New connections reach another Redis from now on.
    pub(crate) fn lead_to(&self, redis: SocketAddr) {
        *self.redis.lock().unwrap() = redis;
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

fn pass(client: &TcpStream, server: &TcpStream, mode: &Mutex<Mode>) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut from, mut to) = (client, server);
            let _ = std::io::copy(&mut from, &mut to);
            let _ = server.shutdown(Shutdown::Both);
        });
        let mut buffer = [0; 64 * 1024];
        let (mut from, mut to) = (server, client);
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let now = *mode.lock().unwrap();
            if answer(&mut to, &buffer[..count], now).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
}

fn answer(to: &mut &TcpStream, text: &[u8], mode: Mode) -> std::io::Result<()> {
    match mode {
        Mode::Pass => to.write_all(text),
        Mode::Silent => Ok(()),
        Mode::Slow => {
            // Long after a handshake has gone on, even if the edge was not running.
            thread::sleep(Duration::from_millis(500));
            to.write_all(text)
        }
        Mode::Garbage => to.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n\0\xff*-7\r\n"),
        Mode::Ahead => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
            write!(to, "*3\r\n$16\r\n0123456789abcdef\r\n:1\r\n:{now}\r\n")?;
            to.write_all(text)
        }
        Mode::Huge => to.write_all(b"*1000000000\r\n"),
        Mode::Endless => {
            to.write_all(b"$1000000000\r\n")?;
            loop {
                to.write_all(&[b'x'; 64 * 1024])?;
            }
        }
        Mode::Clock => to.write_all(&later(text)),
        Mode::Closed => Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Moves all times in milliseconds a minute later: they are the only numbers with this many digits.
fn later(output: &[u8]) -> Vec<u8> {
    const DIGITS: usize = 13;
    let mut bytes = output.to_vec();
    for at in 1..bytes.len().saturating_sub(DIGITS) {
        let number = at..at + DIGITS;
        let text = std::str::from_utf8(&bytes[number.clone()]).unwrap_or_default();
        if bytes[at - 1] == b':'
            && let Ok(time) = text.parse::<u64>()
        {
            bytes[number].copy_from_slice((time + 60_000).to_string().as_bytes());
        }
    }
    bytes
}
