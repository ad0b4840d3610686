use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use openssl::ssl::{ErrorCode, NameType, Ssl, SslRef, SslStream};

use crate::error::{TlsError, forget_errors};
use crate::facts::{EarlyData, Facts, Version};
use crate::ffi;
use crate::limits::{OUTPUT_MAX, PROTOCOL_MAX, UNSENT_MAX};
use crate::pipe::Pipe;
use crate::session::NewSession;
use crate::ticket_request::TicketRequest;

/// One TLS connection without a transport: ciphertext in and out, plain bytes in and out.
///
/// The caller moves bytes. Bytes from the transport go to [`handle_bytes`](Self::handle_bytes).
/// After any other call, even a failed one, call [`poll_bytes`](Self::poll_bytes) until it returns
/// nothing. Hand in more only when a call has returned `Wait`, so that nothing piles up.
///
/// 1. A client may [`request_tickets`](Self::request_tickets), and one that offers a session may
///    [`write_early`](Self::write_early), before anything else.
/// 2. [`handshake`](Self::handshake) until it returns [`Done`](Progress::Done). A server may
///    [`read`](Self::read) and [`write`](Self::write) as soon as it returns
///    [`EarlyData`](Progress::EarlyData), while the handshake still runs.
/// 3. `read` and `write`; a client calls [`poll_session`](Self::poll_session) after reads.
/// 4. [`close`](Self::close), and then close the transport.
pub struct Conn {
    stream: SslStream<Pipe>,
    role: Arc<dyn Role>,
    phase: Phase,
    early: Early,
    closing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
    /// Between two edges, either side.
    Link,
}

/// A connection's questions to its owner, by side; a link between edges has none of the answers.
pub(crate) trait Role: Send + Sync {
    fn side(&self) -> Side;

    /// Returns the bytes of early data that may be sent or accepted.
    fn early_data_max(&self) -> u32 {
        0
    }

    /// Sets the client's address, at a server.
    fn set_peer(&self, _: IpAddr) {}

    /// Asks for tickets, at a client.
    fn request_tickets(&self, _: TicketRequest) {}

    /// Returns the facts that the ClientHello states.
    fn offered(&self) -> Facts {
        Facts::default()
    }

    /// Returns a session for later connections, at a client.
    fn take_session(&self) -> Option<NewSession> {
        None
    }

    /// Notes that the handshake is done; returns the number of tickets still to be sent.
    fn on_done(&self, _: &SslRef) -> u8 {
        0
    }
}

#[derive(Clone, Copy)]
enum Phase {
    /// Nothing was sent or parsed yet.
    Start,
    /// Early data flows: a client has written some, or a server accepts it.
    Early,
    /// The handshake runs, and no more early data follows.
    Handshake,
    Open,
    Failed(TlsError),
}

/// Progress of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handshake needs bytes from the peer.
    Wait,
    /// The handshake needs bytes from the peer. Meanwhile a server may read early data and answer
    /// it, and a client may write more early data.
    EarlyData,
    /// The handshake is complete.
    Done,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Number of bytes, at least one; either all early data or none ([`Facts::early_bytes`]).
    Bytes(usize),
    /// Nothing until more bytes arrive from the transport.
    Wait,
    /// The peer has closed its stream.
    End,
}

/// Early data of one connection.
#[derive(Default)]
struct Early {
    /// Maximum that a client may write, or a server accepts.
    max: u64,
    /// Bytes that a client has written, or a server has given to its reader.
    count: u64,
    /// Bytes that a server has accepted and not yet given to its reader; at most
    /// [`EARLY_DATA_MAX`](crate::limits::EARLY_DATA_MAX), which OpenSSL enforces.
    waiting: Vec<u8>,
}

/// Size of the pieces in which early data is read from OpenSSL; a request has one or two.
const EARLY_PIECE: usize = 2048;

impl Conn {
    pub(crate) fn new(ssl: Ssl, role: Arc<dyn Role>) -> Result<Self, TlsError> {
        let early = Early { max: role.early_data_max().into(), ..Early::default() };
        let stream = SslStream::new(ssl, Pipe::default())?;
        Ok(Self { stream, role, phase: Phase::Start, early, closing: false })
    }

    /// Takes bytes that arrived on the transport.
    pub fn handle_bytes(&mut self, ciphertext: &[u8]) {
        if !matches!(self.phase, Phase::Failed(_)) {
            self.stream.get_mut().push(ciphertext);
        }
    }

    /// Reports that the transport has ended.
    pub fn handle_end(&mut self) {
        self.stream.get_mut().end();
    }

    /// Sets the client's address at a server, if it is not the one it was accepted from. Cookies
    /// minted from now on are for `peer`; the tickets that carry them are made once the client's
    /// Finished has arrived.
    pub fn set_peer(&mut self, peer: IpAddr) {
        self.role.set_peer(peer);
    }

    /// Returns bytes for the transport.
    pub fn poll_bytes(&mut self) -> Option<Vec<u8>> {
        self.stream.get_mut().take_leaving()
    }

    /// Returns the number of bytes that [`poll_bytes`](Self::poll_bytes) would return.
    ///
    /// Reading adds to them: a peer may ask for new keys again and again (RFC 8446 section 4.6.3).
    /// A caller whose transport is blocked has to stop reading at some point.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.stream.get_ref().leaving()
    }

    /// Runs the handshake as far as the received bytes allow.
    ///
    /// # Errors
    /// The reason why the connection failed; every later call returns the same. An alert for the
    /// peer may be left to send.
    pub fn handshake(&mut self) -> Result<Progress, TlsError> {
        match (self.phase, self.role.side()) {
            (Phase::Failed(error), _) => Err(error),
            (Phase::Open, _) => Ok(Progress::Done),
            (Phase::Start | Phase::Early, Side::Server) if self.early.max > 0 => self.take_early(),
            // Continuing would end the early data, and without an answer there is nothing to
            // continue with.
            (Phase::Early, Side::Client) if !self.stream.get_ref().is_readable() => {
                Ok(Progress::EarlyData)
            }
            _ => self.advance(),
        }
    }

    /// Reads plain bytes, early data first, and runs the handshake where needed.
    ///
    /// # Errors
    /// The reason why the connection failed.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Read, TlsError> {
        if buffer.is_empty() {
            return Err(TlsError::Misuse("no room to read into"));
        }
        if self.early.waiting.is_empty() && !matches!(self.phase, Phase::Open) {
            self.handshake()?;
        }
        if !self.early.waiting.is_empty() {
            return Ok(Read::Bytes(self.early.give(buffer)));
        }
        match self.phase {
            Phase::Open => self.read_open(buffer),
            _ => Ok(Read::Wait),
        }
    }

    /// Writes plain bytes and returns how many were taken. After 0, retry with the same bytes once
    /// the output has been sent or the handshake has progressed.
    ///
    /// A server that has accepted early data may write before the client's Finished (RFC 8446
    /// section 4.4.4): the client is as unproven as its request.
    ///
    /// # Errors
    /// The reason why the connection failed; [`TlsError::Misuse`] after [`close`](Self::close).
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        let is_full = bytes.is_empty() || self.stream.get_ref().leaving() >= OUTPUT_MAX;
        match self.phase {
            Phase::Failed(error) => Err(error),
            _ if self.closing => Err(TlsError::Misuse("written after the end")),
            _ if is_full => Ok(0),
            Phase::Open => self.put_records(bytes),
            _ if self.is_half_open() => self.put(|stream| stream.write_early_data(bytes)),
            _ => Ok(0),
        }
    }

    /// Writes early data at a client and returns how many bytes were taken; 0 if no more early data
    /// may be written, or [`OUTPUT_MAX`] bytes wait to be sent.
    ///
    /// An attacker may replay early data, and the server may refuse it: see [`Facts::early_data`]
    /// once the handshake is done. If refused, write it again.
    ///
    /// # Errors
    /// The reason why the connection failed; [`TlsError::Misuse`] at a server.
    pub fn write_early(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        let left = self.early.max.saturating_sub(self.early.count);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // OpenSSL takes it all at once.
        let buffer = OUTPUT_MAX.saturating_sub(self.stream.get_ref().leaving());
        let piece = bytes.get(..left.min(buffer)).unwrap_or(bytes);
        match (self.phase, self.role.side()) {
            (Phase::Failed(error), _) => Err(error),
            (_, Side::Server) => Err(TlsError::Misuse("a server writes no early data")),
            (Phase::Start | Phase::Early, _) if !piece.is_empty() => {
                let count = self.put(|stream| stream.write_early_data(piece))?;
                self.phase = Phase::Early;
                self.early.count += count as u64;
                Ok(count)
            }
            _ => Ok(0),
        }
    }

    /// Asks the server for tickets, at a client, before anything else; only the first call counts.
    ///
    /// # Errors
    /// [`TlsError::Misuse`]: at a server, or once the ClientHello may have been sent.
    pub fn request_tickets(&mut self, request: TicketRequest) -> Result<(), TlsError> {
        match (self.phase, self.role.side()) {
            (Phase::Start, Side::Client) => {
                self.role.request_tickets(request);
                Ok(())
            }
            _ => Err(TlsError::Misuse("tickets are requested at the start, by a client")),
        }
    }

    /// Closes our stream after everything written. The peer's stream continues until the peer
    /// closes it.
    pub fn close(&mut self) {
        let was_open = matches!(self.phase, Phase::Open) && !self.closing;
        self.closing = true;
        if was_open {
            self.send_close();
        }
    }

    /// Returns what is known of the connection so far.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let offered = Facts { early_bytes: self.early.count, ..self.role.offered() };
        if matches!(self.phase, Phase::Open) || self.is_half_open() {
            self.agreed(offered)
        } else {
            offered
        }
    }

    /// Returns a session for later connections, at a client; sessions arrive with reads after the
    /// handshake.
    pub fn poll_session(&mut self) -> Option<NewSession> {
        self.role.take_session()
    }

    /// Adds the results of the handshake.
    fn agreed(&self, offered: Facts) -> Facts {
        let ssl = self.stream.ssl();
        Facts {
            version: ssl.version2().and_then(Version::from_openssl),
            cipher: ssl.current_cipher().and_then(|cipher| cipher.standard_name()),
            group: ffi::group_name(ssl),
            alpn: ssl.selected_alpn_protocol().map(<[u8]>::to_vec),
            resumed: ssl.session_reused(),
            early_data: EarlyData::from_status(ffi::early_data_status(ssl)),
            peer_certificate: ssl.peer_certificate().and_then(|peer| peer.to_der().ok()),
            ..offered
        }
    }

    /// Returns true if this is a server that has accepted early data and waits for the client's
    /// Finished.
    ///
    /// Only then are application keys in place before the end of the handshake: without early data
    /// OpenSSL may also have stopped after a HelloRetryRequest, where there are none yet.
    fn is_half_open(&self) -> bool {
        let runs = matches!(self.phase, Phase::Early | Phase::Handshake);
        runs && self.role.side() == Side::Server && takes_early_data(self.stream.ssl())
    }

    /// Moves early data from OpenSSL to `early.waiting`, and continues the handshake.
    fn take_early(&mut self) -> Result<Progress, TlsError> {
        loop {
            let mut piece = [0; EARLY_PIECE];
            forget_errors();
            match self.stream.read_early_data(&mut piece) {
                Ok(0) => return self.advance(),
                Ok(count) => {
                    self.phase = Phase::Early;
                    self.early.waiting.extend_from_slice(&piece[..count]);
                }
                Err(error) if waits(&error) => {
                    if takes_early_data(self.stream.ssl()) {
                        self.phase = Phase::Early;
                    }
                    return Ok(self.waiting());
                }
                Err(error) => return Err(self.fail(&error)),
            }
        }
    }

    fn advance(&mut self) -> Result<Progress, TlsError> {
        self.phase = Phase::Handshake;
        forget_errors();
        match self.stream.do_handshake() {
            Ok(()) => {
                self.on_done();
                Ok(Progress::Done)
            }
            Err(error) if waits(&error) => Ok(self.waiting()),
            Err(error) => Err(self.fail(&error)),
        }
    }

    fn on_done(&mut self) {
        self.phase = Phase::Open;
        self.stream.get_mut().note_plain_text();
        let left = self.role.on_done(self.stream.ssl());
        self.add_tickets(left);
        if self.closing {
            self.send_close();
        }
    }

    /// Sends more tickets. Failures do not matter: tickets are optional.
    fn add_tickets(&mut self, count: u8) {
        let added = (0..count).filter(|_| ffi::add_ticket(self.stream.ssl())).count();
        if added > 0 {
            forget_errors();
            let _ = self.stream.do_handshake();
        }
    }

    fn waiting(&self) -> Progress {
        if self.is_half_open() { Progress::EarlyData } else { Progress::Wait }
    }

    fn read_open(&mut self, buffer: &mut [u8]) -> Result<Read, TlsError> {
        forget_errors();
        let read = self.stream.ssl_read(buffer);
        let pipe = self.stream.get_mut();
        match read {
            _ if pipe.leaving() > UNSENT_MAX => {
                Err(self.end(TlsError::Limit("requests, without reading the answers")))
            }
            Ok(count) => {
                pipe.note_plain_text();
                Ok(Read::Bytes(count))
            }
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(Read::End),
            Err(error) if waits(&error) && pipe.fruitless() > PROTOCOL_MAX => {
                Err(self.end(TlsError::Limit("protocol messages without data")))
            }
            Err(error) if waits(&error) => Ok(Read::Wait),
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Writes as many records of `bytes` as there is room for. The next write reports a failure
    /// after the first.
    fn put_records(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty())
            && self.stream.get_ref().leaving() < OUTPUT_MAX
        {
            match self.put(|stream| stream.ssl_write(rest)) {
                Ok(0) => break,
                Ok(count) => taken += count,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    fn put(
        &mut self,
        write: impl FnOnce(&mut SslStream<Pipe>) -> Result<usize, openssl::ssl::Error>,
    ) -> Result<usize, TlsError> {
        forget_errors();
        match write(&mut self.stream) {
            Ok(count) => Ok(count),
            Err(error) if waits(&error) => Ok(0),
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Sends close_notify. A failure does not matter: the transport is about to end anyway.
    fn send_close(&mut self) {
        forget_errors();
        let _ = self.stream.shutdown();
    }

    fn fail(&mut self, error: &openssl::ssl::Error) -> TlsError {
        let error = TlsError::from_openssl(error, self.stream.ssl());
        self.end(error)
    }

    const fn end(&mut self, error: TlsError) -> TlsError {
        self.phase = Phase::Failed(error);
        error
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.stream.ssl().servername(NameType::HOST_NAME);
        f.debug_struct("Conn")
            .field("side", &self.role.side())
            .field("name", &name)
            .finish_non_exhaustive()
    }
}

impl Early {
    /// Gives a reader pending early data, as far as there is room.
    fn give(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.waiting.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.waiting[..count]);
        self.waiting.drain(..count);
        self.count += count as u64;
        count
    }
}

fn takes_early_data(ssl: &SslRef) -> bool {
    EarlyData::from_status(ffi::early_data_status(ssl)) == EarlyData::Accepted
}

fn waits(error: &openssl::ssl::Error) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use headstart_proto::UnixSeconds;

    use super::*;
    use crate::client::{ClientConfig, ClientContext, Trust};
    use crate::keyring::{KeyRing, PERIOD};
    use crate::server::{ServerConfig, ServerContext, SharedRing};
    use crate::settings::CertifiedKey;

    /// Builds a certificate without names.
    fn certified() -> CertifiedKey {
        let issued = headstart_testkit::self_signed(&[], 0..headstart_testkit::DAY);
        CertifiedKey::from_pem(&issued.chain, &issued.key).unwrap()
    }

    /// Returns both ends of an open connection.
    fn open() -> (Conn, Conn) {
        let ring = SharedRing::new(KeyRing::generate(UnixSeconds(0), PERIOD).unwrap());
        let config = ServerConfig::new(vec![certified()], Arc::new(ring));
        let server = ServerContext::new(&config).unwrap();
        let client = ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap();
        let mut server = server.accept(Ipv4Addr::LOCALHOST.into(), UnixSeconds(0)).unwrap();
        let mut client = client.connect("a.test", None, false).unwrap();
        while !matches!((client.phase, server.phase), (Phase::Open, Phase::Open)) {
            client.handshake().unwrap();
            pass(&mut client, &mut server);
            server.handshake().unwrap();
            pass(&mut server, &mut client);
        }
        (client, server)
    }

    fn pass(from: &mut Conn, to: &mut Conn) {
        while let Some(bytes) = from.poll_bytes() {
            to.handle_bytes(&bytes);
        }
    }

    /// Makes the client ask for new keys, and the server read that.
    fn ask(client: &mut Conn, server: &mut Conn) -> Result<Read, TlsError> {
        assert!(ffi::prepare_key_update(client.stream.ssl()));
        client.stream.do_handshake().unwrap();
        pass(client, server);
        server.read(&mut [0; 100])
    }

    #[test]
    fn a_peer_that_asks_endlessly_and_reads_nothing_is_cut_off() {
        let (mut client, mut server) = open();
        let mut requests = 0;
        let error = loop {
            match ask(&mut client, &mut server) {
                Ok(read) => assert_eq!(read, Read::Wait),
                Err(error) => break error,
            }
            assert!(server.stream.get_ref().leaving() <= UNSENT_MAX);
            requests += 1;
        };
        assert!(matches!(error, TlsError::Limit(_)), "{error}");
        assert!(requests > 1000, "{requests}");
        assert_eq!(server.read(&mut [0; 100]), Err(error));
    }

    #[test]
    fn protocol_messages_without_data_are_limited() {
        let (mut client, mut server) = open();
        let mut requests = 0;
        let error = loop {
            match ask(&mut client, &mut server) {
                Ok(read) => assert_eq!(read, Read::Wait),
                Err(error) => break error,
            }
            server.poll_bytes();
            requests += 1;
            // Far more than the limit, with some data in between.
            if requests % 5000 == 0 && requests <= 15_000 {
                assert_eq!(client.write(b"data"), Ok(4));
                pass(&mut client, &mut server);
                assert_eq!(server.read(&mut [0; 100]), Ok(Read::Bytes(4)));
            }
        };
        assert!(matches!(error, TlsError::Limit(_)), "{error}");
        let record = 27; // header 5, message 5, type 1, authentication tag 16
        assert_eq!(requests, 15_000 + PROTOCOL_MAX / record);
    }
}
