use std::collections::VecDeque;
use std::ffi::CString;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::OfferedCookie;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslRef, SslSessionRef};

use crate::conn::{Role, Side};
use crate::facts::{Facts, Version};
use crate::ffi;
use crate::limits::{CERTIFICATE_NAMES_MAX, SESSIONS_MAX};
use crate::session::{NewSession, Session, wall_clock};
use crate::settings::names;
use crate::ticket_request::TicketRequest;

/// Our state of one connection at a client, which OpenSSL's callbacks look up.
pub(crate) struct Connecting {
    pub(super) server_name: String,
    /// True if the name goes into the ClientHello: addresses do not.
    pub(super) sends_name: bool,
    pub(super) request_fop: bool,
    pub(super) ticket_request: OnceLock<TicketRequest>,
    pub(super) early_data_max: u32,
    pub(super) trust: [u8; 32],
    /// True if the server's certificate is verified.
    pub(super) checks: bool,
    /// True if the offered session was made for another name.
    pub(super) renames: bool,
    /// Time of the full handshake behind the offered session.
    pub(super) offered_since: Option<UnixSeconds>,
    pub(super) client_certificate: bool,
    pub(super) received: Mutex<Received>,
}

/// Content of NewSessionTicket messages.
#[derive(Default)]
pub(super) struct Received {
    /// The cookie in the message being read.
    offer: Option<OfferedCookie>,
    /// The flag resumption_across_names in the message being read.
    across_names: bool,
    /// The advertisement in that message.
    advert: Option<Box<[u8]>>,
    sessions: VecDeque<NewSession>,
}

impl Connecting {
    /// Lets the callbacks of `ssl` find this state.
    pub(super) fn attach(self: &Arc<Self>, ssl: &mut Ssl) -> Result<(), ErrorStack> {
        ssl.set_ex_data(index()?, Arc::clone(self));
        Ok(())
    }

    /// Returns our state of the connection in a callback.
    pub(super) fn from_ssl(ssl: &SslRef) -> Option<&Arc<Self>> {
        ssl.ex_data(*INDEX.get()?)
    }

    pub(super) fn on_offer(&self, offer: OfferedCookie) {
        self.lock().offer = Some(offer);
    }

    pub(super) fn on_across_names(&self) {
        self.lock().across_names = true;
    }

    pub(super) fn on_advert(&self, advert: &[u8]) {
        self.lock().advert = Some(advert.into());
    }

    pub(super) fn on_session(&self, ssl: &SslRef, session: &SslSessionRef) {
        let mut received = self.lock();
        let cookies = received.offer.take().into_iter().collect();
        let across_names =
            mem::take(&mut received.across_names) && self.checks && !self.client_certificate;
        let advert = received.advert.take();
        if self.renames && !self.rename(session) {
            return;
        }
        let resumed = self.offered_since.filter(|_| ssl.session_reused());
        let since = resumed.unwrap_or_else(wall_clock);
        let kept = Session::new(&self.trust, since, across_names, &self.server_name, session);
        let Some(kept) = kept else { return };
        if received.sessions.len() == SESSIONS_MAX {
            received.sessions.pop_front();
        }
        received.sessions.push_back(NewSession {
            session: kept,
            version: Version::from_openssl(session.protocol_version()),
            lifetime: ffi::ticket_lifetime(session),
            max_early_data: session.max_early_data(),
            alpn: ssl.selected_alpn_protocol().map(<[u8]>::to_vec),
            cookies,
            advert,
            client_certificate: self.client_certificate,
            across_names: if across_names { names_of(session) } else { Vec::new() },
        });
    }

    /// Makes a renewed session one for this connection's name; returns false if it cannot be.
    fn rename(&self, session: &SslSessionRef) -> bool {
        let name = CString::new(self.server_name.as_str());
        name.is_ok_and(|name| ffi::set_session_name(session, &name))
    }

    /// Locks the received data. No call can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the names of the server's certificate, unless they are too many.
fn names_of(session: &SslSessionRef) -> Vec<String> {
    let names = ffi::certificate_of(session).map(names).unwrap_or_default();
    let bytes: usize = names.iter().map(String::len).sum();
    if bytes <= CERTIFICATE_NAMES_MAX { names } else { Vec::new() }
}

static INDEX: OnceLock<Index<Ssl, Arc<Connecting>>> = OnceLock::new();

impl Role for Connecting {
    fn side(&self) -> Side {
        Side::Client
    }

    fn early_data_max(&self) -> u32 {
        self.early_data_max
    }

    fn request_tickets(&self, request: TicketRequest) {
        self.ticket_request.get_or_init(|| request);
    }

    fn offered(&self) -> Facts {
        let server_name = self.sends_name.then(|| self.server_name.clone());
        Facts { server_name, fop_requested: self.request_fop, ..Facts::default() }
    }

    fn take_session(&self) -> Option<NewSession> {
        self.lock().sessions.pop_front()
    }

    /// OpenSSL does not report the renewed session of a TLS 1.2 resumption.
    fn on_done(&self, ssl: &SslRef) -> u8 {
        let is_tls12 = ssl.version2().and_then(Version::from_openssl) == Some(Version::Tls12);
        if let Some(session) = ssl.session().filter(|_| is_tls12 && ssl.session_reused()) {
            self.on_session(ssl, session);
        }
        0
    }
}

/// Returns the slot for our state in OpenSSL's connections: one per program.
fn index() -> Result<Index<Ssl, Arc<Connecting>>, ErrorStack> {
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let new = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| new))
}
