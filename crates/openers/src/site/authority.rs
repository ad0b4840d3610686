//! Certificates: an authority of the sites' own, and one certificate for each host.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use openssl::asn1::Asn1Time;
use openssl::base64;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
};
use openssl::x509::{X509, X509Name, X509NameBuilder};

use crate::error::PeerError;

/// Days that certificates are valid. Browsers refuse longer ones of servers (Apple's and Mozilla's
/// policies: 398).
const DAYS: u32 = 397;

/// Random bits of a serial number: at most 20 octets, positive (RFC 5280 section 4.1.2.2).
const SERIAL_BITS: i32 = 127;

/// The file with the authority's certificate, for those who are to trust it, in PEM form.
const CERTIFICATE: &str = "authority.pem";

/// The file with its key, in PEM form.
const KEY: &str = "authority.key";

/// Permissions of all files.
const MODE: u32 = 0o600;

/// Certificate authority of the hosts.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

/// A host's certificate, signed by the authority, and its key.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    pub(super) certificate: X509,
    pub(super) key: PKey<Private>,
}

impl Authority {
    /// A new one that nobody knows yet.
    ///
    /// # Errors
    /// OpenSSL gives no keys.
    pub fn new() -> Result<Self, PeerError> {
        let key = new_key()?;
        let name = name("headstart test sites")?;
        let mut builder = certificate(&name, &key)?;
        builder.set_issuer_name(&name)?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        let usage = KeyUsage::new().critical().key_cert_sign().crl_sign().build()?;
        builder.append_extension(usage)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Self { certificate: builder.build(), key })
    }

    /// Returns the authority of a folder; a new one if it has none, whose files are written there.
    ///
    /// # Errors
    /// The folder cannot be used, or what it has is no authority, or none for more than a day.
    pub fn obtain(folder: &Path) -> Result<Self, PeerError> {
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| folder.join(name));
        if !certificate.exists() && !key.exists() {
            let new = Self::new()?;
            fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
            write(&key, &new.key.private_key_to_pem_pkcs8()?)?;
            write(&certificate, &new.pem()?)?;
            return Ok(new);
        }
        // A certificate that somebody may trust is not replaced unasked.
        let useless = |why: &str| {
            let what = format!("{CERTIFICATE} and {KEY} of {} {why}", folder.display());
            PeerError::new(what).with_hint("remove both, or name another folder")
        };
        if !certificate.exists() || !key.exists() {
            return Err(useless("are not both there"));
        }
        let parsed =
            (X509::from_pem(&read(&certificate)?), PKey::private_key_from_pem(&read(&key)?));
        let (Ok(certificate), Ok(key)) = parsed else {
            return Err(useless("are no certificate and key in PEM form"));
        };
        if !certificate.public_key()?.public_eq(&key) {
            return Err(useless("do not belong together"));
        }
        if certificate.not_after() < Asn1Time::days_from_now(1)? {
            return Err(useless("expire within a day, or have expired"));
        }
        Ok(Self { certificate, key })
    }

    /// Its certificate, in PEM form.
    ///
    /// # Errors
    /// OpenSSL cannot write it.
    pub fn pem(&self) -> Result<Vec<u8>, PeerError> {
        Ok(self.certificate.to_pem()?)
    }

    /// Returns Chromium's name of its public key in `--ignore-certificate-errors-spki-list`:
    /// SHA-256 of it in base64.
    ///
    /// # Errors
    /// OpenSSL cannot write the key.
    pub fn fingerprint(&self) -> Result<String, PeerError> {
        Ok(base64::encode_block(&sha256(&self.key.public_key_to_der()?)))
    }

    /// A new certificate for a host, and for it alone.
    ///
    /// # Errors
    /// OpenSSL gives no keys, or the name is none.
    pub fn issue(&self, host: &str) -> Result<HostIdentity, PeerError> {
        let key = new_key()?;
        let mut builder = certificate(&name(host)?, &key)?;
        builder.set_issuer_name(self.certificate.subject_name())?;
        let names = SubjectAlternativeName::new()
            .dns(host)
            .build(&builder.x509v3_context(Some(&self.certificate), None))?;
        builder.append_extension(names)?;
        builder.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
        builder.append_extension(ExtendedKeyUsage::new().server_auth().build()?)?;
        builder.sign(&self.key, MessageDigest::sha256())?;
        Ok(HostIdentity { certificate: builder.build(), key })
    }

    /// Certificates are sent with it, so that a browser which is told its key finds it.
    pub(super) const fn certificate(&self) -> &X509 {
        &self.certificate
    }
}

impl HostIdentity {
    /// Writes `HOST.pem`, with the authority's certificate behind its own, and `HOST.key` for other
    /// servers; their paths.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn store(
        &self,
        authority: &Authority,
        folder: &Path,
        host: &str,
    ) -> Result<(PathBuf, PathBuf), PeerError> {
        let (chain, key) = (folder.join(format!("{host}.pem")), folder.join(format!("{host}.key")));
        let mut pem = self.certificate.to_pem()?;
        pem.extend(authority.pem()?);
        write(&key, &self.key.private_key_to_pem_pkcs8()?)?;
        write(&chain, &pem)?;
        Ok((chain, key))
    }
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    PKey::from_ec_key(EcKey::generate(&group)?)
}

fn name(common: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, common)?;
    Ok(name.build())
}

/// Builds the common parts of all certificates.
fn certificate(
    name: &X509Name,
    key: &PKey<Private>,
) -> Result<openssl::x509::X509Builder, ErrorStack> {
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?; // X.509 version 3
    builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
    builder.set_subject_name(name)?;
    builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
    builder.set_not_after(Asn1Time::days_from_now(DAYS)?.as_ref())?;
    builder.set_pubkey(key)?;
    Ok(builder)
}

fn read(file: &Path) -> Result<Vec<u8>, PeerError> {
    fs::read(file).map_err(|error| unusable(file, &error))
}

/// For its owner alone: there are keys among these files.
fn write(file: &Path, bytes: &[u8]) -> Result<(), PeerError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(MODE);
    let written = options.open(file).and_then(|mut file| {
        // An existing file keeps its mode.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(bytes)
    });
    written.map_err(|error| unusable(file, &error))
}

fn unusable(path: &Path, error: &io::Error) -> PeerError {
    PeerError::new(format!("cannot use {}: {error}", path.display()))
        .with_hint("name a folder that you may write to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_authority() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::obtain(folder.path()).unwrap();
        let again = Authority::obtain(folder.path()).unwrap();
        assert_eq!(first.pem().unwrap(), again.pem().unwrap());
        assert_eq!(first.fingerprint().unwrap(), again.fingerprint().unwrap());
        assert_ne!(first.fingerprint().unwrap(), Authority::new().unwrap().fingerprint().unwrap());
        let host = again.issue("a.test").unwrap();
        let (chain, key) = host.store(&again, folder.path(), "a.test").unwrap();
        let chain = X509::stack_from_pem(&fs::read(chain).unwrap()).unwrap();
        assert_eq!(chain.len(), 2);
        assert!(chain[0].verify(&chain[1].public_key().unwrap()).unwrap());
        assert!(PKey::private_key_from_pem(&fs::read(&key).unwrap()).is_ok());
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        host.store(&again, folder.path(), "a.test").unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_a_folder_has_is_used_or_refused_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::obtain(folder.path()).unwrap();
        let files = [CERTIFICATE, KEY].map(|name| folder.path().join(name));
        let refused = |certificate: Option<&[u8]>, key: Option<&[u8]>, why: &str| {
            for (file, bytes) in files.iter().zip([certificate, key]) {
                let _ = fs::remove_file(file);
                if let Some(bytes) = bytes {
                    fs::write(file, bytes).unwrap();
                }
            }
            let error = Authority::obtain(folder.path()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert!(error.hint().unwrap().contains("remove both"));
            let now = files.each_ref().map(|file| fs::read(file).ok());
            assert_eq!(now, [certificate, key].map(|bytes| bytes.map(<[u8]>::to_vec)));
        };
        let own = authority.pem().unwrap();
        let key = authority.key.private_key_to_pem_pkcs8().unwrap();
        refused(Some(&own), None, "not both there");
        refused(None, Some(&key), "not both there");
        refused(Some(b"x"), Some(&key), "no certificate and key");
        refused(Some(&Authority::new().unwrap().pem().unwrap()), Some(&key), "belong together");
        let mut old = certificate(&name("x").unwrap(), &authority.key).unwrap();
        old.set_issuer_name(&name("x").unwrap()).unwrap();
        old.set_not_after(&Asn1Time::from_unix(1_000_000_000).unwrap()).unwrap();
        old.sign(&authority.key, MessageDigest::sha256()).unwrap();
        refused(Some(&old.build().to_pem().unwrap()), Some(&key), "expire");
    }
}
