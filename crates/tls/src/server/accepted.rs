use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{Cookie, NONCE_LEN, OfferedCookie};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::rand::rand_bytes;
use openssl::ssl::{Ssl, SslRef, SslVersion};

use crate::conn::{Role, Side};
use crate::facts::Facts;
use crate::limits::TICKETS_MAX;
use crate::server::replay::FirstSeen;
use crate::server::serving::Serving;
use crate::ticket_request::TicketRequest;

/// Our state of one connection at a server, which OpenSSL's callbacks look up.
pub(crate) struct Accepted {
    pub(super) serving: Arc<Serving>,
    peer: Mutex<IpAddr>,
    pub(super) now: UnixSeconds,
    /// The filter's answer, if it was asked beforehand.
    pub(super) first: Option<FirstSeen>,
    hello: Mutex<Hello>,
}

/// Content of the ClientHello. A client may send a second one (RFC 8446 section 4.1.4): the last
/// counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hello {
    pub(crate) server_name: Option<String>,
    pub(super) binder: Option<[u8; 32]>,
    pub(crate) fop_requested: bool,
    ticket_request: Option<TicketRequest>,
}

impl Accepted {
    pub(super) fn new(
        serving: Arc<Serving>,
        peer: IpAddr,
        now: UnixSeconds,
        first: Option<FirstSeen>,
    ) -> Self {
        Self { serving, peer: Mutex::new(peer), now, first, hello: Mutex::default() }
    }

    /// Lets the callbacks of `ssl` find this state.
    pub(super) fn attach(self: &Arc<Self>, ssl: &mut Ssl) -> Result<(), ErrorStack> {
        ssl.set_ex_data(index()?, Arc::clone(self));
        Ok(())
    }

    /// Returns our state of the connection in a callback.
    pub(super) fn from_ssl(ssl: &SslRef) -> Option<&Arc<Self>> {
        ssl.ex_data(*INDEX.get()?)
    }

    pub(super) fn hello(&self) -> Hello {
        self.lock().clone()
    }

    /// Handles a ClientHello; our own extensions are handled separately.
    pub(super) fn on_hello(&self, server_name: Option<String>, binder: Option<[u8; 32]>) {
        *self.lock() = Hello { server_name, binder, ..Hello::default() };
    }

    pub(super) fn on_fop_request(&self) {
        self.lock().fop_requested = true;
    }

    pub(super) fn on_ticket_request(&self, request: TicketRequest) {
        self.lock().ticket_request = Some(request);
    }

    /// Returns the number of tickets the client gets because it asked; `None` if it did not ask, or
    /// the server sends no tickets.
    pub(super) fn tickets_asked_for(&self, resumed: bool) -> Option<u8> {
        let request = self.lock().ticket_request.filter(|_| self.serving.hands_out_tickets)?;
        let most = u8::try_from(TICKETS_MAX).unwrap_or(u8::MAX);
        Some(request.count(resumed).min(most))
    }

    /// Mints a cookie for this client. Only TLS 1.3 encrypts the messages that carry it.
    pub(super) fn mint(&self, ssl: &SslRef) -> Option<Cookie> {
        let policy = self.serving.cookies?;
        // F-TICKET-2
        if ssl.version2() != Some(SslVersion::TLS1_3) {
            return None;
        }
        let mut nonce = [0; NONCE_LEN];
        // F-COOKIE-1
        rand_bytes(&mut nonce).ok()?;
        let ring = self.serving.keyring.current().cookies();
        let peer = *self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ring.mint(nonce, self.now + policy.life, peer))
    }

    /// Mints a cookie for the extension, if the client asked.
    pub(super) fn offer(&self, ssl: &SslRef) -> Option<OfferedCookie> {
        let lifetime = self.serving.cookies?.life;
        let requested = self.lock().fop_requested;
        // F-EXTENSION-1
        let cookie = requested.then(|| self.mint(ssl)).flatten()?;
        Some(OfferedCookie { cookie, lifetime })
    }

    /// Locks the ClientHello. No call can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Hello> {
        self.hello.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static INDEX: OnceLock<Index<Ssl, Arc<Accepted>>> = OnceLock::new();

impl Role for Accepted {
    fn side(&self) -> Side {
        Side::Server
    }

    fn early_data_max(&self) -> u32 {
        self.serving.early_data_max
    }

    fn set_peer(&self, peer: IpAddr) {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    fn offered(&self) -> Facts {
        let Hello { server_name, fop_requested, .. } = self.hello();
        Facts { server_name, fop_requested, ..Facts::default() }
    }

    /// Returns how many of the tickets asked for OpenSSL does not send by itself: after a
    /// resumption it sends one.
    fn on_done(&self, ssl: &SslRef) -> u8 {
        let resumed = ssl.session_reused();
        let asked_for = self.tickets_asked_for(resumed).filter(|_| resumed);
        asked_for.unwrap_or_default().saturating_sub(1)
    }
}

/// Returns the slot for our state in OpenSSL's connections: one per program.
fn index() -> Result<Index<Ssl, Arc<Accepted>>, ErrorStack> {
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let new = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| new))
}
