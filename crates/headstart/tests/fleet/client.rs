//! A client of HTTP over TLS that says what became of each handshake.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use headstart_tls::{
    ClientConfig, ClientContext, Conn, EarlyData, Facts, Progress, Read as Plain, Session, Trust,
};

use crate::edge::PATIENCE;

/// The site's name.
pub(crate) const NAME: &str = "www.example.com";

/// Clients that trust anybody: what is looked at here is resumption.
pub(crate) struct Client(ClientContext);

/// Result of a visit.
pub(crate) struct Visit {
    pub(crate) facts: Facts,
    pub(crate) answer: String,
    /// True if the answer was as long as its head says.
    pub(crate) is_whole: bool,
    /// The newest session.
    pub(crate) session: Option<Session>,
}

/// A request after which the server closes.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\n\r\n")
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// Makes a client with changes to its configuration.
    pub(crate) fn with(change: impl FnOnce(&mut ClientConfig)) -> Self {
        let mut config = ClientConfig::new(Trust::Anyone);
        config.alpn = vec![b"http/1.1".to_vec()];
        config.groups = Some("X25519".into());
        change(&mut config);
        Self(ClientContext::new(&config).unwrap())
    }

    /// Asks for `path`, as early data if the session allows that.
    pub(crate) fn visit(
        &self,
        server: SocketAddr,
        path: &str,
        session: Option<Session>,
        early: bool,
    ) -> io::Result<Visit> {
        let mut conn = self.0.connect(NAME, session, false).map_err(io::Error::other)?;
        let request = get(path);
        let sent_early = early
            && conn.write_early(request.as_bytes()).map_err(io::Error::other)? == request.len();
        let mut tcp = TcpStream::connect(server)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        conn.handshake().map_err(io::Error::other)?;
        tcp.write_all(&leaving(&mut conn))?;
        let mut requested = sent_early;
        let (mut buffer, mut answer, mut session) = ([0; 16 * 1024], Vec::new(), None);
        loop {
            let count = tcp.read(&mut buffer)?;
            if count == 0 {
                conn.handle_end();
            } else {
                conn.handle_bytes(&buffer[..count]);
            }
            let done = conn.handshake().map_err(io::Error::other)? == Progress::Done;
            // Refused early data must be sent again.
            requested &= !done || !sent_early || conn.facts().early_data == EarlyData::Accepted;
            if done && !requested && answer.is_empty() {
                requested = conn.write(request.as_bytes()).map_err(io::Error::other)? > 0;
            }
            let mut plain = [0; 16 * 1024];
            let ended = loop {
                match conn.read(&mut plain).map_err(io::Error::other)? {
                    Plain::Bytes(count) => answer.extend_from_slice(&plain[..count]),
                    Plain::Wait => break false,
                    Plain::End => break true,
                }
            };
            session = std::iter::from_fn(|| conn.poll_session())
                .last()
                .map(|new| new.session)
                .or(session);
            let _ = tcp.write_all(&leaving(&mut conn));
            if ended {
                break;
            }
        }
        let (is_whole, facts) = (is_whole(&answer), conn.facts());
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(Visit { facts, answer, is_whole, session })
    }

    /// The first flight of a client that asks for `path` as early data.
    pub(crate) fn flight(&self, path: &str, session: Session) -> Vec<u8> {
        let mut conn = self.0.connect(NAME, Some(session), false).unwrap();
        let request = get(path);
        assert_eq!(conn.write_early(request.as_bytes()).unwrap(), request.len());
        conn.handshake().unwrap();
        leaving(&mut conn)
    }
}

fn is_whole(answer: &[u8]) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = answer.windows(END.len()).position(|part| part == END) else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: Option<usize> = length.and_then(|length| length.trim().parse().ok());
    length == Some(answer.len() - end - END.len())
}

fn leaving(conn: &mut Conn) -> Vec<u8> {
    std::iter::from_fn(|| conn.poll_bytes()).flatten().collect()
}

impl Visit {
    pub(crate) fn resumed(&self) -> bool {
        self.facts.resumed
    }

    pub(crate) fn early(&self) -> bool {
        self.facts.early_data == EarlyData::Accepted
    }

    pub(crate) fn session(self) -> Session {
        self.session.expect("a ticket")
    }

    /// Asserts that the request was answered.
    pub(crate) fn ok(self) -> Self {
        assert!(self.answer.starts_with("HTTP/1.1 200"), "{}", self.answer);
        self
    }
}

/// Sends a recorded flight, and waits until the ClientHello itself is answered. As long as the
/// connection is open, the edge goes on with what it has taken.
#[must_use]
pub(crate) fn replay(server: SocketAddr, flight: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(server).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.write_all(flight).unwrap();
    assert!(tcp.read(&mut [0; 16 * 1024]).unwrap() > 0);
    tcp
}
