//! Certificates and their private keys, from files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use headstart_tls::CertifiedKey;
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509NameRef};
use zeroize::Zeroizing;

use crate::base::failure::Failure;
use crate::base::files::{self, FileFault};
use crate::edge::options::CertificateFiles;

/// Bytes of a file of certificates or keys at most: a chain with ML-DSA has some 25 kB, and whole
/// bundles of authorities, given by mistake, 250 kB.
const FILE_MAX: u64 = 1024 * 1024;

/// Labels of PEM blocks; of keys of any kind.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

const EQUAL: std::cmp::Ordering = std::cmp::Ordering::Equal;

/// The certificates of an edge, at least one.
#[derive(Clone, Debug, Default)]
pub(in crate::edge) struct Certificates {
    pub(super) keys: Vec<CertifiedKey>,
    /// Expiry by first name, in seconds since 1970; the earliest where several share a name.
    pub(super) expiries: BTreeMap<String, i64>,
    /// Authorities of clients, in PEM form; none if clients need no certificate.
    pub(super) client_ca: Option<Vec<u8>>,
}

impl Certificates {
    /// Reads all `files`, and `client_ca`. Faults of the dates are only logged: whether to trust an
    /// expired certificate is the clients' decision, and the other certificates still work.
    ///
    /// # Errors
    /// A file that cannot be read or is not PEM; a key that everybody may read, that others may
    /// write, or of another certificate; authorities that others may write or own.
    pub(super) fn load(
        files: &[CertificateFiles],
        client_ca: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut all =
            Self { client_ca: client_ca.map(authorities).transpose()?, ..Self::default() };
        for files in files {
            let (key, chain) = load(files)?;
            if let Some(fault) = date_fault(&chain)? {
                tracing::warn!(file = %files.chain.display(), "{fault}");
            }
            all.add(key, expiry(&chain)?);
        }
        Ok(all)
    }

    fn add(&mut self, key: CertifiedKey, expiry: i64) {
        let name = key.names().first().map_or("none", String::as_str).to_owned();
        self.expiries.entry(name).and_modify(|old| *old = expiry.min(*old)).or_insert(expiry);
        self.keys.push(key);
    }

    /// Returns true if one of them is for `name`, a host name in lower case.
    pub(in crate::edge) fn cover(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.keys
            .iter()
            .flat_map(CertifiedKey::names)
            .any(|found| found == name || (found.strip_prefix("*.") == parent && parent.is_some()))
    }
}

/// A pair of files that an edge can start with.
#[derive(Debug)]
pub(in crate::edge) struct Examined {
    /// Certificate and key.
    pub(in crate::edge) certificates: Certificates,
    /// Faults for which clients refuse it.
    pub(in crate::edge) fault: Option<String>,
    /// The issuer, if it is missing in the chain.
    pub(in crate::edge) missing: Option<String>,
    /// When it expires, for people.
    pub(in crate::edge) until: String,
}

/// Reads a pair of files and checks it as clients will.
///
/// # Errors
/// As [`Certificates::load`].
pub(in crate::edge) fn examine(files: &CertificateFiles) -> Result<Examined, Failure> {
    let (key, chain) = load(files)?;
    let (last, until) = (chain.last.issuer_name(), chain.leaf.not_after().to_string());
    let is_complete = chain.length > 1
        || last.try_cmp(chain.last.subject_name()).is_ok_and(|order| order == EQUAL);
    let mut certificates = Certificates::default();
    certificates.add(key, expiry(&chain)?);
    Ok(Examined {
        certificates,
        fault: date_fault(&chain)?,
        missing: (!is_complete).then(|| name(last)),
        until,
    })
}

/// Returns the most specific part of a distinguished name.
fn name(name: &X509NameRef) -> String {
    let by = |nid| name.entries_by_nid(nid).next().map(|entry| entry.data().as_slice());
    let found = by(Nid::COMMONNAME).or_else(|| by(Nid::ORGANIZATIONNAME));
    String::from_utf8_lossy(found.unwrap_or(b"without a name")).into_owned()
}

/// Returns the certificates of a file, in its order.
struct Chain {
    leaf: X509,
    last: X509,
    length: usize,
}

fn load(files: &CertificateFiles) -> Result<(CertifiedKey, Chain), Failure> {
    let chain = read(&files.chain)?;
    let key_file =
        files::open_unwritten(&files.key).map_err(|fault| unusable_key(&files.key, &fault))?;
    let key = contents(&key_file).map_err(|error| unreadable(&files.key, &error))?;
    check_kinds(&chain, &key, files)?;
    files::check_unread(&key_file).map_err(|fault| unusable_key(&files.key, &fault))?;
    let found = parse(&chain, &files.chain)?;
    check_key(&found.leaf, &private_key(&key, &files.key)?, files)?;
    let key = CertifiedKey::from_pem(&chain, &key).map_err(|error| {
        Failure::usage(format!("cannot use {}: {error}", files.chain.display())).hint(error.hint())
    })?;
    Ok((key, found))
}

/// Refuses files swapped between options, before any other check.
fn check_kinds(chain: &[u8], key: &[u8], files: &CertificateFiles) -> Result<(), Failure> {
    let has =
        |pem: &[u8], label: &str| pem.windows(label.len()).any(|window| window == label.as_bytes());
    let (chain_file, key_file) = (files.chain.display(), files.key.display());
    if has(key, PRIVATE_KEY) {
        return Ok(());
    }
    if files.chain == files.key {
        return Err(Failure::usage(format!("{chain_file} has no private key"))
            .hint("give the key of the certificate with --key FILE"));
    }
    if has(key, CERTIFICATE) && has(chain, PRIVATE_KEY) {
        return Err(Failure::usage(format!(
            "{chain_file} is a private key, and {key_file} a certificate"
        ))
        .hint(format!("--cert and --key are swapped: --cert {key_file} --key {chain_file}")));
    }
    if has(key, CERTIFICATE) {
        return Err(Failure::usage(format!("{key_file} is a certificate, and no private key"))
            .hint("give the file of the key to --key"));
    }
    Ok(())
}

/// Reads the authorities of clients, in PEM form.
///
/// # Errors
/// A file that cannot be read, is not PEM, or that others may write or own.
pub(in crate::edge) fn authorities(path: &Path) -> Result<Vec<u8>, Failure> {
    let file = files::open_configuration(path).map_err(|fault| fault.failure(path))?;
    let pem = contents(&file).map_err(|error| unreadable(path, &error))?;
    parse(&pem, path).map_err(|failure| {
        failure.hint("the file has to hold the certificates of authorities in PEM form")
    })?;
    Ok(pem.to_vec())
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    File::open(path).and_then(|file| contents(&file)).map_err(|error| unreadable(path, &error))
}

/// A group such as Debian's ssl-cert may read keys, so the advice leaves it that right.
fn unusable_key(path: &Path, fault: &FileFault) -> Failure {
    match fault {
        FileFault::Io(error) => unreadable(path, error),
        FileFault::Readable(mode) => {
            let path = path.display();
            Failure::usage(format!("everybody may use the private key in {path} (mode {mode:04o})"))
                .hint(format!(
                    "chmod o= {path}; if somebody may have read it, get a new certificate"
                ))
        }
        _ => fault.failure(path),
    }
}

/// Reads a file that may be a key: into memory that is wiped, and does not grow, which would leave
/// copies behind.
fn contents(file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let size = file.metadata()?.len();
    if size > FILE_MAX {
        return Err(io::Error::other("it is larger than any certificate"));
    }
    let capacity = usize::try_from(size).unwrap_or(0) + 1024;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::usage(format!("cannot read {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::PermissionDenied => failure.hint(
            "the edge reads it as the user that it runs as, also later; `id` shows the groups",
        ),
        _ => failure,
    }
}

fn parse(chain: &[u8], path: &Path) -> Result<Chain, Failure> {
    let found = X509::stack_from_pem(chain).map_err(|error| reason(&error));
    let found = found.and_then(|found| match (found.first(), found.last()) {
        (Some(leaf), Some(last)) => {
            Ok(Chain { leaf: leaf.clone(), last: last.clone(), length: found.len() })
        }
        _ => Err("there is none".into()),
    });
    found.map_err(|reason: String| {
        Failure::usage(format!("no certificate in {}: {reason}", path.display())).hint(
            "the file has to hold certificates in PEM form (-----BEGIN CERTIFICATE-----), \
             the server's own first",
        )
    })
}

fn private_key(pem: &[u8], path: &Path) -> Result<PKey<Private>, Failure> {
    // Without our answer, OpenSSL would ask for a password on the terminal.
    PKey::private_key_from_pem_passphrase(pem, b"").map_err(|error| {
        let path = path.display();
        Failure::usage(format!("no private key in {path}: {}", reason(&error))).hint(format!(
            "the file has to hold a key in PEM form without a password: `openssl pkey -in {path}` \
                writes one"
        ))
    })
}

fn check_key(leaf: &X509, key: &PKey<Private>, files: &CertificateFiles) -> Result<(), Failure> {
    let fits = leaf.public_key().is_ok_and(|public| public.public_eq(key));
    if fits {
        return Ok(());
    }
    let (chain, key) = (files.chain.display(), files.key.display());
    Err(Failure::usage(format!("the key in {key} is not that of the certificate in {chain}")).hint(
        "--key goes with the --cert of the same place in the order; the server's own \
         certificate comes first in its file",
    ))
}

/// Returns what is wrong with the dates, if anything is.
fn date_fault(chain: &Chain) -> Result<Option<String>, Failure> {
    let now = Asn1Time::days_from_now(0).map_err(|error| no_date(&error))?;
    let leaf = &chain.leaf;
    Ok(if leaf.not_after() < &*now {
        Some(format!("certificate has expired ({}): clients will refuse it", leaf.not_after()))
    } else if leaf.not_before() > &*now {
        let from = leaf.not_before();
        Some(format!("certificate is not valid yet (from {from}): clients will refuse it"))
    } else {
        None
    })
}

/// Returns when a certificate expires, in seconds since 1970.
fn expiry(chain: &Chain) -> Result<i64, Failure> {
    unix(chain.leaf.not_after()).map_err(|error| no_date(&error))
}

fn no_date(error: &ErrorStack) -> Failure {
    Failure::usage(format!("cannot compare dates: {}", reason(error)))
}

fn unix(time: &Asn1TimeRef) -> Result<i64, ErrorStack> {
    let since = Asn1Time::from_unix(0)?.diff(time)?;
    Ok(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

fn reason(error: &ErrorStack) -> String {
    let first = error.errors().first().and_then(|error| error.reason());
    first.unwrap_or("not understood").to_owned()
}

/// Returns the files to check for changes.
pub(super) fn paths(files: &[CertificateFiles]) -> impl Iterator<Item = PathBuf> {
    files.iter().flat_map(|files| [files.chain.clone(), files.key.clone()])
}

#[cfg(test)]
mod tests;
