use std::fmt;

use crate::facts::Version;
use crate::settings::{CertifiedKey, KeyLog};

/// A client's requests and trust. Every field may be set; [`new`](Self::new) has the defaults.
#[derive(Clone)]
pub struct ClientConfig {
    /// Trust anchors for the names of servers.
    pub trust: Trust,
    /// Application protocols, in order of preference. Empty: not negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups in OpenSSL's form, such as `X25519MLKEM768:X25519`. `None`: OpenSSL's.
    ///
    /// The default makes a ClientHello of about 1,500 bytes; with only `X25519` it has about 300
    /// and fits into a SYN.
    pub groups: Option<String>,
    /// Signature algorithms in OpenSSL's form, such as `mldsa44:ecdsa_secp256r1_sha256`. `None`:
    /// OpenSSL's.
    pub signature_algorithms: Option<String>,
    /// Minimum version of TLS.
    pub min_version: Version,
    /// Maximum version of TLS.
    pub max_version: Version,
    /// A certificate to show to servers that ask. Only clients that show the same one may use
    /// sessions made with it
    /// ([`NewSession::client_certificate`](crate::NewSession::client_certificate)).
    pub certificate: Option<CertifiedKey>,
    /// Receives the secrets of connections; `None` logs nothing.
    pub key_log: Option<KeyLog>,
}

/// Trust anchors for the names of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificate authorities of the system, or those of SSL_CERT_FILE and SSL_CERT_DIR.
    System,
    /// The certificates in this PEM, and no others.
    Roots(Vec<u8>),
    /// Any certificate: anyone on the path can read and change everything.
    Anyone,
}

impl ClientConfig {
    /// TLS 1.2 and 1.3, without application protocols or a certificate.
    #[must_use]
    pub const fn new(trust: Trust) -> Self {
        Self {
            trust,
            alpn: Vec::new(),
            groups: None,
            signature_algorithms: None,
            min_version: Version::Tls12,
            max_version: Version::Tls13,
            certificate: None,
            key_log: None,
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("groups", &self.groups)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
