//! Certificates and keys in a directory of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{KeyRing, PERIOD};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use tempfile::TempDir;

/// A directory that goes away with it.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file, for command lines.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file as a whole: nobody sees half of it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> String {
        let (path, fresh) = (self.path(name), self.path(&format!(".{name}")));
        fs::write(&fresh, bytes).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }

    /// Makes `name`.pem, a certificate for the host `name` alone, and `name`.key.
    pub(crate) fn issue(&self, name: &str) {
        self.issue_until(name, 3600);
    }

    /// The same, valid until so many seconds from now.
    pub(crate) fn issue_until(&self, name: &str, until: i64) {
        let (certificate, key) = issue(name, until);
        // The key first, so that a certificate in place has its key.
        self.write(&format!("{name}.key"), &key, 0o600);
        self.write(&format!("{name}.pem"), &certificate, 0o644);
    }

    /// The options that give an edge the certificate for `name`.
    pub(crate) fn certificate(&self, name: &str) -> [String; 4] {
        let (chain, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        ["--cert".into(), chain, "--key".into(), key]
    }

    /// A new key ring in the file `name`.
    pub(crate) fn keys(&self, name: &str) -> String {
        let path = self.path(name);
        KeyRing::generate(now(), PERIOD).unwrap().store(Path::new(&path)).unwrap();
        path
    }
}

/// Runs `headstart keys rotate`.
pub(crate) fn rotate(path: &str) {
    let path = PathBuf::from(path);
    KeyRing::load(&path).unwrap().rotated(now()).unwrap().store(&path).unwrap();
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// A certificate that vouches for itself, and its key; both in PEM.
fn issue(name: &str, until: i64) -> (Vec<u8>, Vec<u8>) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(64, MsbOption::MAYBE_ZERO, false).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(&subject).unwrap();
    let at = |offset: i64| Asn1Time::from_unix(i64::try_from(now().0).unwrap() + offset).unwrap();
    builder.set_not_before(&at(until.min(0) - 3600)).unwrap();
    builder.set_not_after(&at(until)).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    let context = builder.x509v3_context(None, None);
    let names = SubjectAlternativeName::new().dns(name).build(&context).unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build().to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap())
}
