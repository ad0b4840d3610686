use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use headstart_proto::limits::COOKIE_LIFE;

use crate::facts::Version;
use crate::keyring::KeyRing;
use crate::server::replay::{NoEarlyData, ReplayFilter};
use crate::settings::{CertifiedKey, KeyLog};

/// A server's certificates and policies. Every field may be set; [`new`](Self::new) has the
/// defaults.
#[derive(Clone)]
pub struct ServerConfig {
    /// Certificates with their keys, chosen by the name that the client asks for. The first is
    /// shown to clients that ask for no name or for an unknown one.
    ///
    /// Certificates with the same names and different kinds of keys form one host; the client's
    /// signature algorithms decide.
    pub certificates: Vec<CertifiedKey>,
    /// Application protocols, in order of preference; a client that offers only others is refused.
    /// Empty: not negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups in OpenSSL's form, such as `X25519MLKEM768:X25519`. `None`: OpenSSL's.
    pub groups: Option<String>,
    /// Signature algorithms in OpenSSL's form, such as `mldsa44:ecdsa_secp256r1_sha256`. `None`:
    /// OpenSSL's.
    pub signature_algorithms: Option<String>,
    /// Minimum version of TLS.
    pub min_version: Version,
    /// Maximum version of TLS.
    pub max_version: Version,
    /// Policy on client certificates.
    pub client_auth: ClientAuth,
    /// Secrets behind tickets and cookies. Tickets live for one period of the ring at the time the
    /// context is created.
    pub keyring: Arc<SharedRing>,
    /// Tickets after a full handshake; a resumption brings one. 0: no session is resumed, in any
    /// version.
    pub tickets: usize,
    /// Connections a session can be resumed for.
    pub ticket_binding: TicketBinding,
    /// Maximum early data of a connection, in bytes; 0 accepts none.
    pub early_data_max: u32,
    /// Lets each ClientHello with early data through once. It has to outlive reloads: pass the same
    /// one to [`replace`](crate::ServerContext::replace).
    pub replay: Arc<dyn ReplayFilter>,
    /// Policy for Fast Open cookies; `None` hands out none.
    pub cookies: Option<CookiePolicy>,
    /// Advertisement of other ways to connect, in each ticket of TLS 1.3
    /// ([`ADVERT_EXTENSION`](crate::ADVERT_EXTENSION)); at most
    /// [`ADVERT_MAX`](crate::limits::ADVERT_MAX) bytes, longer ones are not sent.
    pub advert: Option<Arc<[u8]>>,
    /// Receives the secrets of connections; `None` logs nothing.
    pub key_log: Option<KeyLog>,
}

/// OpenSSL's default: one for each of two connections of the client's next visit.
const TICKETS: usize = 2;

impl ServerConfig {
    /// TLS 1.2 and 1.3 with two tickets, no early data, no client certificates, no cookies
    /// and no advertisement.
    #[must_use]
    pub fn new(certificates: Vec<CertifiedKey>, keyring: Arc<SharedRing>) -> Self {
        Self {
            certificates,
            alpn: Vec::new(),
            groups: None,
            signature_algorithms: None,
            min_version: Version::Tls12,
            max_version: Version::Tls13,
            client_auth: ClientAuth::None,
            keyring,
            tickets: TICKETS,
            ticket_binding: TicketBinding::ServerName,
            early_data_max: 0,
            replay: Arc::new(NoEarlyData),
            cookies: None,
            advert: None,
            key_log: None,
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("certificates", &self.certificates)
            .field("groups", &self.groups)
            .field("early_data_max", &self.early_data_max)
            .field("cookies", &self.cookies)
            .finish_non_exhaustive()
    }
}

/// Policy on client certificates, with the trusted issuers in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// The server does not ask for them.
    None,
    /// Clients may show one; an untrusted one ends the handshake.
    Optional(Vec<u8>),
    /// Clients have to show one.
    Required(Vec<u8>),
}

impl ClientAuth {
    pub(super) const fn roots(&self) -> Option<&Vec<u8>> {
        match self {
            Self::None => None,
            Self::Optional(roots) | Self::Required(roots) => Some(roots),
        }
    }

    /// Returns a byte for the setting in the ticket binding.
    pub(super) const fn mark(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Optional(_) => 1,
            Self::Required(_) => 2,
        }
    }
}

/// Connections a session can be resumed for, given the same setting for client certificates.
///
/// All others need a full handshake. Early data always needs the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TicketBinding {
    /// Connections to the same host name.
    #[default]
    ServerName,
    /// Connections to any name of the certificate (Hiller et al. 2019). Tells clients so
    /// (draft-ietf-tls-cross-sni-resumption): every server for one of these names has to have the
    /// same keys. Not with client certificates.
    Certificate,
    /// The connections for which nginx resumes an HTTP session, so that servers with the same
    /// ticket keys accept each other's: those with the same certificates. Early data still needs
    /// the same name, and tickets made here.
    Nginx,
    /// The connections for which HAProxy resumes a session: all.
    Haproxy,
}

impl TicketBinding {
    /// Returns true if other programs make and accept such tickets.
    pub(super) const fn is_foreign(self) -> bool {
        matches!(self, Self::Nginx | Self::Haproxy)
    }
}

/// Policy for handing out cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePolicy {
    /// Time during which a cookie can be spent; whole seconds.
    pub life: Duration,
}

impl Default for CookiePolicy {
    fn default() -> Self {
        Self { life: COOKIE_LIFE }
    }
}

/// The key ring in use, which can be replaced while connections run.
#[derive(Debug)]
pub struct SharedRing(RwLock<Arc<KeyRing>>);

impl SharedRing {
    /// Starts with `ring`.
    #[must_use]
    pub fn new(ring: KeyRing) -> Self {
        Self(RwLock::new(Arc::new(ring)))
    }

    /// Returns the ring in use now.
    #[must_use]
    pub fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses `ring` for tickets and cookies from now on, also on open connections.
    pub fn replace(&self, ring: KeyRing) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }
}
