//! A server, its clients, and connections between them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_testkit::{Authority, Issued};
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{
    ClientConfig, ClientContext, Conn, CookiePolicy, Facts, MemoryFilter, NewSession, Progress,
    Read, ServerConfig, ServerContext, Session, SharedRing, TlsError, Trust,
};

use crate::certificates::Certified;

pub(crate) const NOW: UnixSeconds = UnixSeconds(1_790_000_000);

/// Early data that servers with [`takes_early_data`] allow.
pub(crate) const EARLY_MAX: u32 = 4242;

pub(crate) fn peer() -> IpAddr {
    [192, 0, 2, 1].into()
}

/// A server for a.test and b.test with a certificate each.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) issued: Vec<Issued>,
    pub(crate) ring: Arc<SharedRing>,
    pub(crate) config: ServerConfig,
    pub(crate) server: ServerContext,
    pub(crate) client: ClientContext,
}

/// Result of one connection.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) client: Facts,
    pub(crate) server: Facts,
    pub(crate) sessions: Vec<NewSession>,
    /// The client's first flight as it was on the wire.
    pub(crate) hello: Vec<u8>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// A site whose server is configured as `change` likes.
    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let authority = Authority::new();
        let issued: Vec<_> = ["a.test", "b.test"].map(|name| authority.issue(&[name])).into();
        let ring = Arc::new(SharedRing::new(KeyRing::generate(NOW, PERIOD).unwrap()));
        let certificates = issued.iter().map(Issued::certified).collect();
        let mut config = ServerConfig::new(certificates, Arc::clone(&ring));
        change(&mut config);
        let server = ServerContext::new(&config).unwrap();
        let client = ClientContext::new(&client_config(&authority)).unwrap();
        Self { authority, issued, ring, config, server, client }
    }

    /// The server with another configuration from now on.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut ServerConfig)) {
        change(&mut self.config);
        self.server.replace(&self.config).unwrap();
    }

    /// The client with another configuration from now on.
    pub(crate) fn reconfigure_client(&mut self, change: impl FnOnce(&mut ClientConfig)) {
        let mut config = client_config(&self.authority);
        change(&mut config);
        self.client = ClientContext::new(&config).unwrap();
    }

    pub(crate) fn accept(&self) -> Conn {
        self.server.accept(peer(), NOW).unwrap()
    }

    pub(crate) fn pair(&self, name: &str, session: Option<Session>) -> Pair {
        Pair::new(self.client.connect(name, session, false).unwrap(), self.accept())
    }

    /// A handshake with a.test, and the tickets that come after it.
    pub(crate) fn visit(&self, session: Option<Session>) -> Visit {
        self.visit_by(self.client.connect("a.test", session, false).unwrap())
    }

    pub(crate) fn visit_by(&self, client: Conn) -> Visit {
        Pair::new(client, self.accept()).visit()
    }

    /// As [`visit`](Self::visit), so long after now by the server's clock.
    pub(crate) fn visit_after(&self, session: Option<Session>, time: Duration) -> Visit {
        let client = self.client.connect("a.test", session, false).unwrap();
        Pair::new(client, self.server.accept(peer(), NOW + time).unwrap()).visit()
    }

    /// A session of a.test.
    pub(crate) fn session(&self) -> Session {
        self.visit(None).take()
    }
}

impl Visit {
    /// The newest session.
    pub(crate) fn take(mut self) -> Session {
        self.sessions.pop().unwrap().session
    }

    pub(crate) fn resumed(&self) -> bool {
        assert_eq!(self.client.resumed, self.server.resumed);
        self.client.resumed
    }
}

/// Trusts the site's authority. With small groups a ClientHello is short, and tests are quick; TLS
/// 1.2 wants that of the certificate's key among them (RFC 8422 section 5.3).
pub(crate) fn client_config(authority: &Authority) -> ClientConfig {
    ClientConfig {
        groups: Some("X25519:P-256".to_owned()),
        ..ClientConfig::new(Trust::Roots(authority.pem()))
    }
}

/// Takes early data, by a filter that has been up for a minute.
pub(crate) fn takes_early_data(config: &mut ServerConfig) {
    config.early_data_max = EARLY_MAX;
    config.replay = Arc::new(filter());
}

pub(crate) fn filter() -> MemoryFilter {
    MemoryFilter::with_clock(1000, || Duration::from_secs(60)).unwrap()
}

pub(crate) fn hands_out_cookies(config: &mut ServerConfig) {
    config.cookies = Some(CookiePolicy::default());
}

/// Two ends and nothing between them.
pub(crate) struct Pair {
    pub(crate) client: Conn,
    pub(crate) server: Conn,
}

impl Pair {
    pub(crate) fn new(client: Conn, server: Conn) -> Self {
        Self { client, server }
    }

    /// A whole handshake, and the tickets that come after it.
    pub(crate) fn visit(mut self) -> Visit {
        self.client.handshake().unwrap();
        let hello = self.client.poll_bytes().unwrap();
        self.server.handle_bytes(&hello);
        self.shake().unwrap();
        let sessions = self.sessions();
        Visit { client: self.client.facts(), server: self.server.facts(), sessions, hello }
    }

    /// Lets both shake hands to the end.
    pub(crate) fn shake(&mut self) -> Result<(), TlsError> {
        for _ in 0..8 {
            let client = self.client.handshake();
            self.carry_to_server();
            let server = self.server.handshake();
            self.carry_to_client();
            if (client?, server?) == (Progress::Done, Progress::Done) {
                return Ok(());
            }
        }
        panic!("the handshake comes to no end");
    }

    /// Lets both shake hands until one fails, and says what each said last.
    pub(crate) fn clash(&mut self) -> (Result<Progress, TlsError>, Result<Progress, TlsError>) {
        for _ in 0..8 {
            let client = self.client.handshake();
            self.carry_to_server();
            let server = self.server.handshake();
            self.carry_to_client();
            if client.is_err() || server.is_err() {
                // The other has yet to read the alert.
                self.carry_to_server();
                return (last_word(&mut self.client), last_word(&mut self.server));
            }
        }
        panic!("nobody fails");
    }

    pub(crate) fn carry_to_server(&mut self) {
        pass(&mut self.client, &mut self.server);
    }

    pub(crate) fn carry_to_client(&mut self) {
        pass(&mut self.server, &mut self.client);
    }

    /// Returns the sessions that have come for the client after the handshake.
    pub(crate) fn sessions(&mut self) -> Vec<NewSession> {
        self.carry_to_client();
        assert_eq!(self.client.read(&mut [0; 100]), Ok(Read::Wait));
        std::iter::from_fn(|| self.client.poll_session()).collect()
    }
}

/// Hands over what one end has for the other.
pub(crate) fn pass(from: &mut Conn, to: &mut Conn) {
    while let Some(bytes) = from.poll_bytes() {
        to.handle_bytes(&bytes);
    }
}

/// Returns an end's state of its connection once it has got everything.
fn last_word(conn: &mut Conn) -> Result<Progress, TlsError> {
    match conn.read(&mut [0; 100]) {
        Err(error) => Err(error),
        Ok(_) => conn.handshake(),
    }
}

/// All that can be read now.
pub(crate) fn read_all(conn: &mut Conn) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 1000];
    while let Read::Bytes(count) = conn.read(&mut buffer).unwrap() {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

/// Writes all of it, which has to be short.
pub(crate) fn write(conn: &mut Conn, bytes: &[u8]) {
    assert_eq!(conn.write(bytes), Ok(bytes.len()));
}

/// The session of a.test as if it were of b.test, for a client that mixes its servers up.
pub(crate) fn renamed(session: &Session) -> Session {
    altered(session, b"a.test", b"b.test")
}

/// The session with `to` wherever it had `from`, which is as long.
pub(crate) fn altered(session: &Session, from: &[u8], to: &[u8]) -> Session {
    let mut bytes = session.as_bytes().to_vec();
    let starts = 0..=bytes.len() - from.len();
    let places: Vec<_> = starts.filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "{from:?} is not in it");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    Session::from_bytes(&bytes).unwrap()
}
