use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::OfferedCookie;
use headstart_proto::hello::address_literal;
use openssl::asn1::Asn1Time;
use openssl::ssl::{SslSession, SslSessionRef};
use zeroize::Zeroizing;

use crate::facts::Version;
use crate::ffi;
use crate::limits::{NAME_MAX, RESUMPTION_LIFE, SESSION_MAX};

/// A session to offer to a server, as bytes that can be stored elsewhere; wiped when dropped.
///
/// A holder of the bytes can pose as the server to this client, and can read its early data: they
/// are as secret as a key. They hold OpenSSL's own form and:
///
/// | at | length | field |
/// |---|---|---|
/// | 0 | 1 | 3, the version of this format |
/// | 1 | 32 | hash of the trust anchors and the certificate, if any, of the client that made it |
/// | 33 | 8 | Unix time of the full handshake behind it; big-endian |
/// | 41 | 1 | 1 if servers for other names of the certificate take it, too; else 0 |
/// | 42 | 1 | length of the host name |
/// | 43 | n | host name |
/// | 43+n | rest | SSL_SESSION in DER |
///
/// Another client context, also in another process, can offer the session if it has the same trust
/// anchors, and shows the same client certificate or, as the other, none. A session with other ones
/// is not offered: resuming a session verifies no certificate of either side. For the same reason
/// none is offered later than [`RESUMPTION_LIFE`] after the full handshake, however often it was
/// renewed; and none for another name, unless the server said that all names of its certificate
/// take it (draft-ietf-tls-cross-sni-resumption), that certificate is for the name, and it has not
/// expired since.
#[derive(Clone)]
pub struct Session {
    bytes: Zeroizing<Vec<u8>>,
    /// OpenSSL's form, if already decoded: decoding costs as much as the rest of a resumption,
    /// since it includes a certificate. OpenSSL wipes its keys.
    ///
    /// Each connection has a copy: OpenSSL marks the session of one that ends without a
    /// close_notify as not resumable, and a ClientHello with early data of such a session fails.
    decoded: Option<SslSession>,
}

/// The error for bytes that are not a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionError;

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not a TLS session")
    }
}

impl std::error::Error for SessionError {}

const VERSION: u8 = 3;

/// Length of everything before the host name.
const HEAD: usize = 43;

impl Session {
    /// Reads bytes from [`as_bytes`](Self::as_bytes).
    ///
    /// # Errors
    /// They are malformed or longer than [`SESSION_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SessionError> {
        if bytes.len() > SESSION_MAX {
            return Err(SessionError);
        }
        let bytes = Zeroizing::new(bytes.to_vec());
        let decoded = Parts::read(&bytes).and_then(|parts| parts.openssl()).ok_or(SessionError)?;
        Ok(Self { bytes, decoded: Some(decoded) })
    }

    /// Returns the bytes, which must stay secret.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the host name that the session is for.
    #[must_use]
    pub fn server_name(&self) -> &str {
        Parts::read(&self.bytes).map_or("", |parts| parts.name)
    }

    /// Returns `None` if the name or the whole is too long, or OpenSSL is out of memory.
    pub(crate) fn new(
        trust: &[u8; 32],
        since: UnixSeconds,
        across_names: bool,
        name: &str,
        session: &SslSessionRef,
    ) -> Option<Self> {
        let der = Zeroizing::new(session.to_der().ok()?);
        Parts { trust, since, across_names, name, der: &der }.emit()
    }

    /// Returns the session, if a client with trust hash `trust` may offer it to `name` and it has
    /// not expired.
    pub(crate) fn usable(&self, trust: &[u8; 32], name: &str, now: UnixSeconds) -> Option<Usable> {
        let parts = Parts::read(&self.bytes)?;
        let same_name = parts.name == name;
        let fits = parts.trust == trust && (same_name || parts.across_names);
        let is_young = now.since(parts.since) <= RESUMPTION_LIFE;
        let session = (fits && is_young).then(|| self.openssl(&parts))??;
        let usable = lives(&session, now) && (same_name || certificate_is_for(&session, name));
        usable.then_some(Usable { session, since: parts.since, same_name })
    }

    /// Returns a session of OpenSSL's that nobody else has.
    fn openssl(&self, parts: &Parts<'_>) -> Option<SslSession> {
        self.decoded.as_deref().map_or_else(|| parts.openssl(), ffi::copy_session)
    }
}

/// Shows nothing: anyone who reads a session in a log could use it.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session(..)")
    }
}

/// A session that may be offered.
pub(crate) struct Usable {
    pub(crate) session: SslSession,
    /// Time of the full handshake behind it.
    pub(crate) since: UnixSeconds,
    /// False if it was made for another name of the certificate. Early data then has no place: it
    /// was granted for that name.
    pub(crate) same_name: bool,
}

struct Parts<'a> {
    trust: &'a [u8; 32],
    since: UnixSeconds,
    across_names: bool,
    name: &'a str,
    der: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else { return None };
        let (trust, rest) = rest.split_first_chunk()?;
        let (since, rest) = rest.split_first_chunk()?;
        let since = UnixSeconds(u64::from_be_bytes(*since));
        let (across_names, rest) = rest.split_first()?;
        let across_names = [false, true].get(usize::from(*across_names)).copied()?;
        let (&length, rest) = rest.split_first()?;
        let (name, der) = rest.split_at_checked(length.into())?;
        let name = std::str::from_utf8(name).ok()?;
        let parts = Self { trust, since, across_names, name, der };
        (1..=NAME_MAX).contains(&name.len()).then_some(parts)
    }

    fn emit(&self) -> Option<Session> {
        let length = u8::try_from(self.name.len()).ok()?;
        let size = HEAD + self.name.len() + self.der.len();
        if size > SESSION_MAX {
            return None;
        }
        // Reserve the final length, so that growing leaves no copy behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(size));
        bytes.push(VERSION);
        bytes.extend_from_slice(self.trust);
        bytes.extend_from_slice(&self.since.0.to_be_bytes());
        bytes.push(u8::from(self.across_names));
        bytes.push(length);
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(self.der);
        Some(Session { bytes, decoded: None })
    }

    fn openssl(&self) -> Option<SslSession> {
        SslSession::from_der(self.der).ok()
    }
}

/// Returns true if the ticket has not expired. OpenSSL checks the same clock, but would still
/// announce early data.
fn lives(session: &SslSessionRef, now: UnixSeconds) -> bool {
    let life = ffi::ticket_lifetime(session);
    let made = UnixSeconds(u64::try_from(session.time()).unwrap_or(0));
    life.is_zero() || now < made + life
}

/// Returns true if the certificate of the full handshake is for the host `name`, which is no
/// address, and has not expired since. Its chain was verified then, with the same trust anchors.
fn certificate_is_for(session: &SslSessionRef, name: &str) -> bool {
    let Some(certificate) = ffi::certificate_of(session) else { return false };
    let now = Asn1Time::days_from_now(0).ok();
    let is_valid = now.is_some_and(|now| certificate.not_after() >= now);
    is_valid && address_literal(name).is_none() && ffi::is_for_host(certificate, name)
}

/// Returns the time by OpenSSL's clock, which dates sessions.
pub(crate) fn wall_clock() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Number of the extension of a NewSessionTicket in which a server advertises other ways to connect
/// (docs/draft-headstart-turbotls.md#advertisement-in-tls), from the private-use range (RFC 8446
/// section 11).
pub const ADVERT_EXTENSION: u16 = 65481;

/// A session from a server, with its public properties.
#[derive(Debug)]
pub struct NewSession {
    /// The session, to be offered once: connections that offer the same one can be linked (RFC 8446
    /// appendix C.4).
    pub session: Session,
    /// Its version of TLS.
    pub version: Option<Version>,
    /// Time it may be offered; zero if the server gives none, which TLS 1.2 allows.
    pub lifetime: Duration,
    /// Early data it allows, in bytes; 0 allows none.
    pub max_early_data: u32,
    /// Its application protocol, which early data has to use.
    pub alpn: Option<Vec<u8>>,
    /// Fast Open cookies sent with it; empty unless requested.
    pub cookies: Vec<OfferedCookie>,
    /// Advertisement of other ways to connect that came with it, as the server wrote it.
    pub advert: Option<Box<[u8]>>,
    /// True if the client could have shown a certificate: then only clients that show the same one
    /// may use the session.
    pub client_certificate: bool,
    /// Names of the server's certificate, if servers for all of them take the session
    /// (draft-ietf-tls-cross-sni-resumption); else empty.
    pub across_names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sessions_are_refused() {
        let header = [&[VERSION][..], &[7; 32], &[0; 8], &[0, 6], b"a.test"].concat();
        let with_other_der = [&header[..], b"\x30\x03\x02\x01\x01"].concat();
        let mut with_other_flag = [&header[..], b"\x30"].concat();
        with_other_flag[41] = 2;
        let malformed: [&[u8]; 4] = [b"", &header, &with_other_der, &with_other_flag];
        for bytes in malformed {
            assert_eq!(Session::from_bytes(bytes).unwrap_err(), SessionError);
        }
        assert_eq!(Session::from_bytes(&vec![VERSION; SESSION_MAX + 1]).unwrap_err(), SessionError);
    }

    #[test]
    fn parts_match_the_table() {
        let since = [0, 0, 0, 0, 0, 0, 1, 2];
        let bytes = [&[VERSION][..], &[7; 32], &since, &[1, 6], b"a.test", b"der"].concat();
        let session = Session { bytes: Zeroizing::new(bytes), decoded: None };
        let parts = Parts::read(session.as_bytes()).unwrap();
        assert_eq!((parts.trust, parts.name, parts.der), (&[7; 32], "a.test", &b"der"[..]));
        assert_eq!((parts.since, parts.across_names), (UnixSeconds(0x0102), true));
        assert_eq!(parts.emit().unwrap().as_bytes(), session.as_bytes());
        assert_eq!(session.server_name(), "a.test");
        assert_eq!(format!("{session:?}"), "Session(..)");
    }

    #[test]
    fn sessions_that_could_not_be_read_again_are_not_kept() {
        let most = SESSION_MAX - HEAD - 6;
        for (length, emitted) in [(most, Some(SESSION_MAX)), (most + 1, None)] {
            let (trust, der) = ([7; 32], vec![0; length]);
            let (since, across_names) = (UnixSeconds(0), false);
            let parts = Parts { trust: &trust, since, across_names, name: "a.test", der: &der };
            assert_eq!(parts.emit().map(|session| session.as_bytes().len()), emitted);
        }
    }
}
