use std::fmt;

use openssl::ssl::SslVersion;

/// Negotiated parameters, as far as they are public: no secret is in them.
///
/// Before the handshake is done, or at a server before early data is taken, only what the
/// ClientHello says is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of TLS.
    pub version: Option<Version>,
    /// The cipher suite, by its name of the RFCs such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: Option<&'static str>,
    /// The group of the key exchange, by OpenSSL's name such as `X25519MLKEM768`; none if there was
    /// no exchange.
    pub group: Option<String>,
    /// The application protocol (RFC 7301).
    pub alpn: Option<Vec<u8>>,
    /// The host name that the client asked for, in small letters; none if it asked for none, or for
    /// an address.
    pub server_name: Option<String>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
    /// Outcome of early data.
    pub early_data: EarlyData,
    /// Number of the client's first bytes that were early data: those that a server's
    /// [`read`](crate::Conn::read) has given so far, or that a client has written.
    ///
    /// They may have been replayed (RFC 8446 section 8), and if refused they have to be sent again.
    pub early_bytes: u64,
    /// The peer's own certificate in DER; none if it showed none.
    pub peer_certificate: Option<Vec<u8>>,
    /// True if the client asked for Fast Open cookies.
    pub fop_requested: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Version {
    pub(crate) const fn openssl(self) -> SslVersion {
        match self {
            Self::Tls12 => SslVersion::TLS1_2,
            Self::Tls13 => SslVersion::TLS1_3,
        }
    }

    pub(crate) fn from_openssl(version: SslVersion) -> Option<Self> {
        match version {
            SslVersion::TLS1_2 => Some(Self::Tls12),
            SslVersion::TLS1_3 => Some(Self::Tls13),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

/// Outcome of early data (RFC 8446 section 2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EarlyData {
    /// The client sent none.
    #[default]
    None,
    /// The server did not take it; the client sends it again, if that is what the application
    /// wants.
    Refused,
    /// The server took it.
    Accepted,
}

impl EarlyData {
    /// Translates `SSL_EARLY_DATA_*` of openssl/ssl.h.
    pub(crate) const fn from_status(status: i32) -> Self {
        match status {
            1 => Self::Refused,
            2 => Self::Accepted,
            _ => Self::None,
        }
    }
}
