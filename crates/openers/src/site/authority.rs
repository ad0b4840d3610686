//! Certificates: an authority of the sites' own, and one certificate for each host.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::asn1::Asn1Time;
use openssl::base64;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::x509::X509;
use rcgen::{
    ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData,
};

use crate::certificate;
use crate::error::PeerError;

/// Days that certificates are valid. Browsers refuse longer ones of servers (Apple's and Mozilla's
/// policies: 398).
const DAYS: u32 = 397;

/// The subject of authorities, by which hosts' certificates name them.
const NAME: &str = "headstart test sites";

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
    issuer: Arc<Issuer<'static, KeyPair>>,
}

/// A host's certificate, signed by the authority, and its key.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    certificate: X509,
    key: PKey<Private>,
}

impl Authority {
    /// A new one that nobody knows yet.
    ///
    /// # Errors
    /// OpenSSL gives no keys.
    pub fn new() -> Result<Self, PeerError> {
        let (params, key) = (certificate::authority(NAME, DAYS), KeyPair::generate()?);
        let certificate = X509::from_der(params.self_signed(&key)?.der())?;
        Ok(Self { certificate, issuer: Arc::new(Issuer::new(params, key)) })
    }

    /// Returns the authority of a folder; a new one if it has none, whose files are written there.
    /// The caller makes the folder; whoever may write to it can exchange the key.
    ///
    /// # Errors
    /// The folder cannot be used, or what it has is no authority, or none for more than a day.
    pub fn obtain(folder: &Path) -> Result<Self, PeerError> {
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| folder.join(name));
        if !certificate.exists() && !key.exists() {
            let new = Self::new()?;
            write(&key, new.issuer.key().serialize_pem().as_bytes())?;
            write(&certificate, &new.pem()?)?;
            return Ok(new);
        }
        if !certificate.exists() || !key.exists() {
            return Err(useless(folder, "are not both there"));
        }
        let (certificate, key) = (read(&certificate)?, read(&key)?);
        Self::from_pem(&certificate, &key).map_err(|why| useless(folder, why))
    }

    /// Reads an authority; the reason if there is none, or none for more than a day.
    fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, &'static str> {
        const NEITHER: &str = "are no certificate and key in PEM form";
        let certificate = X509::from_pem(certificate).map_err(|_| NEITHER)?;
        let key = str::from_utf8(key).ok().and_then(|key| KeyPair::from_pem(key).ok());
        let key = key.ok_or(NEITHER)?;
        let public = certificate.public_key().and_then(|key| key.public_key_to_der());
        if public.map_err(|_| NEITHER)? != key.subject_public_key_info() {
            return Err("do not belong together");
        }
        let mut names = certificate.subject_name().entries().map(|name| name.data().as_slice());
        if names.next() != Some(NAME.as_bytes()) || names.next().is_some() {
            return Err("were made by another program");
        }
        let tomorrow = Asn1Time::days_from_now(1).map_err(|_| NEITHER)?;
        if certificate.not_after() < tomorrow {
            return Err("expire within a day, or have expired");
        }
        let params = certificate::authority(NAME, DAYS);
        Ok(Self { certificate, issuer: Arc::new(Issuer::new(params, key)) })
    }

    /// Returns its certificate, in PEM form.
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
        Ok(base64::encode_block(&sha256(&self.certificate.public_key()?.public_key_to_der()?)))
    }

    /// A new certificate for a host, and for it alone.
    ///
    /// # Errors
    /// OpenSSL gives no keys, or the name is none.
    pub fn issue(&self, host: &str) -> Result<HostIdentity, PeerError> {
        let mut params = certificate::host(host, DAYS)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) =
            certificate::issue(&params, &PKCS_ECDSA_P256_SHA256, &self.issuer)?;
        Ok(HostIdentity { certificate, key })
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
        let [chain_pem, key_pem] = self.to_pem(authority)?;
        write(&key, &key_pem)?;
        write(&chain, &chain_pem)?;
        Ok((chain, key))
    }

    /// The chain and the key, in PEM form. The authority's certificate is in the chain, so that a
    /// browser which is told its key finds it.
    pub(super) fn to_pem(&self, authority: &Authority) -> Result<[Vec<u8>; 2], PeerError> {
        let mut chain = self.certificate.to_pem()?;
        chain.extend(authority.pem()?);
        Ok([chain, self.key.private_key_to_pem_pkcs8()?])
    }
}

/// A certificate that somebody may trust is not replaced unasked.
fn useless(folder: &Path, why: &str) -> PeerError {
    PeerError::new(format!("{CERTIFICATE} and {KEY} of {} {why}", folder.display()))
        .with_hint("remove both, or name another folder")
}

fn read(file: &Path) -> Result<Vec<u8>, PeerError> {
    fs::read(file).map_err(|error| unusable(file, &error))
}

/// Writes a file for its owner alone: there are keys among these files.
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
    fn existing_keys_are_used_or_refused_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::obtain(folder.path()).unwrap();
        let files = [CERTIFICATE, KEY].map(|name| folder.path().join(name));
        let own = authority.pem().unwrap();
        let key = authority.issuer.key().serialize_pem().into_bytes();
        let other = Authority::new().unwrap().pem().unwrap();
        let [old, foreign] = [(NAME, 0), ("others", DAYS)].map(|(name, days)| {
            let params = certificate::authority(name, days);
            params.self_signed(authority.issuer.key()).unwrap().pem().into_bytes()
        });
        for (certificate, key, why) in [
            (Some(&own), None, "not both there"),
            (None, Some(&key), "not both there"),
            (Some(&b"x".to_vec()), Some(&key), "no certificate and key"),
            (Some(&other), Some(&key), "belong together"),
            (Some(&foreign), Some(&key), "another program"),
            (Some(&old), Some(&key), "expire"),
        ] {
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
            assert_eq!(now, [certificate.cloned(), key.cloned()]);
        }
    }
}
