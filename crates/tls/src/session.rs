use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::OfferedCookie;
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
/// | 0 | 1 | 2, the version of this format |
/// | 1 | 32 | hash of the trust anchors of the client that made it |
/// | 33 | 8 | Unix time of the full handshake behind it; big-endian |
/// | 41 | 1 | length of the host name |
/// | 42 | n | host name |
/// | 42+n | rest | SSL_SESSION in DER |
///
/// Another client context, also in another process, can offer the session if it has the same trust
/// anchors. A session for another name or with other trust anchors is not offered: resuming a
/// session verifies no certificate. For the same reason none is offered later than
/// [`RESUMPTION_LIFE`] after the full handshake, however often it was renewed.
#[derive(Clone)]
pub struct Session {
    bytes: Zeroizing<Vec<u8>>,
    /// OpenSSL's form, if already decoded: decoding costs as much as the rest of a resumption,
    /// since it includes a certificate. OpenSSL wipes its keys.
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

const VERSION: u8 = 2;

/// Length of everything before the host name.
const HEAD: usize = 42;

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
        name: &str,
        session: &SslSessionRef,
    ) -> Option<Self> {
        let der = Zeroizing::new(session.to_der().ok()?);
        Parts { trust, since, name, der: &der }.emit()
    }

    /// Returns OpenSSL's form and the time of the full handshake, if a client with trust hash
    /// `trust` may offer it to `name` and it has not expired.
    pub(crate) fn usable(
        &self,
        trust: &[u8; 32],
        name: &str,
        now: UnixSeconds,
    ) -> Option<(SslSession, UnixSeconds)> {
        let parts = Parts::read(&self.bytes)?;
        let fits = parts.trust == trust && parts.name == name;
        let is_young = now.since(parts.since) <= RESUMPTION_LIFE;
        let session =
            (fits && is_young).then(|| self.decoded.clone().or_else(|| parts.openssl()))??;
        lives(&session, now).then_some((session, parts.since))
    }
}

/// Shows nothing: anyone who reads a session in a log could use it.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session(..)")
    }
}

struct Parts<'a> {
    trust: &'a [u8; 32],
    since: UnixSeconds,
    name: &'a str,
    der: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else { return None };
        let (trust, rest) = rest.split_first_chunk()?;
        let (since, rest) = rest.split_first_chunk()?;
        let since = UnixSeconds(u64::from_be_bytes(*since));
        let (&length, rest) = rest.split_first()?;
        let (name, der) = rest.split_at_checked(length.into())?;
        let name = std::str::from_utf8(name).ok()?;
        ((1..=NAME_MAX).contains(&name.len())).then_some(Self { trust, since, name, der })
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

/// Returns the time by OpenSSL's clock, which dates sessions.
pub(crate) fn wall_clock() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

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
    /// True if the client could have shown a certificate: then no other client may use the session.
    pub client_certificate: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sessions_are_refused() {
        let header = [&[VERSION][..], &[7; 32], &[0; 8], &[6], b"a.test"].concat();
        let with_other_der = [&header[..], b"\x30\x03\x02\x01\x01"].concat();
        let malformed: [&[u8]; 3] = [b"", &header, &with_other_der];
        for bytes in malformed {
            assert_eq!(Session::from_bytes(bytes).unwrap_err(), SessionError);
        }
        assert_eq!(Session::from_bytes(&vec![VERSION; SESSION_MAX + 1]).unwrap_err(), SessionError);
    }

    #[test]
    fn parts_match_the_table() {
        let since = [0, 0, 0, 0, 0, 0, 1, 2];
        let bytes = [&[VERSION][..], &[7; 32], &since, &[6], b"a.test", b"der"].concat();
        let session = Session { bytes: Zeroizing::new(bytes), decoded: None };
        let parts = Parts::read(session.as_bytes()).unwrap();
        assert_eq!((parts.trust, parts.name, parts.der), (&[7; 32], "a.test", &b"der"[..]));
        assert_eq!(parts.since, UnixSeconds(0x0102));
        assert_eq!(parts.emit().unwrap().as_bytes(), session.as_bytes());
        assert_eq!(session.server_name(), "a.test");
        assert_eq!(format!("{session:?}"), "Session(..)");
    }

    #[test]
    fn sessions_that_could_not_be_read_again_are_not_kept() {
        let most = SESSION_MAX - HEAD - 6;
        for (length, emitted) in [(most, Some(SESSION_MAX)), (most + 1, None)] {
            let (trust, der) = ([7; 32], vec![0; length]);
            let parts = Parts { trust: &trust, since: UnixSeconds(0), name: "a.test", der: &der };
            assert_eq!(parts.emit().map(|session| session.as_bytes().len()), emitted);
        }
    }
}
