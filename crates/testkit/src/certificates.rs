use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
pub use rcgen::{PKCS_ECDSA_P256_SHA256 as P256, PKCS_ML_DSA_44 as ML_DSA_44};

/// Seconds of a day.
pub const DAY: i64 = 24 * 60 * 60;

/// From yesterday on for a month.
const VALID: Range<i64> = -DAY..30 * DAY;

/// Certificate authority of a test.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate and those of its issuers, in PEM form.
    pub chain: Vec<u8>,
    /// The key, in PEM form (PKCS #8).
    pub key: Vec<u8>,
    /// The certificate alone, in DER form.
    pub der: Vec<u8>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Makes one that nobody trusts yet.
    #[must_use]
    pub fn new() -> Self {
        // Of two authorities with one name a verifier would try the key of one only.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&[], VALID);
        params.distinguished_name.push(DnType::CommonName, format!("test authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its certificate in PEM form.
    #[must_use]
    pub fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// Makes a certificate for names and addresses that is valid now, with a key of P-256.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for(&P256, names, VALID)
    }

    /// Makes a certificate with a key of `algorithm`, valid between these seconds from now.
    #[must_use]
    pub fn issue_for(
        &self,
        algorithm: &'static rcgen::SignatureAlgorithm,
        names: &[&str],
        valid: Range<i64>,
    ) -> Issued {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params(names, valid).signed_by(&key, &self.0).unwrap();
        let chain = [certificate.pem(), self.0.pem()].concat();
        let der = certificate.der().to_vec();
        Issued { chain: chain.into_bytes(), key: key.serialize_pem().into_bytes(), der }
    }
}

/// Makes a certificate for names and addresses that is its own authority, valid between these
/// seconds from now, with a key of P-256.
#[must_use]
pub fn self_signed(names: &[&str], valid: Range<i64>) -> Issued {
    let key = KeyPair::generate().unwrap();
    let mut params = params(names, valid);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let der = certificate.der().to_vec();
    let chain = certificate.pem().into_bytes();
    Issued { chain, key: key.serialize_pem().into_bytes(), der }
}

fn params(names: &[&str], valid: Range<i64>) -> CertificateParams {
    let all: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(all).unwrap();
    let common = names.first().copied().unwrap_or("nameless");
    params.distinguished_name.push(DnType::CommonName, common);
    // OpenSSL asks a clock for the time that may be a tick behind, in the second before.
    params.not_before = from_now(valid.start - 1).into();
    params.not_after = from_now(valid.end).into();
    params
}

fn from_now(seconds: i64) -> SystemTime {
    let (now, distance) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    if seconds < 0 { now - distance } else { now + distance }
}
