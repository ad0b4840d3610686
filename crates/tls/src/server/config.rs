use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use headstart_proto::limits::COOKIE_LIFE;

use crate::facts::Version;
use crate::keyring::KeyRing;
use crate::server::replay::{NoEarlyData, ReplayFilter};
use crate::settings::{CertifiedKey, KeyLog};

/// Options of a server. Every field may be set; [`new`](Self::new) has the defaults.
#[derive(Clone)]
pub struct ServerConfig {
    /// Certificates with their keys, chosen by the name that the client asks for. The first is
    /// shown to all who ask for no name or for one that no certificate has.
    ///
    /// Several with the same names and other kinds of keys are one host; the client's signature
    /// algorithms decide.
    pub certificates: Vec<CertifiedKey>,
    /// Application protocols, the best first; a client that offers others only is refused. None:
    /// not negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Groups of the key exchange in OpenSSL's form, such as `X25519MLKEM768:X25519`. None:
    /// OpenSSL's.
    pub groups: Option<String>,
    /// Signature algorithms in OpenSSL's form, such as `mldsa44:ecdsa_secp256r1_sha256`. None:
    /// OpenSSL's.
    pub signature_algorithms: Option<String>,
    /// The lowest version of TLS.
    pub min_version: Version,
    /// The highest version of TLS.
    pub max_version: Version,
    /// Client certificates.
    pub client_auth: ClientAuth,
    /// Keys of tickets and cookies. Tickets live for one period of the ring, as it is when the
    /// context is made.
    pub keyring: Arc<SharedRing>,
    /// Tickets after a full handshake; a resumption brings one. 0: nothing is resumed, in any
    /// version.
    pub tickets: usize,
    /// Binding of sessions.
    pub ticket_binding: TicketBinding,
    /// Early data of a connection at most, in bytes; 0 takes none.
    pub early_data_max: u32,
    /// Lets each ClientHello with early data through once. It has to outlive reloads: hand the
    /// same one to [`replace`](crate::ServerContext::replace).
    pub replay: Arc<dyn ReplayFilter>,
    /// Hands out Fast Open cookies, or does not.
    pub cookies: Option<CookiePolicy>,
    /// Gets the secrets of connections. None: nobody does.
    pub key_log: Option<KeyLog>,
}

/// OpenSSL's default: one for each of two connections of the client's next visit.
const TICKETS: usize = 2;

impl ServerConfig {
    /// TLS 1.2 and 1.3 with two tickets, no early data, no client certificates, no cookies.
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

/// Client certificates, and the trust anchors for them: certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    None,
    /// They may; one that is not vouched for ends the handshake.
    Optional(Vec<u8>),
    /// They have to.
    Required(Vec<u8>),
}

impl ClientAuth {
    pub(super) const fn roots(&self) -> Option<&Vec<u8>> {
        match self {
            Self::None => None,
            Self::Optional(roots) | Self::Required(roots) => Some(roots),
        }
    }

    /// Stands for the setting in what binds tickets.
    pub(super) const fn mark(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Optional(_) => 1,
            Self::Required(_) => 2,
        }
    }
}

/// Binding of sessions, besides the same setting about client certificates.
///
/// With anything else there is a full handshake. Early data is for the same name in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TicketBinding {
    /// The same host name.
    #[default]
    ServerName,
    /// All names of the certificate, for clients that know to ask for it (Hiller et al. 2019).
    Certificate,
    /// The binding of nginx's HTTP sessions, so that servers with the same ticket keys take each
    /// other's: the same certificates. Early data is still for the same name, and for tickets made
    /// here.
    Nginx,
    /// The binding of HAProxy's sessions: none.
    Haproxy,
}

impl TicketBinding {
    /// Returns true if other programs make and take such tickets.
    pub(super) const fn is_foreign(self) -> bool {
        matches!(self, Self::Nginx | Self::Haproxy)
    }
}

/// Rules for handing out cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePolicy {
    /// Time that a cookie can be spent; whole seconds.
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

    /// The ring of this moment.
    #[must_use]
    pub fn current(&self) -> Arc<KeyRing> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on tickets and cookies are made with `ring`, also those of connections that run.
    pub fn replace(&self, ring: KeyRing) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }
}
