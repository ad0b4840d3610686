//! Certificates and their private keys, from files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headstart_tls::CertifiedKey;
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use zeroize::Zeroizing;

use crate::base::failure::Failure;
use crate::edge::options::CertificateFiles;

/// Bytes of a file of certificates or keys at most: a chain with ML-DSA has some 25 kB, and whole
/// bundles of authorities, given by mistake, 250 kB.
const FILE_MAX: u64 = 1024 * 1024;

/// The permissions that nobody may have on a private key, but its owner and a group such as
/// Debian's ssl-cert.
const EVERYBODY: u32 = 0o007;

/// The certificates of an edge, at least one.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    pub(super) keys: Vec<CertifiedKey>,
    /// When they expire, in seconds since 1970, by their first names; of several, the first.
    pub(super) expiries: BTreeMap<String, i64>,
}

impl Certificates {
    /// Reads all `files`. What is wrong with the dates is only logged: whether to trust an expired
    /// certificate is the clients' decision, and the other certificates are not to suffer.
    ///
    /// # Errors
    /// A file that cannot be read, is no PEM, or a key that everybody may read or that is another
    /// certificate's.
    pub(super) fn load(files: &[CertificateFiles]) -> Result<Self, Failure> {
        let mut all = Self { keys: Vec::new(), expiries: BTreeMap::new() };
        for files in files {
            let (key, leaf) = load(files)?;
            let name = key.names().first().map_or("none", String::as_str).to_owned();
            let expiry = check_dates(&leaf, &files.chain)?;
            all.expiries.entry(name).and_modify(|old| *old = expiry.min(*old)).or_insert(expiry);
            all.keys.push(key);
        }
        Ok(all)
    }

    /// Returns true if one of them is for `name`, a host name in lower case.
    pub(super) fn cover(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.keys
            .iter()
            .flat_map(CertifiedKey::names)
            .any(|found| found == name || (found.strip_prefix("*.") == parent && parent.is_some()))
    }
}

fn load(files: &CertificateFiles) -> Result<(CertifiedKey, X509), Failure> {
    let chain = read(&files.chain)?;
    let key = read_key(&files.key)?;
    let leaf = leaf(&chain, &files.chain)?;
    check_key(&leaf, &private_key(&key, &files.key)?, files)?;
    let key = CertifiedKey::from_pem(&chain, &key).map_err(|error| {
        Failure::usage(format!("cannot use {}: {error}", files.chain.display())).hint(error.hint())
    })?;
    Ok((key, leaf))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    File::open(path).and_then(|file| contents(&file)).map_err(|error| unreadable(path, &error))
}

fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    // Checks the open file, so that it cannot be swapped in between.
    let mode = file.metadata().map_err(|error| unreadable(path, &error))?.mode();
    if mode & EVERYBODY != 0 {
        let path = path.display();
        return Err(Failure::usage(format!(
            "everybody may use the private key in {path} (mode {:04o})",
            mode & 0o7777
        ))
        .hint(format!("chmod o= {path}; if somebody may have read it, get a new certificate")));
    }
    contents(&file).map_err(|error| unreadable(path, &error))
}

/// A file may be a key: its bytes are wiped, and memory that grows would leave copies behind.
fn contents(file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let size = file.metadata()?.len();
    if size > FILE_MAX {
        return Err(io::Error::other("it is larger than any certificate"));
    }
    let room = usize::try_from(size).unwrap_or(0) + 1024;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
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

/// The certificate that comes first in a chain.
fn leaf(chain: &[u8], path: &Path) -> Result<X509, Failure> {
    let found = X509::stack_from_pem(chain).map_err(|error| reason(&error));
    let first =
        found.and_then(|found| found.into_iter().next().ok_or_else(|| "there is none".into()));
    first.map_err(|reason: String| {
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

/// Logs a certificate that clients will refuse; when it expires, in seconds since 1970.
fn check_dates(leaf: &X509, path: &Path) -> Result<i64, Failure> {
    try_check_dates(leaf, path).map_err(|error| {
        Failure::usage(format!("cannot use {}: {}", path.display(), reason(&error)))
    })
}

fn try_check_dates(leaf: &X509, path: &Path) -> Result<i64, ErrorStack> {
    let now = Asn1Time::days_from_now(0)?;
    let file = path.display();
    if leaf.not_after() < &*now {
        tracing::warn!(%file, since = %leaf.not_after(), "certificate has expired: clients will \
            refuse it");
    } else if leaf.not_before() > &*now {
        tracing::warn!(%file, until = %leaf.not_before(), "certificate is not valid yet: clients \
            will refuse it");
    }
    unix(leaf.not_after())
}

fn unix(time: &Asn1TimeRef) -> Result<i64, ErrorStack> {
    let since = Asn1Time::from_unix(0)?.diff(time)?;
    Ok(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

fn reason(error: &ErrorStack) -> String {
    let first = error.errors().first().and_then(|error| error.reason());
    first.unwrap_or("not understood").to_owned()
}

/// All that has to be looked at for a change.
pub(super) fn paths(files: &[CertificateFiles]) -> impl Iterator<Item = PathBuf> {
    files.iter().flat_map(|files| [files.chain.clone(), files.key.clone()])
}

#[cfg(test)]
mod tests;
