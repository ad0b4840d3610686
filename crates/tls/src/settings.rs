use std::fmt;
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContextBuilder, SslMethod, SslMode, SslOptions};
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::{X509, X509Ref};

use crate::error::{ConfigError, forget_errors, words};
use crate::facts::Version;
use crate::ffi;
use crate::wire::normal_name;

/// Receives lines in the format of NSS key logs, with which captures can be decrypted.
///
/// Anyone who sees them can read the connections; there are none unless a configuration asks for
/// them.
pub type KeyLog = Arc<dyn Fn(&str) + Send + Sync>;

/// Cipher suites of TLS 1.2: authenticated encryption and forward secrecy (RFC 9325 section 4.2).
const CIPHERS: &str = "ECDHE+AESGCM:ECDHE+CHACHA20";

/// `SSL_OP_NO_ANTI_REPLAY` of openssl/ssl.h: tickets stay stateless with early data, and our own
/// filter is the replay cache.
const NO_ANTI_REPLAY: SslOptions = SslOptions::from_bits_retain(1 << 24);

/// Settings common to both sides.
pub(crate) struct Settings<'a> {
    pub(crate) groups: Option<&'a str>,
    pub(crate) signature_algorithms: Option<&'a str>,
    pub(crate) versions: (Version, Version),
    pub(crate) key_log: Option<&'a KeyLog>,
}

impl Settings<'_> {
    /// Creates a context with these settings.
    pub(crate) fn context(&self, method: SslMethod) -> Result<SslContextBuilder, ConfigError> {
        let (lowest, highest) = self.versions;
        if lowest > highest {
            return Err(ConfigError::Versions);
        }
        let mut tls = SslContextBuilder::new(method)?;
        tls.set_min_proto_version(Some(lowest.openssl()))?;
        tls.set_max_proto_version(Some(highest.openssl()))?;
        tls.set_cipher_list(CIPHERS)?;
        tls.set_mode(
            SslMode::ACCEPT_MOVING_WRITE_BUFFER
                | SslMode::ENABLE_PARTIAL_WRITE
                | SslMode::RELEASE_BUFFERS,
        );
        tls.set_options(
            SslOptions::NO_COMPRESSION
                | SslOptions::NO_RENEGOTIATION
                | SslOptions::CIPHER_SERVER_PREFERENCE
                | SslOptions::PRIORITIZE_CHACHA
                | NO_ANTI_REPLAY,
        );
        self.set_algorithms(&mut tls)?;
        if let Some(log) = self.key_log {
            let log = Arc::clone(log);
            tls.set_keylog_callback(move |_, line| ffi::guard((), || log(line)));
        }
        Ok(tls)
    }

    fn set_algorithms(&self, tls: &mut SslContextBuilder) -> Result<(), ConfigError> {
        if let Some(groups) = self.groups {
            let groups = text(groups).ok_or(ConfigError::Groups("a NUL"))?;
            tls.set_groups_list(groups).map_err(|error| ConfigError::Groups(words(&error)))?;
        }
        if let Some(algorithms) = self.signature_algorithms {
            let algorithms = text(algorithms).ok_or(ConfigError::SignatureAlgorithms("a NUL"))?;
            tls.set_sigalgs_list(algorithms)
                .map_err(|error| ConfigError::SignatureAlgorithms(words(&error)))?;
        }
        Ok(())
    }
}

/// Returns the text if C can represent it.
fn text(text: &str) -> Option<&str> {
    (!text.contains('\0')).then_some(text)
}

/// Encodes application protocols for ALPN: a length byte before each (RFC 7301 section 3.1).
pub(crate) fn alpn_wire(protocols: &[Vec<u8>]) -> Result<Vec<u8>, ConfigError> {
    let mut wire = Vec::new();
    for protocol in protocols {
        match u8::try_from(protocol.len()) {
            Ok(length @ 1..) => wire.push(length),
            _ => return Err(ConfigError::Alpn),
        }
        wire.extend_from_slice(protocol);
    }
    Ok(wire)
}

/// Reads trust anchors from PEM.
pub(crate) fn roots(pem: &[u8]) -> Result<(Vec<X509>, X509Store), ConfigError> {
    let roots = X509::stack_from_pem(pem).map_err(|error| ConfigError::Roots(words(&error)))?;
    if roots.is_empty() {
        return Err(ConfigError::Roots("no certificate"));
    }
    let mut store = X509StoreBuilder::new()?;
    for root in &roots {
        store.add_cert(root.clone()).map_err(|error| ConfigError::Roots(words(&error)))?;
    }
    Ok((roots, store.build()))
}

/// A certificate with its chain and its private key.
#[derive(Clone)]
pub struct CertifiedKey {
    pub(crate) certificate: X509,
    pub(crate) chain: Vec<X509>,
    pub(crate) key: PKey<Private>,
    names: Vec<String>,
}

impl CertifiedKey {
    /// Reads a chain in PEM, its own certificate first, and its key in PEM, without a password.
    ///
    /// # Errors
    /// [`ConfigError::Pem`]. Creating a context checks that the two belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        forget_errors();
        let mut chain =
            X509::stack_from_pem(chain).map_err(|error| ConfigError::Pem(words(&error)))?;
        if chain.is_empty() {
            return Err(ConfigError::Pem("no certificate"));
        }
        let certificate = chain.remove(0);
        // Without this answer OpenSSL would ask for a password on the terminal.
        let key = PKey::private_key_from_pem_passphrase(key, b"")
            .map_err(|error| ConfigError::Pem(words(&error)))?;
        let names = names(&certificate);
        Ok(Self { certificate, chain, key, names })
    }

    /// Returns the host names of the certificate, in lower case and sorted, wildcards as they are.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds the certificate to a context.
    pub(crate) fn add_to(&self, tls: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        let mut chain = Stack::new()?;
        for certificate in &self.chain {
            chain.push(certificate.clone())?;
        }
        ffi::add_certificate(tls, &self.certificate, &self.key, &chain)
    }
}

/// Shows only the names.
impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertifiedKey").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Returns the names of subjectAltName (RFC 9525 section 4.1); the subject is ignored.
pub(crate) fn names(certificate: &X509Ref) -> Vec<String> {
    let mut names: Vec<_> = certificate
        .subject_alt_names()
        .iter()
        .flatten()
        .filter_map(|name| normal_name(name.dnsname()?))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_length_prefixed() {
        let wire = alpn_wire(&[b"h2".to_vec(), b"http/1.1".to_vec()]).unwrap();
        assert_eq!(wire, b"\x02h2\x08http/1.1");
        assert_eq!(alpn_wire(&[]).unwrap(), b"");
        assert_eq!(alpn_wire(&[vec![b'a'; 255]]).unwrap().len(), 256);
        assert_eq!(alpn_wire(&[vec![b'a'; 256]]), Err(ConfigError::Alpn));
        assert_eq!(alpn_wire(&[Vec::new()]), Err(ConfigError::Alpn));
    }

    const SETTINGS: Settings<'static> = Settings {
        groups: None,
        signature_algorithms: None,
        versions: (Version::Tls12, Version::Tls13),
        key_log: None,
    };

    fn refused(settings: &Settings<'_>) -> Option<ConfigError> {
        settings.context(SslMethod::tls_server()).err()
    }

    #[test]
    fn unknown_algorithms_are_refused() {
        let (groups, signature_algorithms) = (Some("X25519MLKEM768:MLKEM512"), Some("mldsa44"));
        assert_eq!(refused(&Settings { groups, signature_algorithms, ..SETTINGS }), None);
        for groups in [Some("nonesuch"), Some("X25519\0")] {
            let refused = refused(&Settings { groups, ..SETTINGS });
            assert!(matches!(refused, Some(ConfigError::Groups(_))), "{groups:?}");
        }
        let signature_algorithms = Some("nonesuch");
        let refusal = refused(&Settings { signature_algorithms, ..SETTINGS });
        assert!(matches!(refusal, Some(ConfigError::SignatureAlgorithms(_))));
        let versions = (Version::Tls13, Version::Tls12);
        assert_eq!(refused(&Settings { versions, ..SETTINGS }), Some(ConfigError::Versions));
    }

    #[test]
    fn invalid_pem_is_refused() {
        assert!(matches!(CertifiedKey::from_pem(b"", b""), Err(ConfigError::Pem(_))));
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(CertifiedKey::from_pem(broken, b""), Err(ConfigError::Pem(_))));
        assert!(matches!(roots(b"nothing"), Err(ConfigError::Roots(_))));
    }
}
