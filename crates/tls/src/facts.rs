use std::fmt;

use openssl::ssl::SslVersion;

/// Public results of a handshake; contains no secret.
///
/// Before the handshake is done, or at a server before early data is accepted, it holds only the
/// facts of the ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of TLS.
    pub version: Option<Version>,
    /// The cipher suite, by its name in the RFCs such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: Option<&'static str>,
    /// The key exchange group, by OpenSSL's name such as `X25519MLKEM768`; `None` without a key
    /// exchange.
    pub group: Option<String>,
    /// The application protocol (RFC 7301).
    pub alpn: Option<Vec<u8>>,
    /// The host name that the client asked for, in lower case; `None` if it asked for none, or an
    /// address.
    pub server_name: Option<String>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
    /// Fate of the early data.
    pub early_data: EarlyData,
    /// Number of the client's first bytes that were early data: those a server's
    /// [`read`](crate::Conn::read) has returned so far, or a client has written.
    ///
    /// They may have been replayed (RFC 8446 section 8), and if refused have to be sent again.
    pub early_bytes: u64,
    /// The peer's own certificate in DER; `None` if it showed none.
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

/// Fate of the early data (RFC 8446 section 2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EarlyData {
    /// The client sent none.
    #[default]
    None,
    /// The server refused it; the client may send it again, if the application wants that.
    Refused,
    /// The server accepted it.
    Accepted,
}

impl EarlyData {
    /// Converts `SSL_EARLY_DATA_*` of openssl/ssl.h.
    pub(crate) const fn from_status(status: i32) -> Self {
        match status {
            1 => Self::Refused,
            2 => Self::Accepted,
            _ => Self::None,
        }
    }
}
