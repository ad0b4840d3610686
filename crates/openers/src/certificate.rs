use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Extension, X509Name, X509NameBuilder};

use crate::arm::Suite;
use crate::sys;

/// Bits of every key of the RSA chain, as most certificates on the web that are not ECDSA.
const RSA_BITS: u32 = 2048;

/// The padding's extension, below the enterprise number for examples (RFC 5612).
const PADDING: &str = "1.3.6.1.4.1.32473.1";

/// Days that a certificate is valid; results may be repeated long after.
const DAYS: u32 = 3650;

/// Random bits of a serial number: at most 20 octets, positive (RFC 5280 section 4.1.2.2).
const SERIAL_BITS: i32 = 127;

/// Certificates that a server shows and its clients trust.
pub(crate) struct Chain {
    /// Certificates to send, the server's own first; the last is its own issuer and is trusted.
    pub(crate) certificates: Vec<X509>,
    pub(crate) key: PKey<Private>,
}

impl Chain {
    /// A new one for `name`, with so many bytes of padding in the server's own certificate.
    pub(crate) fn new(suite: Suite, name: &str, padding: usize) -> Result<Self, ErrorStack> {
        let leaf = Subject::new(suite, Role::Server { name, padding })?;
        if suite != Suite::RsaChain {
            return Ok(Self { certificates: vec![leaf.certified_by(&leaf)?], key: leaf.key });
        }
        let intermediate = Subject::new(suite, Role::Issuer("Intermediate"))?;
        let root = Subject::new(suite, Role::Issuer("Root"))?;
        let certificates = vec![
            leaf.certified_by(&intermediate)?,
            intermediate.certified_by(&root)?,
            root.certified_by(&root)?,
        ];
        Ok(Self { certificates, key: leaf.key })
    }
}

#[derive(Clone, Copy)]
enum Role<'a> {
    Server { name: &'a str, padding: usize },
    Issuer(&'a str),
}

/// One who has a key and a certificate.
struct Subject<'a> {
    role: Role<'a>,
    name: X509Name,
    key: PKey<Private>,
    digest: MessageDigest,
}

impl<'a> Subject<'a> {
    fn new(suite: Suite, role: Role<'a>) -> Result<Self, ErrorStack> {
        let (key, digest) = key(suite)?;
        let mut name = X509NameBuilder::new()?;
        // Of one length, and another for each padding: of two trusted certificates with one
        // subject, a client looks at the first alone.
        let (organization, common) = match role {
            Role::Server { name, padding } => (format!("lab {padding:09}"), name),
            Role::Issuer(name) => ("headstart lab".to_owned(), name),
        };
        name.append_entry_by_nid(Nid::ORGANIZATIONNAME, &organization)?;
        name.append_entry_by_nid(Nid::COMMONNAME, common)?;
        Ok(Self { role, name: name.build(), key, digest })
    }

    fn certified_by(&self, issuer: &Subject<'_>) -> Result<X509, ErrorStack> {
        let mut serial = BigNum::new()?;
        serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
        let mut builder = X509::builder()?;
        builder.set_version(2)?; // X.509 version 3
        builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
        builder.set_subject_name(&self.name)?;
        builder.set_issuer_name(&issuer.name)?;
        builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
        builder.set_not_after(Asn1Time::days_from_now(DAYS)?.as_ref())?;
        builder.set_pubkey(&self.key)?;
        match self.role {
            Role::Issuer(_) => {
                builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
                let usage = KeyUsage::new().critical().key_cert_sign().crl_sign().build()?;
                builder.append_extension(usage)?;
            }
            Role::Server { name, padding } => {
                let context = builder.x509v3_context(None, None);
                // The second is that of another virtual host at the same address.
                let mut names = SubjectAlternativeName::new();
                names.dns(name);
                if !name.starts_with('*') {
                    names.dns(&format!("other.{name}"));
                }
                let names = names.build(&context)?;
                builder.append_extension(names)?;
                if padding > 0 {
                    builder.append_extension(zeroes(padding)?)?;
                }
            }
        }
        builder.sign(&issuer.key, issuer.digest)?;
        Ok(builder.build())
    }
}

/// A key, and the digest for what it signs.
fn key(suite: Suite) -> Result<(PKey<Private>, MessageDigest), ErrorStack> {
    let key = match suite {
        Suite::P256 | Suite::X25519MlKem768 => {
            let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
            PKey::from_ec_key(EcKey::generate(&group)?)?
        }
        Suite::MlKem512MlDsa44 => return Ok((sys::new_key(c"ML-DSA-44")?, sys::no_digest())),
        Suite::RsaChain => PKey::from_rsa(Rsa::generate(RSA_BITS)?)?,
    };
    Ok((key, MessageDigest::sha256()))
}

/// An extension that means nothing to anybody.
fn zeroes(count: usize) -> Result<X509Extension, ErrorStack> {
    let content = Asn1OctetString::new_from_bytes(&vec![0; count])?;
    X509Extension::new_from_der(Asn1Object::from_str(PADDING)?.as_ref(), false, &content)
}
