use std::fs;
use std::os::unix::fs::PermissionsExt;

use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::x509::extension::SubjectAlternativeName;
use tempfile::TempDir;

use super::*;

/// A directory with the certificate `name`.pem and its key `name`.key.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn write(&self, file: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.path(file);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A certificate for `names` that is valid from and until so many seconds from now.
    fn pair(&self, name: &str, names: &[&str], from: i64, until: i64) -> CertificateFiles {
        let (certificate, key) = issue(names, from, until);
        CertificateFiles {
            chain: self.write(&format!("{name}.pem"), &certificate, 0o644),
            key: self.write(&format!("{name}.key"), &key, 0o640),
        }
    }
}

fn issue(names: &[&str], from: i64, until: i64) -> (Vec<u8>, Vec<u8>) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let at = |offset| Asn1Time::from_unix(now() + offset).unwrap();
    builder.set_not_before(&at(from)).unwrap();
    builder.set_not_after(&at(until)).unwrap();
    builder.set_pubkey(&key).unwrap();
    let context = builder.x509v3_context(None, None);
    let mut alternative = SubjectAlternativeName::new();
    names.iter().for_each(|name| {
        alternative.dns(name);
    });
    let alternative = alternative.critical().build(&context).unwrap();
    builder.append_extension(alternative).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build().to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap())
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

fn said(files: &CertificateFiles) -> String {
    Certificates::load(std::slice::from_ref(files)).unwrap_err().to_string()
}

#[test]
fn several_certificates_and_the_first_to_expire() {
    let files = Files::new();
    let pairs = [
        files.pair("a", &["www.a.example", "a.example"], -60, 7200),
        files.pair("b", &["*.b.example"], -60, 3600),
    ];
    let loaded = Certificates::load(&pairs).unwrap();
    assert_eq!(loaded.keys.len(), 2);
    let left = loaded.expiry - now();
    assert!((3590..=3600).contains(&left), "{left}");
    for (name, covered) in [
        ("a.example", true),
        ("www.a.example", true),
        ("x.b.example", true),
        ("b.example", false),
        ("x.y.b.example", false),
        ("c", false),
    ] {
        assert_eq!(loaded.cover(name), covered, "{name}");
    }
    assert_eq!(paths(&pairs).count(), 4);
}

#[test]
fn one_file_may_hold_both() {
    let files = Files::new();
    let (mut both, key) = issue(&["a.example"], -60, 3600);
    both.extend(key);
    let path = files.write("both.pem", &both, 0o600);
    let pair = CertificateFiles { chain: path.clone(), key: path };
    assert_eq!(Certificates::load(&[pair]).unwrap().keys.len(), 1);
}

#[test]
fn an_expired_certificate_is_served() {
    let files = Files::new();
    let expired = files.pair("a", &["a.example"], -7200, -3600);
    assert!(Certificates::load(&[expired]).unwrap().expiry < now());
    let early = files.pair("b", &["a.example"], 3600, 7200);
    assert!(Certificates::load(&[early]).is_ok());
}

#[test]
fn a_key_that_everybody_may_read_is_refused() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    fs::set_permissions(&pair.key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = said(&pair);
    assert!(said.starts_with("error: everybody may use the private key in "), "{said}");
    assert!(said.contains("(mode 0644)\nhint: chmod o= "), "{said}");
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let files = Files::new();
    let mut pair = files.pair("a", &["a.example"], -60, 3600);
    pair.key = files.pair("b", &["a.example"], -60, 3600).key;
    let said = said(&pair);
    assert!(said.contains("b.key is not that of the certificate in"), "{said}");
}

#[test]
fn what_is_no_certificate_or_key_is_explained() {
    let files = Files::new();
    let good = files.pair("a", &["a.example"], -60, 3600);
    let chain = |text: &[u8]| CertificateFiles {
        chain: files.write("x.pem", text, 0o644),
        key: good.key.clone(),
    };
    for text in
        [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let said = said(&chain(text));
        assert!(said.contains("no certificate in "), "{said}");
        assert!(said.contains("-----BEGIN CERTIFICATE-----"), "{said}");
    }
    let key =
        CertificateFiles { chain: good.chain.clone(), key: files.write("x.key", b"x", 0o600) };
    assert!(said(&key).contains("no private key in "), "{}", said(&key));
    let missing = CertificateFiles { chain: files.path("none"), key: good.key };
    assert!(said(&missing).contains("none: No such file"), "{}", said(&missing));
}

#[test]
fn a_key_with_a_password_is_refused_and_nobody_is_asked() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    let key = PKey::private_key_from_pem(&fs::read(&pair.key).unwrap()).unwrap();
    let cipher = openssl::symm::Cipher::aes_256_cbc();
    let locked = key.private_key_to_pem_pkcs8_passphrase(cipher, b"secret").unwrap();
    fs::write(&pair.key, locked).unwrap();
    assert!(said(&pair).contains("without a password"), "{}", said(&pair));
}
