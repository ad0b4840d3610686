use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use headstart_testkit::self_signed;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::*;

/// Somebody else.
const OTHER: u32 = 54321;

/// A group that reads keys, whatever its number.
const SSL_CERT: u32 = 54322;

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
        set(&path, mode);
        path
    }

    /// Makes a certificate for `names`, valid from `from` to `until`, in seconds from now.
    fn pair(&self, name: &str, names: &[&str], from: i64, until: i64) -> CertificateFiles {
        let issued = self_signed(names, from..until);
        CertificateFiles {
            chain: self.write(&format!("{name}.pem"), &issued.chain, 0o644),
            key: self.write(&format!("{name}.key"), &issued.key, 0o640),
        }
    }
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

fn load_error(files: &CertificateFiles) -> String {
    Certificates::load(std::slice::from_ref(files), None).unwrap_err().to_string()
}

#[test]
fn several_certificates_expire_by_name() {
    let files = Files::new();
    let pairs = [
        files.pair("a", &["www.a.example", "a.example"], -60, 7200),
        files.pair("b", &["*.b.example"], -60, 3600),
    ];
    let loaded = Certificates::load(&pairs, None).unwrap();
    assert_eq!(loaded.keys.len(), 2);
    for (name, life) in [("a.example", 7200), ("*.b.example", 3600)] {
        let left = loaded.expiries[name] - now();
        assert!((life - 10..=life).contains(&left), "{name}: {left}");
    }
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
    let issued = self_signed(&["a.example"], -60..3600);
    let path = files.write("both.pem", &[issued.chain, issued.key].concat(), 0o600);
    let pair = CertificateFiles { chain: path.clone(), key: path };
    assert_eq!(Certificates::load(&[pair], None).unwrap().keys.len(), 1);
}

#[test]
fn an_expired_certificate_is_served() {
    let files = Files::new();
    let expired = files.pair("a", &["a.example"], -7200, -3600);
    assert!(Certificates::load(&[expired], None).unwrap().expiries["a.example"] < now());
    let early = files.pair("b", &["a.example"], 3600, 7200);
    assert!(Certificates::load(&[early], None).is_ok());
}

#[test]
fn a_key_that_everybody_may_read_is_refused() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    set(&pair.key, 0o644);
    let error = load_error(&pair);
    assert!(error.starts_with("error: everybody may use the private key in "), "{error}");
    assert!(error.contains("(mode 0644)\nhint: chmod o= "), "{error}");
}

#[test]
fn a_key_that_others_than_its_owner_may_write_is_refused() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    set(&pair.key, 0o602);
    let error = load_error(&pair);
    assert!(error.contains("others may write to it (mode 0602)\nhint: chmod go-w "), "{error}");
    if !geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    chown(&pair.key, None, Some(SSL_CERT)).unwrap();
    set(&pair.key, 0o660);
    let error = load_error(&pair);
    assert!(error.contains("others may write to it (mode 0660)"), "{error}");
    set(&pair.key, 0o640);
    for owner in [None, Some(OTHER)] {
        chown(&pair.key, owner, None).unwrap();
        Certificates::load(std::slice::from_ref(&pair), None).unwrap();
    }
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let files = Files::new();
    let mut pair = files.pair("a", &["a.example"], -60, 3600);
    pair.key = files.pair("b", &["a.example"], -60, 3600).key;
    let error = load_error(&pair);
    assert!(error.contains("b.key is not that of the certificate in"), "{error}");
}

/// The files are what they are, and no key has leaked.
#[test]
fn missing_and_swapped_files_are_named() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    let without = CertificateFiles { chain: pair.chain.clone(), key: pair.chain.clone() };
    let text = load_error(&without);
    assert!(
        text.ends_with(
            "a.pem has no private key\nhint: give the key of the certificate with \
        --key FILE"
        ),
        "{text}"
    );
    let swapped = CertificateFiles { chain: pair.key.clone(), key: pair.chain.clone() };
    let text = load_error(&swapped);
    assert!(text.contains("a.key is a private key, and ") && text.contains("swapped"), "{text}");
    let other = files.pair("b", &["b.example"], -60, 3600);
    let both = CertificateFiles { chain: pair.chain, key: other.chain };
    let text = load_error(&both);
    assert!(text.contains("b.pem is a certificate, and no private key\n"), "{text}");
}

#[test]
fn faults_that_clients_see_are_told() {
    let files = Files::new();
    let fault = |from, until| examine(&files.pair("a", &["a.example"], from, until)).unwrap().fault;
    assert_eq!(fault(-60, 3600), None);
    assert!(fault(-7200, -3600).unwrap().starts_with("certificate has expired ("));
    assert!(fault(3600, 7200).unwrap().starts_with("certificate is not valid yet (from "));
}

#[test]
fn what_is_no_certificate_or_key_is_explained() {
    let files = Files::new();
    let good = files.pair("a", &["a.example"], -60, 3600);
    for text in
        [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let chain = files.write("x.pem", text, 0o644);
        let error = load_error(&CertificateFiles { chain, key: good.key.clone() });
        assert!(error.contains("no certificate in "), "{error}");
        assert!(error.contains("-----BEGIN CERTIFICATE-----"), "{error}");
    }
    let key =
        CertificateFiles { chain: good.chain.clone(), key: files.write("x.key", b"x", 0o600) };
    assert!(load_error(&key).contains("no private key in "), "{}", load_error(&key));
    let missing = CertificateFiles { chain: files.path("none"), key: good.key };
    assert!(load_error(&missing).contains("none: No such file"), "{}", load_error(&missing));
}

#[test]
fn a_key_with_a_password_is_refused_and_nobody_is_asked() {
    let files = Files::new();
    let pair = files.pair("a", &["a.example"], -60, 3600);
    let key = PKey::private_key_from_pem(&fs::read(&pair.key).unwrap()).unwrap();
    let cipher = openssl::symm::Cipher::aes_256_cbc();
    let locked = key.private_key_to_pem_pkcs8_passphrase(cipher, b"secret").unwrap();
    fs::write(&pair.key, locked).unwrap();
    assert!(load_error(&pair).contains("without a password"), "{}", load_error(&pair));
}
