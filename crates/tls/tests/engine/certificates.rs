//! Certificates made for a test.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use headstart_tls::CertifiedKey;
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{KeyType, PKey, Private};
use openssl::rand::rand_bytes;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};

const DAY: i64 = 24 * 60 * 60;

/// Authority for the certificates of a test.
pub(crate) struct Authority {
    key: PKey<Private>,
    certificate: X509,
}

/// A certificate with its key, and the certificate alone.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) der: Vec<u8>,
}

/// Days before and after now in which a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) struct Days(pub(crate) i64, pub(crate) i64);

impl Authority {
    pub(crate) fn new() -> Self {
        let key = ec_key();
        // Of two authorities with one name a verifier would try the key of one only.
        let mut number = [0; 8];
        rand_bytes(&mut number).unwrap();
        let subject = name(&format!("headstart test authority {}", u64::from_be_bytes(number)));
        let mut builder = builder(&subject, &subject, &key, Days(-1, 30));
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self { key, certificate: builder.build() }
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    /// A valid certificate of an elliptic curve for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for(&ec_key(), names, Days(-1, 30))
    }

    pub(crate) fn issue_for(&self, key: &PKey<Private>, names: &[&str], days: Days) -> Issued {
        let subject = name(names.first().copied().unwrap_or("nameless"));
        let mut builder = builder(&subject, self.certificate.subject_name(), key, days);
        if !names.is_empty() {
            let mut alternatives = SubjectAlternativeName::new();
            for name in names {
                match name.parse::<IpAddr>() {
                    Ok(_) => alternatives.ip(name),
                    Err(_) => alternatives.dns(name),
                };
            }
            let context = builder.x509v3_context(Some(&self.certificate), None);
            let alternatives = alternatives.build(&context).unwrap();
            builder.append_extension(alternatives).unwrap();
        }
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        let certificate = builder.build();
        let chain = [certificate.to_pem().unwrap(), self.pem()].concat();
        let key = key.private_key_to_pem_pkcs8().unwrap();
        Issued { chain, key, der: certificate.to_der().unwrap() }
    }
}

impl Issued {
    pub(crate) fn certified(&self) -> CertifiedKey {
        CertifiedKey::from_pem(&self.chain, &self.key).unwrap()
    }
}

pub(crate) fn ec_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

pub(crate) fn ml_dsa_44_key() -> PKey<Private> {
    let mut seed = [0; 32]; // FIPS 204, algorithm 1
    rand_bytes(&mut seed).unwrap();
    PKey::private_key_from_seed(None, KeyType::ML_DSA_44, None, &seed).unwrap()
}

fn name(common: &str) -> X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, common).unwrap();
    name.build()
}

fn builder(
    subject: &openssl::x509::X509NameRef,
    issuer: &openssl::x509::X509NameRef,
    key: &PKey<Private>,
    days: Days,
) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(127, MsbOption::MAYBE_ZERO, false).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = |days: i64| Asn1Time::from_unix(i64::try_from(now).unwrap() + days * DAY).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap(); // X.509 version 3
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_not_before(&at(days.0)).unwrap();
    builder.set_not_after(&at(days.1)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
}
