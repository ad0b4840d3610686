//! Clients: certificates verified for a name, exportable sessions, early data, cookies.

mod config;
mod connecting;
mod hooks;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use headstart_proto::hello::address_literal;
use openssl::error::ErrorStack;
use openssl::sha::{Sha256, sha256};
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use openssl::x509::verify::X509CheckFlags;

use crate::conn::Conn;
use crate::error::{ConfigError, TlsError, forget_errors, words};
use crate::ffi;
use crate::session::{Session, Usable, wall_clock};
use crate::settings::{Settings, alpn_wire, roots};
use crate::wire::normal_name;

pub use config::{ClientConfig, Trust};
pub(crate) use connecting::Connecting;

/// Shared state of a client's connections.
pub struct ClientContext {
    context: SslContext,
    alpn: Vec<Vec<u8>>,
    checks: bool,
    client_certificate: bool,
    trust: [u8; 32],
    fingerprint: [u8; 32],
}

impl ClientContext {
    /// Creates a client with this configuration.
    ///
    /// # Errors
    /// A fault of the configuration, or unreadable trusted certificates of the system.
    pub fn new(config: &ClientConfig) -> Result<Self, ConfigError> {
        forget_errors();
        let settings = Settings {
            groups: config.groups.as_deref(),
            signature_algorithms: config.signature_algorithms.as_deref(),
            versions: (config.min_version, config.max_version),
            key_log: config.key_log.as_ref(),
        };
        let mut tls = settings.context(SslMethod::tls_client())?;
        set_trust(&mut tls, &config.trust)?;
        let alpn = alpn_wire(&config.alpn)?;
        if !alpn.is_empty() {
            tls.set_alpn_protos(&alpn)?;
        }
        if let Some(certificate) = &config.certificate {
            certificate
                .add_to(&mut tls)
                .map_err(|error: ErrorStack| ConfigError::Certificate(0, words(&error)))?;
        }
        hooks::install(&mut tls)?;
        let own = config.certificate.as_ref().map(|own| own.certificate.to_der()).transpose()?;
        let trust = trust_hash(&config.trust, own.as_deref());
        Ok(Self {
            context: tls.build(),
            alpn: config.alpn.clone(),
            checks: config.trust != Trust::Anyone,
            client_certificate: config.certificate.is_some(),
            trust,
            fingerprint: fingerprint(config, &trust, &alpn),
        })
    }

    /// Returns a hash of everything in the configuration that a session depends on: trust,
    /// protocols, algorithms, versions, and the client's certificate. Part of the key for storing
    /// sessions.
    #[must_use]
    pub const fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Opens a connection to `server_name`, a host name or an address, and verifies the certificate
    /// for it.
    ///
    /// Offers `session` if it may be used for that name ([`Session`]), is from a client with the
    /// same trust and the same certificate or none, and young enough; otherwise there is a full
    /// handshake. `request_fop` asks the server for Fast Open cookies, which reveals headstart:
    /// only for servers that advertise them.
    ///
    /// # Errors
    /// [`TlsError::Misuse`]: not a host name; [`TlsError::Internal`]: out of memory.
    pub fn connect(
        &self,
        server_name: &str,
        session: Option<Session>,
        request_fop: bool,
    ) -> Result<Conn, TlsError> {
        self.connect_offering(&self.alpn, server_name, session, request_fop)
    }

    /// Connects as [`connect`](Self::connect) does, with other application protocols than the
    /// configuration's, so that clients that differ only in these can share a context.
    ///
    /// [`fingerprint`](Self::fingerprint) does not cover them. A session store has to separate
    /// sessions by protocols, too.
    ///
    /// # Errors
    /// As for `connect`; [`TlsError::Misuse`]: a protocol that is empty or longer than 255 bytes.
    pub fn connect_offering(
        &self,
        alpn: &[Vec<u8>],
        server_name: &str,
        session: Option<Session>,
        request_fop: bool,
    ) -> Result<Conn, TlsError> {
        forget_errors();
        let target = Target::parse(server_name).ok_or(TlsError::Misuse("not a host name"))?;
        let mut ssl = Ssl::new(&self.context)?;
        if alpn != self.alpn {
            let wire =
                alpn_wire(alpn).map_err(|_| TlsError::Misuse("invalid application protocol"))?;
            ssl.set_alpn_protos(&wire)?;
        }
        target.set(&mut ssl, self.checks)?;
        let server_name = target.text();
        let now = wall_clock();
        let usable = session.and_then(|session| session.usable(&self.trust, &server_name, now));
        if let Some(usable) = &usable {
            ffi::set_session(&mut ssl, &usable.session)?;
        }
        let connecting = Arc::new(Connecting {
            server_name,
            sends_name: matches!(target, Target::Name(_)),
            request_fop,
            ticket_request: OnceLock::new(),
            early_data_max: usable.as_ref().map_or(0, |usable| early_data_max(usable, alpn)),
            trust: self.trust,
            checks: self.checks,
            renames: usable.as_ref().is_some_and(|usable| !usable.same_name),
            offered_since: usable.map(|usable| usable.since),
            client_certificate: self.client_certificate,
            received: Mutex::default(),
        });
        connecting.attach(&mut ssl)?;
        ssl.set_connect_state();
        Conn::new(ssl, connecting)
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").field("checks", &self.checks).finish_non_exhaustive()
    }
}

/// Returns the session's early data limit. Early data uses the session's name and application
/// protocol (RFC 8446 section 4.2.10), so that has to be among those offered.
fn early_data_max(usable: &Usable, alpn: &[Vec<u8>]) -> u32 {
    let protocol = ffi::session_alpn(&usable.session);
    let offers = protocol.is_none_or(|protocol| alpn.iter().any(|offered| offered == protocol));
    if usable.same_name && offers { usable.session.max_early_data() } else { 0 }
}

/// Host to connect to.
enum Target {
    Name(String),
    Address(IpAddr),
}

impl Target {
    fn parse(server_name: &str) -> Option<Self> {
        match address_literal(server_name) {
            Some(address) => Some(Self::Address(address)),
            None => normal_name(server_name).map(Self::Name),
        }
    }

    /// Requests the name, and has the certificate verified for it.
    fn set(&self, ssl: &mut Ssl, checks: bool) -> Result<(), ErrorStack> {
        if let Self::Name(name) = self {
            ssl.set_hostname(name)?;
        }
        if !checks {
            return Ok(());
        }
        let param = ssl.param_mut();
        param.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
        match self {
            Self::Name(name) => param.set_host(name),
            Self::Address(address) => param.set_ip(*address),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(address) => address.to_string(),
        }
    }
}

fn set_trust(tls: &mut SslContextBuilder, trust: &Trust) -> Result<(), ConfigError> {
    tls.set_verify(SslVerifyMode::PEER);
    match trust {
        Trust::Anyone => tls.set_verify(SslVerifyMode::NONE),
        Trust::Roots(pem) => tls.set_cert_store(roots(pem)?.1),
        Trust::System => {
            set_system_trust(tls).map_err(|error| ConfigError::Roots(words(&error)))?
        }
    }
    Ok(())
}

/// Uses the distribution's certificates; the directory this OpenSSL was built for is another one.
fn set_system_trust(tls: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    if openssl_probe::has_ssl_cert_env_vars() {
        return tls.set_default_verify_paths(); // which heed those variables
    }
    let found = openssl_probe::probe();
    let (file, dir) = (found.cert_file.as_deref(), found.cert_dir.first().map(PathBuf::as_path));
    if file.is_some() || dir.is_some() {
        tls.load_verify_locations(file, dir)?;
    }
    Ok(())
}

/// Hashes what a session stands for: the trust anchors by which the server was verified, regardless
/// of their order, and the client's own certificate, in DER, if it may show one.
fn trust_hash(trust: &Trust, own: Option<&[u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"headstart trust 1\0");
    match trust {
        Trust::System => hash.update(b"system"),
        Trust::Anyone => hash.update(b"anyone"),
        Trust::Roots(pem) => {
            let roots = X509::stack_from_pem(pem).unwrap_or_default();
            let der = roots.iter().filter_map(|root| root.to_der().ok());
            let mut hashes: Vec<_> = der.map(|der| sha256(&der)).collect();
            hashes.sort_unstable();
            hash.update(b"roots");
            hashes.iter().for_each(|root| hash.update(root));
        }
    }
    if let Some(own) = own {
        hash.update(b"\0shown");
        hash.update(&sha256(own));
    }
    hash.finish()
}

fn fingerprint(config: &ClientConfig, trust: &[u8; 32], alpn: &[u8]) -> [u8; 32] {
    let versions = [config.min_version as u8, config.max_version as u8];
    let parts: [&[u8]; 5] = [
        trust,
        alpn,
        config.groups.as_deref().unwrap_or_default().as_bytes(),
        config.signature_algorithms.as_deref().unwrap_or_default().as_bytes(),
        &versions,
    ];
    let mut hash = Sha256::new();
    for part in parts {
        // Each hash has the same length, so that no two lists of parts collide.
        hash.update(&sha256(part));
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CertifiedKey;

    fn text(name: &str) -> Option<String> {
        Target::parse(name).map(|target| target.text())
    }

    fn fingerprint(config: &ClientConfig) -> [u8; 32] {
        *ClientContext::new(config).unwrap().fingerprint()
    }

    #[test]
    fn addresses_are_not_names() {
        for address in ["192.0.2.1", "192.0.2.1."] {
            assert!(matches!(Target::parse(address), Some(Target::Address(_))), "{address}");
        }
        assert_eq!(text("[2001:DB8::1]").as_deref(), Some("2001:db8::1"));
        assert_eq!(text("Example.ORG.").as_deref(), Some("example.org"));
        assert!(Target::parse("").is_none());
        assert!(Target::parse("a\0b").is_none());
        assert!(Target::parse("a b").is_none());
    }

    #[test]
    fn fingerprints_cover_what_sessions_depend_on() {
        let one = ClientConfig::new(Trust::Anyone);
        let same = fingerprint(&one);
        assert_eq!(same, fingerprint(&one.clone()));
        let alpn = ClientConfig { alpn: vec![b"h2".to_vec()], ..one.clone() };
        let groups = ClientConfig { groups: Some("X25519".into()), ..one.clone() };
        let version = ClientConfig { min_version: crate::Version::Tls13, ..one.clone() };
        let [first, second] = [(); 2].map(|()| {
            let shown = headstart_testkit::self_signed(&["a.example"], 0..headstart_testkit::DAY);
            let certificate = CertifiedKey::from_pem(&shown.chain, &shown.key).unwrap();
            ClientConfig { certificate: Some(certificate), ..one.clone() }
        });
        assert_ne!(fingerprint(&first), fingerprint(&second), "of whoever shows a certificate");
        for other in [alpn, groups, version, first] {
            assert_ne!(fingerprint(&other), same);
        }
    }
}
