//! Certificates of servers and their authorities, by rcgen, for OpenSSL.

use std::time::{Duration, SystemTime};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ML_DSA_44,
    PKCS_RSA_SHA256, SignatureAlgorithm,
};

use crate::arm::Suite;
use crate::error::PeerError;

/// The padding's extension, below the enterprise number for examples (RFC 5612).
const PADDING: &[u64] = &[1, 3, 6, 1, 4, 1, 32473, 1];

/// Days that a server's certificate is valid; results may be repeated long after.
const DAYS: u32 = 3650;

const SECOND: Duration = Duration::from_secs(1);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Certificates that a server shows and its clients trust.
pub(crate) struct Chain {
    /// Certificates to send, the server's own first; the last is its own issuer and is trusted.
    pub(crate) certificates: Vec<X509>,
    pub(crate) key: PKey<Private>,
}

impl Chain {
    /// Makes one for `name`, with this many bytes of padding in the server's own certificate.
    pub(crate) fn new(suite: Suite, name: &str, padding: usize) -> Result<Self, PeerError> {
        let (algorithm, server) = (algorithm(suite), server(name, padding)?);
        if suite != Suite::RsaChain {
            let key = KeyPair::generate_for(algorithm)?;
            let certificates = vec![X509::from_der(server.self_signed(&key)?.der())?];
            return Ok(Self { certificates, key: private(&key)? });
        }
        let root = KeyPair::generate_for(algorithm)?;
        let root = CertifiedIssuer::self_signed(authority("Root", DAYS), root)?;
        let intermediate = KeyPair::generate_for(algorithm)?;
        let params = authority("Intermediate", DAYS);
        let intermediate = CertifiedIssuer::signed_by(params, intermediate, &root)?;
        let (certificate, key) = issue(&server, algorithm, &intermediate)?;
        let [second, last] = [&intermediate, &root].map(|issuer| X509::from_der(issuer.der()));
        Ok(Self { certificates: vec![certificate, second?, last?], key })
    }
}

/// Makes a certificate for a host that is its own issuer, valid for a day, and its key.
///
/// # Errors
/// The name is not a host name.
pub fn self_signed(name: &str) -> Result<(X509, PKey<Private>), PeerError> {
    let key = KeyPair::generate()?;
    let certificate = host(name, 1)?.self_signed(&key)?;
    Ok((X509::from_der(certificate.der())?, private(&key)?))
}

/// Makes a key, and a certificate of it by `issuer`.
pub(crate) fn issue(
    params: &CertificateParams,
    algorithm: &'static SignatureAlgorithm,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<(X509, PKey<Private>), PeerError> {
    let key = KeyPair::generate_for(algorithm)?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((X509::from_der(certificate.der())?, private(&key)?))
}

/// Makes an authority's certificate, valid for this many days.
pub(crate) fn authority(name: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    named(params, name, days)
}

/// Makes a host's certificate, valid for this many days.
pub(crate) fn host(name: &str, days: u32) -> Result<CertificateParams, PeerError> {
    Ok(named(CertificateParams::new([name.to_owned()])?, name, days))
}

fn server(name: &str, padding: usize) -> Result<CertificateParams, PeerError> {
    let mut names = vec![name.to_owned()];
    if !name.starts_with('*') {
        // That of another virtual host at the same address.
        names.push(format!("other.{name}"));
    }
    let mut params = named(CertificateParams::new(names)?, name, DAYS);
    // Of one length, and another for each padding: of two trusted certificates with one subject, a
    // client looks at the first alone.
    params.distinguished_name.push(DnType::OrganizationName, format!("lab {padding:09}"));
    if padding > 0 {
        let zeros = CustomExtension::from_oid_content(PADDING, vec![0; padding]);
        params.custom_extensions.push(zeros);
    }
    Ok(params)
}

fn named(mut params: CertificateParams, name: &str, days: u32) -> CertificateParams {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    // OpenSSL asks a clock for the time that may be a tick behind, in the second before.
    params.not_before = (now - SECOND).into();
    params.not_after = (now + DAY * days).into();
    params
}

fn private(key: &KeyPair) -> Result<PKey<Private>, ErrorStack> {
    PKey::private_key_from_der(key.serialized_der())
}

fn algorithm(suite: Suite) -> &'static SignatureAlgorithm {
    match suite {
        Suite::P256 | Suite::X25519MlKem768 => &PKCS_ECDSA_P256_SHA256,
        Suite::MlKem512MlDsa44 => &PKCS_ML_DSA_44,
        Suite::RsaChain => &PKCS_RSA_SHA256,
    }
}
