use std::fmt;

use openssl::error::{Error as OpensslError, ErrorStack};
use openssl::ssl::{ErrorCode, SslAlert, SslRef};
use openssl::x509::X509VerifyResult;

/// Reason why a connection failed. The texts are OpenSSL's fixed reason strings.
///
/// An alert for the peer may be left in [`Conn::poll_bytes`](crate::Conn::poll_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsError {
    /// The peer's certificate is not accepted, with the reason of the verification.
    Certificate(CertificateFault, &'static str),
    /// The peer ended the connection with an alert of this number (RFC 8446 section 6).
    Alert(u8),
    /// The peer broke the protocol, or somebody changed its bytes.
    Protocol(&'static str),
    /// The two sides share no version, cipher, group, signature algorithm or application protocol.
    Unsupported(&'static str),
    /// The peer sent more than it may.
    Limit(&'static str),
    /// The transport ended without the peer's close_notify: what was received may be cut short
    /// (RFC 8446 section 6.1).
    Truncated,
    /// A call that is invalid in this state, or with these arguments.
    Misuse(&'static str),
    /// OpenSSL itself failed, for lack of memory or randomness.
    Internal(&'static str),
}

/// Party that has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer.
    Peer,
    /// Either side: they are incompatible.
    Both,
    /// The layer below TLS.
    Transport,
    /// The program that uses this crate.
    Caller,
    /// This machine.
    Machine,
}

/// Reason why a certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// Its time is over.
    Expired,
    /// It is not valid yet, or the clock is wrong.
    NotYetValid,
    /// It is for other names.
    Name,
    /// Its issuer is unknown.
    Untrusted,
    /// Another fault, as OpenSSL's number (`X509_V_ERR_*`).
    Other(i32),
}

impl TlsError {
    /// Number of the alert with which a peer closes its stream.
    pub const CLOSE_NOTIFY: u8 = 0;

    /// Returns the party that has to change something.
    #[must_use]
    pub const fn fault(self) -> Fault {
        match self {
            Self::Certificate(..) | Self::Alert(_) | Self::Protocol(_) | Self::Limit(_) => {
                Fault::Peer
            }
            Self::Unsupported(_) => Fault::Both,
            Self::Truncated => Fault::Transport,
            Self::Misuse(_) => Fault::Caller,
            Self::Internal(_) => Fault::Machine,
        }
    }

    /// Converts an error from OpenSSL on connection `ssl`.
    pub(crate) fn from_openssl(error: &openssl::ssl::Error, ssl: &SslRef) -> Self {
        match error.code() {
            ErrorCode::ZERO_RETURN => Self::Alert(Self::CLOSE_NOTIFY),
            ErrorCode::SYSCALL if error.ssl_error().is_none() => Self::Truncated,
            _ => match error.ssl_error().and_then(telling) {
                Some(told) => Self::of_reason(told, ssl.verify_result()),
                None => Self::Internal("no reason given"),
            },
        }
    }

    fn of_reason(error: &OpensslError, verified: X509VerifyResult) -> Self {
        let words = error.reason().unwrap_or("unknown reason");
        if error.library_code() != LIBRARY_SSL {
            return Self::Protocol(words);
        }
        match error.reason_code() {
            reason::CERTIFICATE_VERIFY_FAILED => {
                let fault = CertificateFault::from_code(verified.as_raw());
                Self::Certificate(fault, verified.error_string())
            }
            reason::NO_CERTIFICATE => Self::Unsupported(words),
            reason::UNEXPECTED_EOF => Self::Truncated,
            code if reason::UNSUPPORTED.contains(&code) => Self::Unsupported(words),
            code if reason::LIMIT.contains(&code) => Self::Limit(words),
            code if code > reason::PLAIN => Self::Internal(words),
            code => match u8::try_from(code - reason::ALERTS) {
                Ok(alert) => Self::Alert(alert),
                Err(_) => Self::Protocol(words),
            },
        }
    }
}

impl From<ErrorStack> for TlsError {
    fn from(stack: ErrorStack) -> Self {
        Self::Internal(words(&stack))
    }
}

impl CertificateFault {
    /// Converts `X509_V_ERR_*` of openssl/x509_vfy.h.
    pub(crate) const fn from_code(code: i32) -> Self {
        match code {
            9 => Self::NotYetValid,
            10 => Self::Expired,
            62 | 64 => Self::Name,
            2 | 18..=21 => Self::Untrusted,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(fault, _) => write!(f, "the peer's certificate {fault}"),
            Self::Alert(Self::CLOSE_NOTIFY) => {
                f.write_str("the peer closed the connection in mid-handshake")
            }
            Self::Alert(number) => {
                write!(f, "the peer sent the alert {number}")?;
                let code = reason::ALERTS + i32::from(*number);
                SslAlert::from_reason_code(code).map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Self::Protocol(words) => write!(f, "the peer broke the protocol: {words}"),
            Self::Unsupported(words) => write!(f, "no parameters in common with the peer: {words}"),
            Self::Limit(words) => write!(f, "the peer sent too much: {words}"),
            Self::Truncated => f.write_str("the transport ended before TLS did"),
            Self::Misuse(words) => write!(f, "invalid use: {words}"),
            Self::Internal(words) => write!(f, "OpenSSL failed: {words}"),
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("has expired"),
            Self::NotYetValid => f.write_str("is not valid yet"),
            Self::Name => f.write_str("is for another name"),
            Self::Untrusted => f.write_str("has an unknown issuer"),
            Self::Other(code) => write!(f, "is not accepted (X509_V_ERR {code})"),
        }
    }
}

impl std::error::Error for TlsError {}

/// Reason why a context cannot be built from its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A server has no certificate.
    NoCertificate,
    /// The chain or the key is not valid PEM.
    Pem(&'static str),
    /// The certificate with this index cannot be used, mostly because the key does not match.
    Certificate(usize, &'static str),
    /// The certificate with this index has no names, and is not the first.
    NoNames(usize),
    /// OpenSSL does not know the groups.
    Groups(&'static str),
    /// OpenSSL does not know the signature algorithms.
    SignatureAlgorithms(&'static str),
    /// The minimum version is above the maximum.
    Versions,
    /// An application protocol is empty or longer than 255 bytes.
    Alpn,
    /// The trusted certificates are not valid PEM.
    Roots(&'static str),
    /// More tickets than [`TICKETS_MAX`](crate::limits::TICKETS_MAX).
    Tickets,
    /// More early data than [`EARLY_DATA_MAX`](crate::limits::EARLY_DATA_MAX).
    EarlyData,
    /// Early data and client certificates cannot be combined.
    EarlyDataAndClientAuth,
    /// Tickets of other programs do not record which client certificates were requested, and those
    /// for all names of a certificate would show a client's to each.
    SharedTicketsAndClientAuth,
    /// A cookie's lifetime is below a second or above
    /// [`COOKIE_LIFE_MAX`](headstart_proto::limits::COOKIE_LIFE_MAX).
    CookieLife,
    /// OpenSSL itself failed.
    Openssl(&'static str),
}

impl ConfigError {
    /// Returns advice for the user.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::NoCertificate => "give a certificate and its key",
            Self::Pem(_) | Self::Roots(_) => {
                "give PEM (-----BEGIN ...-----), keys without a password"
            }
            Self::Certificate(..) => "the first certificate of the file has to be that of the key",
            Self::NoNames(_) => "give the certificate a subjectAltName, or name it first",
            Self::Groups(_) => "such as X25519MLKEM768:X25519; see openssl list -tls-groups",
            Self::SignatureAlgorithms(_) => {
                "such as mldsa44:ecdsa_secp256r1_sha256; see openssl list -tls-signature-algorithms"
            }
            Self::Versions => "lower the lowest version or raise the highest",
            Self::Alpn => "such as h2 and http/1.1",
            Self::Tickets => "two tickets are enough for most clients",
            Self::EarlyData => "16384 bytes are enough for most requests",
            Self::EarlyDataAndClientAuth => "turn early data or client certificates off",
            Self::SharedTicketsAndClientAuth => {
                "share tickets, or ask for client certificates, not both"
            }
            Self::CookieLife => "an hour is enough for most clients",
            Self::Openssl(_) => "check that memory and randomness are available",
        }
    }
}

impl From<ErrorStack> for ConfigError {
    fn from(stack: ErrorStack) -> Self {
        Self::Openssl(words(&stack))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("a server needs a certificate"),
            Self::Pem(words) => write!(f, "invalid certificate or key: {words}"),
            Self::Certificate(number, words) => {
                write!(f, "certificate number {} cannot be used: {words}", number + 1)
            }
            Self::NoNames(number) => write!(f, "certificate number {} has no names", number + 1),
            Self::Groups(words) => write!(f, "unusable groups: {words}"),
            Self::SignatureAlgorithms(words) => write!(f, "unusable signature algorithms: {words}"),
            Self::Versions => f.write_str("no version of TLS is left"),
            Self::Alpn => f.write_str("an application protocol has 1 to 255 bytes"),
            Self::Roots(words) => write!(f, "unusable trusted certificates: {words}"),
            Self::Tickets => write!(f, "at most {} tickets", crate::limits::TICKETS_MAX),
            Self::EarlyData => {
                write!(f, "at most {} bytes of early data", crate::limits::EARLY_DATA_MAX)
            }
            Self::EarlyDataAndClientAuth => {
                f.write_str("early data is not accepted with client certificates")
            }
            Self::SharedTicketsAndClientAuth => f.write_str(
                "tickets are shared with no other program or name when clients show certificates",
            ),
            Self::CookieLife => f.write_str("cookies live between a second and eight hours"),
            Self::Openssl(words) => write!(f, "OpenSSL failed: {words}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Returns the first error from TLS itself; below it may lie a parser's error about the peer's
/// bytes.
fn telling(stack: &ErrorStack) -> Option<&OpensslError> {
    let errors = stack.errors();
    errors.iter().find(|error| error.library_code() == LIBRARY_SSL).or_else(|| errors.first())
}

/// Clears this thread's OpenSSL error queue. Otherwise the next operation would report the errors
/// left there by an earlier one, even of another connection or library.
pub(crate) fn forget_errors() {
    drop(ErrorStack::get());
}

/// Returns OpenSSL's first reason.
pub(crate) fn words(stack: &ErrorStack) -> &'static str {
    stack.errors().first().and_then(OpensslError::reason).unwrap_or("unknown reason")
}

/// `ERR_LIB_SSL` of openssl/err.h.
const LIBRARY_SSL: i32 = 20;

/// Numbers of openssl/sslerr.h and openssl/err.h.
mod reason {
    pub(super) const CERTIFICATE_VERIFY_FAILED: i32 = 134;
    /// A client showed no certificate where one is required.
    pub(super) const NO_CERTIFICATE: i32 = 199;
    pub(super) const UNEXPECTED_EOF: i32 = 294;

    /// Offset added to the number of a received alert (`SSL_AD_REASON_OFFSET`).
    pub(super) const ALERTS: i32 = 1000;

    /// Maximum of the plain reasons. Those above carry a flag (`ERR_RFLAGS_OFFSET`): OpenSSL's own
    /// failures, not caused by a peer.
    pub(super) const PLAIN: i32 = (1 << 18) - 1;

    /// `NO_SUITABLE_KEY_SHARE`, `NO_SUITABLE_SIGNATURE_ALGORITHM`, `HTTPS_PROXY_REQUEST`,
    /// `HTTP_REQUEST`, `VERSION_TOO_HIGH`, `NO_PROTOCOLS_AVAILABLE`, `NO_SHARED_CIPHER`,
    /// `NO_APPLICATION_PROTOCOL`, `UNKNOWN_PROTOCOL`, `UNSUPPORTED_PROTOCOL`,
    /// `UNSUPPORTED_SSL_VERSION`, `WRONG_SSL_VERSION`, `WRONG_VERSION_NUMBER`,
    /// `NO_SUITABLE_GROUPS`, `NO_SUITABLE_DIGEST_ALGORITHM`, `NO_SHARED_SIGNATURE_ALGORITHMS`,
    /// `VERSION_TOO_LOW`, `NO_SHARED_GROUPS`.
    pub(super) const UNSUPPORTED: [i32; 18] =
        [101, 118, 155, 156, 166, 191, 193, 235, 252, 258, 259, 266, 267, 295, 297, 376, 396, 410];

    /// `TOO_MANY_KEY_UPDATES`, `DATA_LENGTH_TOO_LONG`, `EXCESSIVE_MESSAGE_SIZE`,
    /// `TOO_MUCH_EARLY_DATA`, `TOO_MANY_WARN_ALERTS`.
    pub(super) const LIMIT: [i32; 5] = [132, 146, 152, 164, 409];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_responsible_party() {
        assert_eq!(TlsError::Certificate(CertificateFault::Expired, "x").fault(), Fault::Peer);
        assert_eq!(TlsError::Unsupported("x").fault(), Fault::Both);
        assert_eq!(TlsError::Truncated.fault(), Fault::Transport);
        assert_eq!(TlsError::Misuse("x").fault(), Fault::Caller);
        assert_eq!(TlsError::Internal("x").fault(), Fault::Machine);
    }

    #[test]
    fn verification_results_have_names() {
        assert_eq!(CertificateFault::from_code(10), CertificateFault::Expired);
        assert_eq!(CertificateFault::from_code(62), CertificateFault::Name);
        assert_eq!(CertificateFault::from_code(18), CertificateFault::Untrusted);
        assert_eq!(CertificateFault::from_code(26), CertificateFault::Other(26));
    }
}
