//! TLS as this program itself speaks it, for `get`, `demo` and `doctor`.

mod resumption;
mod sys;

use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::ssl::{
    self, ConnectConfiguration, SslConnector, SslConnectorBuilder, SslMethod, SslRef,
    SslVerifyMode, SslVersion,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509VerifyResult};

use crate::base::failure::Failure;
pub use resumption::Resumption;

/// HTTP/1.1 in the wire form of ALPN (RFC 7301).
pub const ALPN: &[u8] = b"\x08http/1.1";

/// OpenSSL's default list, written out because [`Facts`] relies on it: the key shares of
/// X25519MLKEM768 and X25519 go into the first flight.
const GROUPS: &str = "?*X25519MLKEM768 / ?*X25519:?secp256r1 / ?X448:?secp384r1:?secp521r1";

/// The same without the post-quantum group, whose key share makes a ClientHello larger than a SYN.
const SMALL_GROUPS: &str = "?*X25519:?secp256r1 / ?X448:?secp384r1:?secp521r1";

/// Trust anchors for a server's name.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The certificate authorities of the system, or those of SSL_CERT_FILE and SSL_CERT_DIR.
    System,
    /// The authorities in a PEM file, and no others.
    File(PathBuf),
    /// This one certificate.
    Only(X509),
    /// Anybody's.
    Anyone,
}

impl Trust {
    /// Verifies by `cacert`, or by the system's authorities without it.
    pub fn new(cacert: Option<&PathBuf>, insecure: bool) -> Self {
        match cacert {
            _ if insecure => Self::Anyone,
            Some(file) => Self::File(file.clone()),
            None => Self::System,
        }
    }
}

/// A client of TLS 1.2 and 1.3 that asks for HTTP/1.1.
///
/// # Errors
/// A file of certificates that cannot be read.
pub fn connector(trust: &Trust) -> Result<SslConnector, Failure> {
    Ok(builder(trust, GROUPS)?.build())
}

fn builder(trust: &Trust, groups: &str) -> Result<SslConnectorBuilder, Failure> {
    let unusable = |error| Failure::usage(format!("cannot use OpenSSL: {error}"));
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(unusable)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(unusable)?;
    builder.set_groups_list(groups).map_err(unusable)?;
    builder.set_alpn_protos(ALPN).map_err(unusable)?;
    match trust {
        Trust::Anyone => builder.set_verify(SslVerifyMode::NONE),
        Trust::File(file) => {
            let nobody = X509StoreBuilder::new().map_err(unusable)?.build();
            builder.set_cert_store(nobody);
            builder.set_ca_file(file).map_err(|error| unreadable(file, &error))?;
        }
        Trust::Only(certificate) => {
            let mut store = X509StoreBuilder::new().map_err(unusable)?;
            store.add_cert(certificate.clone()).map_err(unusable)?;
            builder.set_cert_store(store.build());
        }
        // OpenSSL reads these variables itself.
        Trust::System if openssl_probe::has_ssl_cert_env_vars() => {}
        Trust::System => {
            // This OpenSSL was built for another directory than the distribution's.
            let found = openssl_probe::probe();
            let (file, dir) = (found.cert_file.as_deref(), found.cert_dir.first());
            if file.is_some() || dir.is_some() {
                builder.load_verify_locations(file, dir.map(PathBuf::as_path)).map_err(unusable)?;
            }
        }
    }
    Ok(builder)
}

fn unreadable(file: &Path, error: &ErrorStack) -> Failure {
    let failure = |reason: &str| {
        Failure::usage(format!("cannot read certificates from {}: {reason}", file.display()))
    };
    if let Err(error) = std::fs::File::open(file) {
        return failure(&error.to_string());
    }
    failure(error.errors().last().and_then(|error| error.reason()).unwrap_or("no certificate"))
        .hint("the file has to hold certificates in PEM form (-----BEGIN CERTIFICATE-----)")
}

/// A connection to be made to `host`, a name or an address, whose certificate is checked for it.
///
/// # Errors
/// Want of memory.
pub fn configuration(connector: &SslConnector) -> Result<ConnectConfiguration, Failure> {
    connector.configure().map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))
}

/// Negotiated parameters, as far as they are public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Such as `TLSv1.3`.
    pub version: &'static str,
    /// Such as `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The group of the key exchange, where it can be told.
    pub group: Option<&'static str>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
}

impl Facts {
    /// Reads them from a finished handshake.
    pub fn from_handshake(ssl: &SslRef) -> Self {
        Self {
            version: ssl.version_str(),
            cipher: ssl.current_cipher().map_or("none", |cipher| cipher.name()),
            group: group(ssl),
            resumed: ssl.session_reused(),
        }
    }
}

/// OpenSSL shows the peer's key of every group that has one. A key encapsulation has none, and of
/// these only X25519MLKEM768 is on the list.
fn group(ssl: &SslRef) -> Option<&'static str> {
    let Ok(key) = ssl.peer_tmp_key() else {
        let full = ssl.version2() == Some(SslVersion::TLS1_3) && !ssl.session_reused();
        return full.then_some("X25519MLKEM768");
    };
    match key.id() {
        Id::X25519 => Some("X25519"),
        Id::X448 => Some("X448"),
        Id::EC => match key.ec_key().ok()?.group().curve_name()? {
            Nid::X9_62_PRIME256V1 => Some("secp256r1"),
            Nid::SECP384R1 => Some("secp384r1"),
            Nid::SECP521R1 => Some("secp521r1"),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the reason why TLS with `host` was not established, once the stream below it is known to
/// be well.
pub fn refusal(error: &ssl::Error, ssl: &SslRef, host: &str) -> Failure {
    let verdict = ssl.verify_result();
    if verdict != X509VerifyResult::OK {
        let text = format!("the certificate of {host} is not trusted: {}", verdict.error_string());
        return Failure::negative(text).hint(certificate_hint(verdict));
    }
    let stack = error.ssl_error().map(ErrorStack::errors).unwrap_or_default();
    match stack.last().and_then(|error| error.reason()) {
        Some("wrong version number" | "packet length too long") => {
            Failure::negative(format!("{host} does not speak TLS on this port"))
                .hint("check the port; the answer was no TLS record")
        }
        Some(reason) => Failure::negative(format!("TLS with {host} failed: {reason}")),
        None => Failure::negative(format!("{host} closed the connection during the TLS handshake"))
            .hint("the server may want another name (SNI), or nothing stands behind the edge"),
    }
}

/// Numbers of openssl/x509_vfy.h.
fn certificate_hint(verdict: X509VerifyResult) -> &'static str {
    match verdict.as_raw() {
        9 | 10 => {
            "check the date of this machine (`date`), or have the server's certificate renewed"
        }
        62 | 64 => "the certificate is for another name; check the name, and where --edge sends it",
        _ => "if you know its issuer, give the issuer's certificate with --cacert FILE (PEM)",
    }
}
