//! Fuzz targets of headstart-tls.
//!
//! Apart from `lib.rs`, whose targets need no OpenSSL. `crates/tls/tests/fuzz_replay.rs` includes
//! this file.

#[allow(dead_code)]
#[path = "../../crates/tls/tests/engine/certificates.rs"]
mod certificates;
#[path = "../../crates/tls/tests/engine/hello.rs"]
mod hello;

use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use headstart_proto::UnixSeconds;
use headstart_testkit::Authority;
use headstart_tls::keyring::{KeyRing, PERIOD, PERIOD_MAX, PERIOD_MIN};
use headstart_tls::limits::{EARLY_DATA_MAX, NAME_MAX, SESSION_MAX};
use headstart_tls::wire::{TicketData, binder_hash, normal_name, server_name};
use headstart_tls::{
    ClientConfig, ClientContext, Conn, CookiePolicy, Progress, Read, ReplayFilter, ServerConfig,
    ServerContext, Session, SharedRing, Trust, Version,
};

use certificates::Certified;

/// Any bytes as the extensions and the ticket data that are read by hand: what is read is written
/// and read the same, and nothing is read of a part.
pub fn tls_extensions(bytes: &[u8]) {
    if let Some(name) = server_name(bytes) {
        assert!((1..=NAME_MAX).contains(&name.len()) && name.is_ascii());
        assert_eq!(normal_name(&name).as_deref(), Some(name.as_str()));
        assert_eq!(server_name(&name_extension(&name)), Some(name));
    }
    if let Some(hash) = binder_hash(bytes) {
        // All places of a long extension would take the square of its length.
        for at in (0..bytes.len()).step_by(bytes.len() / 64 + 1) {
            assert_eq!(binder_hash(&bytes[..at]), None, "a part of it");
            let mut other = bytes.to_vec();
            other[at] ^= 1;
            if let Some(other_hash) = binder_hash(&other) {
                assert_eq!(other_hash == hash, first_binder(&other) == first_binder(bytes));
            }
        }
    }
    if let Some(data) = TicketData::parse(bytes) {
        assert_eq!(data.emit(), bytes);
    }
}

fn name_extension(name: &str) -> Vec<u8> {
    let [list, entry] =
        [name.len() + 3, name.len()].map(|bytes| u16::try_from(bytes).unwrap().to_be_bytes());
    [&list[..], &[0], &entry, name.as_bytes()].concat()
}

/// The first binder of an extension that is well-formed.
fn first_binder(extension: &[u8]) -> &[u8] {
    let identities = usize::from(u16::from_be_bytes([extension[0], extension[1]]));
    let binders = &extension[2 + identities + 2..];
    &binders[1..=usize::from(binders[0])]
}

/// Any text as a key file: a ring that is read is written and read the same, and can be rotated.
pub fn key_files(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let ring = match KeyRing::parse(text) {
        Ok(ring) => ring,
        Err(error) => {
            assert!((1..=text.lines().count().max(1)).contains(&error.line), "{error}");
            return;
        }
    };
    assert!((PERIOD_MIN..=PERIOD_MAX).contains(&ring.period));
    let written = ring.to_text();
    assert_eq!(*KeyRing::parse(&written).unwrap().to_text(), *written);
    let ids: Vec<u8> = ring.epochs().map(|epoch| epoch.id).collect();
    let names: Vec<_> = ring.epochs().map(|epoch| epoch.ticket_name()).collect();
    for at in 1..ids.len() {
        assert!(!ids[..at].contains(&ids[at]) && !names[..at].contains(&names[at]));
    }
    let rotated = ring.rotated(ring.rotation_due()).unwrap();
    assert_eq!(rotated.current.ticket_name(), ring.next.ticket_name());
    assert_eq!(rotated.previous.map(|epoch| epoch.id), Some(ring.current.id));
    assert!(rotated.next.id != ring.next.id && rotated.next.id != ring.current.id);
}

/// Any bytes as a session, or a real one with some of them changed, offered to the server: it opens
/// a connection or none, and is resumed only with a ticket that the server has made.
///
/// The first byte says what the others are.
pub fn tls_sessions(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let is_12 = kind / 4 % 2 == 1;
    let (client, real) = match is_12 {
        false => (&SITE.client, SITE.session.as_bytes()),
        true => (&SITE.client_12, SITE.session_12.as_bytes()),
    };
    let candidate = match kind % 4 {
        0 => rest.to_vec(),
        1 => [&real[..SESSION_HEAD], rest].concat(),
        _ => edited(real, rest),
    };
    let Ok(session) = Session::from_bytes(&candidate) else { return };
    assert_eq!(session.as_bytes(), candidate);
    assert!(candidate.len() <= SESSION_MAX);
    assert!((1..=NAME_MAX).contains(&session.server_name().len()));
    let Ok(mut client) = client.connect("a.test", Some(session), true) else { return };
    let mut server = SITE.accept();
    let _ = client.write_early(b"early");
    let _ = client.handshake();
    let Some(flight) = client.poll_bytes() else { return };
    server.handle_bytes(&flight);
    if !finish(&mut client, &mut server) {
        return;
    }
    let resumed = client.facts().resumed;
    assert_eq!(server.facts().resumed, resumed);
    if resumed {
        let ours = if is_12 { &SITE.ticket_12 } else { &SITE.ticket };
        assert_eq!(offered(&flight), *ours);
    }
    assert_eq!(server.write(b"data"), Ok(4));
    pass(&mut server, &mut client);
    let mut buffer = [0; 10];
    assert_eq!(client.read(&mut buffer), Ok(Read::Bytes(4)));
}

/// Changes in the first flight of a client that resumes, on its way to the server: no handshake
/// ends and no early data is taken after any change of the ClientHello, and all goes well without
/// one.
///
/// The first byte says what the client does, each four that follow make one change.
pub fn tls_tickets(bytes: &[u8]) {
    let Some((&kind, edits)) = bytes.split_first() else { return };
    let mut trial = Trial::new(kind);
    let changed = edited(&trial.flight, edits);
    trial.server.handle_bytes(&changed);
    let progress = trial.server.handshake();
    let is_same = message(&changed) == message(&trial.flight);
    if progress == Ok(Progress::EarlyData) {
        assert!(is_same && trial.is_early, "early data of a ClientHello that was changed");
    }
    let is_done = finish(&mut trial.client, &mut trial.server);
    if is_done {
        assert!(is_same, "a handshake ended after a change");
        assert_eq!(trial.server.facts().resumed, trial.resumes);
        assert_eq!(trial.client.facts().resumed, trial.resumes);
    }
    if changed == trial.flight {
        assert!(is_done && (progress == Ok(Progress::EarlyData)) == trial.is_early);
    }
    let _ = (trial.server.write(b"answer"), trial.server.read(&mut [0; 10]));
}

/// A client that has sent its flight, and the server that has not got it yet.
struct Trial {
    client: Conn,
    server: Conn,
    flight: Vec<u8>,
    is_early: bool,
    resumes: bool,
}

impl Trial {
    fn new(kind: u8) -> Self {
        let (client, name, session) = match kind % 5 {
            2 => (&SITE.client_12, "a.test", &SITE.session_12),
            3 => (&SITE.client, "b.test", &SITE.stray),
            _ => (&SITE.client, "a.test", &SITE.session),
        };
        let mut client = client.connect(name, Some(session.clone()), true).unwrap();
        let mut server = SITE.accept();
        let is_early = kind % 5 == 1;
        if is_early {
            assert_eq!(client.write_early(b"early"), Ok(5));
        }
        client.handshake().unwrap();
        if kind % 5 == 4 {
            // The server wants another group: what counts is the second ClientHello.
            server = SITE.retrying.accept(Ipv4Addr::LOCALHOST.into(), NOW).unwrap();
            pass(&mut client, &mut server);
            server.handshake().unwrap();
            pass(&mut server, &mut client);
            client.handshake().unwrap();
        }
        let flight = client.poll_bytes().unwrap();
        Self { client, server, flight, is_early, resumes: kind % 5 != 3 }
    }
}

const NOW: UnixSeconds = UnixSeconds(1_790_000_000);

/// Bytes of a session of a.test before those of OpenSSL, and where the name stands in it.
const SESSION_HEAD: usize = 49;
const SESSION_NAME: std::ops::Range<usize> = 43..49;

struct Site {
    server: ServerContext,
    /// The same with another group than those that clients guess.
    retrying: ServerContext,
    client: ClientContext,
    /// One that speaks TLS 1.2 alone.
    client_12: ClientContext,
    session: Session,
    session_12: Session,
    /// As if it were of b.test.
    stray: Session,
    ticket: Option<Vec<u8>>,
    ticket_12: Option<Vec<u8>>,
}

static SITE: LazyLock<Site> = LazyLock::new(Site::new);

impl Site {
    fn new() -> Self {
        let authority = Authority::new();
        let issued = ["a.test", "b.test"].map(|name| authority.issue(&[name]).certified());
        let ring = Arc::new(SharedRing::new(KeyRing::generate(NOW, PERIOD).unwrap()));
        let mut config = ServerConfig::new(issued.into(), ring);
        config.early_data_max = EARLY_DATA_MAX;
        config.replay = Arc::new(Forgetful);
        config.cookies = Some(CookiePolicy::default());
        let server = ServerContext::new(&config).unwrap();
        config.groups = Some("P-256".to_owned());
        let retrying = ServerContext::new(&config).unwrap();

        let mut config = ClientConfig::new(Trust::Roots(authority.pem()));
        config.groups = Some("X25519:P-256".to_owned());
        let client = ClientContext::new(&config).unwrap();
        config.max_version = Version::Tls12;
        let client_12 = ClientContext::new(&config).unwrap();
        let [session, session_12] = [&client, &client_12].map(|client| visit(client, &server));
        let mut stray = session.as_bytes().to_vec();
        assert_eq!(stray[SESSION_NAME], *b"a.test");
        stray[SESSION_NAME].copy_from_slice(b"b.test");
        let stray = Session::from_bytes(&stray).unwrap();
        let ticket = shown(&client, &session);
        let ticket_12 = shown(&client_12, &session_12);
        assert!(ticket.is_some() && ticket_12.is_some());
        Self { server, retrying, client, client_12, session, session_12, stray, ticket, ticket_12 }
    }

    fn accept(&self) -> Conn {
        self.server.accept(Ipv4Addr::LOCALHOST.into(), NOW).unwrap()
    }
}

/// Takes everything for new: what is single-use is tested elsewhere.
struct Forgetful;

impl ReplayFilter for Forgetful {
    fn scope(&self) -> [u8; 16] {
        [7; 16]
    }

    fn is_first(&self, _: [u8; 32]) -> bool {
        true
    }
}

/// A session of a.test.
fn visit(client: &ClientContext, server: &ServerContext) -> Session {
    let mut client = client.connect("a.test", None, false).unwrap();
    let mut server = server.accept(Ipv4Addr::LOCALHOST.into(), NOW).unwrap();
    client.handshake().unwrap();
    pass(&mut client, &mut server);
    assert!(finish(&mut client, &mut server));
    assert_eq!(client.read(&mut [0; 10]), Ok(Read::Wait));
    client.poll_session().unwrap().session
}

/// The ticket of a session, as a ClientHello shows it.
fn shown(client: &ClientContext, session: &Session) -> Option<Vec<u8>> {
    let mut client = client.connect("a.test", Some(session.clone()), false).unwrap();
    client.handshake().unwrap();
    offered(&client.poll_bytes().unwrap())
}

/// The ticket in a client's flight.
fn offered(flight: &[u8]) -> Option<Vec<u8>> {
    hello::identity(flight).or_else(|| hello::ticket(flight))
}

/// Lets both go on until both are done; whether they are.
fn finish(client: &mut Conn, server: &mut Conn) -> bool {
    for _ in 0..8 {
        let server_said = server.handshake();
        pass(server, client);
        let client_said = client.handshake();
        pass(client, server);
        if (client_said, server_said) == (Ok(Progress::Done), Ok(Progress::Done)) {
            // Tickets of TLS 1.3 come behind.
            pass(server, client);
            return true;
        }
    }
    false
}

fn pass(from: &mut Conn, to: &mut Conn) {
    while let Some(bytes) = from.poll_bytes() {
        to.handle_bytes(&bytes);
    }
}

/// Applies edits of four bytes each: operation 1 | position 2, big-endian | value 1.
///
/// The operations: XOR the byte with the value; remove `value` bytes before the end; truncate at
/// the position; remove the byte; insert the value. Positions wrap around.
fn edited(bytes: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits.chunks_exact(4).take(EDITS_MAX) {
        let place = usize::from(u16::from_be_bytes([edit[1], edit[2]]));
        let Some(at) = place.checked_rem(bytes.len()) else { break };
        match edit[0] % 5 {
            0 => bytes[at] ^= edit[3],
            1 => {
                let at = bytes.len() - 1 - at;
                bytes[at] ^= edit[3];
            }
            2 => bytes.truncate(at),
            3 => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, edit[3]),
        }
    }
    bytes
}

/// Enough for every combination that means something.
const EDITS_MAX: usize = 16;

/// The first handshake message in a stream of records, if it is whole.
fn message(mut stream: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let (&[kind, _, _, high, low], rest) = stream.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (content, rest) = rest.split_at_checked(length)?;
        stream = rest;
        if kind == 22 {
            message.extend_from_slice(content);
        }
        if let Some(&[_, a, b, c]) = message.first_chunk() {
            let length = 4 + usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
            if message.len() >= length {
                message.truncate(length);
                return Some(message);
            }
        }
    }
}
