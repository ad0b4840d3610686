//! TLS of the program's own connections: those of `get`, `doctor` and `demo`.

use std::fs;
use std::path::{Path, PathBuf};

use headstart_tls::{
    CertificateFault, ClientConfig, ClientContext, ConfigError, Facts, TlsError, Trust, Version,
};

use crate::base::failure::Failure;

/// Size of the ClientHello, by its key shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloSize {
    /// OpenSSL's default, with a post-quantum key share: more than a SYN can carry.
    Usual,
    /// Fits a SYN, even with a ticket: no post-quantum group.
    Syn,
}

impl HelloSize {
    /// Returns the groups in OpenSSL's form; `None` for its default.
    ///
    /// For a SYN these are the default list without X25519MLKEM768.
    fn groups(self) -> Option<String> {
        let small = "?*X25519:?secp256r1 / ?X448:?secp384r1:?secp521r1";
        (self == Self::Syn).then(|| small.to_owned())
    }
}

/// Returns a client of TLS 1.2 and 1.3 that asks for HTTP/1.1.
///
/// # Errors
/// Trust anchors that cannot be used.
pub fn client(trust: Trust, size: HelloSize) -> Result<ClientContext, ConfigError> {
    ClientContext::new(&ClientConfig {
        alpn: vec![b"http/1.1".to_vec()],
        groups: size.groups(),
        ..ClientConfig::new(trust)
    })
}

/// Returns a client that trusts the authorities in `cacert`, or without it those of the system; an
/// insecure one accepts any certificate.
///
/// # Errors
/// A file of certificates that cannot be read.
pub fn client_trusting(
    cacert: Option<&PathBuf>,
    insecure: bool,
    size: HelloSize,
) -> Result<ClientContext, Failure> {
    match cacert.filter(|_| !insecure) {
        Some(file) => client_of_file(file, size),
        None => {
            let trust = if insecure { Trust::Anyone } else { Trust::System };
            client(trust, size).map_err(unusable)
        }
    }
}

fn client_of_file(file: &Path, size: HelloSize) -> Result<ClientContext, Failure> {
    let pem = fs::read(file).map_err(|error| unreadable(file, &error.to_string()))?;
    client(Trust::Roots(pem), size).map_err(|error| match error {
        ConfigError::Roots(reason) => unreadable(file, reason)
            .hint("the file has to hold certificates in PEM form (-----BEGIN CERTIFICATE-----)"),
        error => unusable(error),
    })
}

fn unreadable(file: &Path, reason: &str) -> Failure {
    Failure::usage(format!("cannot read certificates from {}: {reason}", file.display()))
}

fn unusable(error: ConfigError) -> Failure {
    Failure::usage(format!("cannot use OpenSSL: {error}"))
}

/// Returns the failure of a handshake with `host`.
pub(super) fn refusal(error: TlsError, host: &str) -> Failure {
    match error {
        TlsError::Certificate(fault, reason) => {
            Failure::negative(format!("the certificate of {host} is not trusted: {reason}"))
                .hint(certificate_hint(fault))
        }
        TlsError::Truncated | TlsError::Alert(TlsError::CLOSE_NOTIFY) => {
            Failure::negative(format!("{host} closed the connection during the TLS handshake"))
                .hint("the server may want another name (SNI), or nothing stands behind the edge")
        }
        TlsError::Alert(_) => Failure::negative(format!("TLS with {host} failed: {error}")),
        TlsError::Protocol(reason)
        | TlsError::Unsupported(reason)
        | TlsError::Limit(reason)
        | TlsError::Misuse(reason)
        | TlsError::Internal(reason) => broken_off(reason, host),
    }
}

fn broken_off(reason: &str, host: &str) -> Failure {
    match reason {
        "wrong version number" | "packet length too long" => {
            Failure::negative(format!("{host} does not speak TLS on this port"))
                .hint("check the port; the answer was no TLS record")
        }
        _ => Failure::negative(format!("TLS with {host} failed: {reason}")),
    }
}

const fn certificate_hint(fault: CertificateFault) -> &'static str {
    match fault {
        CertificateFault::Expired | CertificateFault::NotYetValid => {
            "check the date of this machine (`date`), or have the server's certificate renewed"
        }
        CertificateFault::Name => {
            "the certificate is for another name; check the name, and where --edge sends it"
        }
        CertificateFault::Untrusted | CertificateFault::Other(_) => {
            "if you know its issuer, give the issuer's certificate with --cacert FILE (PEM)"
        }
    }
}

/// Returns the version in OpenSSL's words, which scripts rely on.
pub(crate) const fn version_name(facts: &Facts) -> &'static str {
    match facts.version {
        Some(Version::Tls13) => "TLSv1.3",
        Some(Version::Tls12) => "TLSv1.2",
        None => "unknown",
    }
}

/// Returns the cipher suite by its name in the RFCs.
pub(crate) fn cipher_name(facts: &Facts) -> &'static str {
    facts.cipher.unwrap_or("none")
}

/// Returns the group of the key exchange, if there was one; the two curves as RFC 7748 writes them.
pub fn group_name(facts: &Facts) -> Option<&str> {
    match facts.group.as_deref()? {
        "x25519" => Some("X25519"),
        "x448" => Some("X448"),
        group => Some(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_handshakes_come_with_advice() {
        let closed = refusal(TlsError::Alert(TlsError::CLOSE_NOTIFY), "a.test");
        assert_eq!(closed.message(), "a.test closed the connection during the TLS handshake");
        let alert = refusal(TlsError::Alert(40), "a.test");
        assert_eq!(
            alert.message(),
            "TLS with a.test failed: the peer sent the alert 40 (handshake failure)"
        );
        let expired = TlsError::Certificate(CertificateFault::Expired, "certificate has expired");
        let expired = refusal(expired, "a.test");
        assert_eq!(
            expired.message(),
            "the certificate of a.test is not trusted: certificate has expired"
        );
        assert!(expired.advice().is_some_and(|advice| advice.contains("`date`")));
        let name = refusal(TlsError::Certificate(CertificateFault::Name, "mismatch"), "a.test");
        assert!(name.advice().is_some_and(|advice| advice.contains("another name")));
    }
}
