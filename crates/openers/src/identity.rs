use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use crate::arm::Suite;
use crate::certificate::Chain;
use crate::error::PeerError;

/// Certificates sent, the server's own first, in PEM form.
pub(crate) const CHAIN: &str = "chain.pem";

/// The server's key, in PEM form.
pub(crate) const KEY: &str = "key.pem";

/// File with the clients' trust anchors, in PEM form.
pub(crate) const ROOT: &str = "root.pem";

/// A server's certificates and key, in files that other servers (nginx, HAProxy) can use as well.
///
/// All servers of one suite and flight that are given the same directory are the same one: the
/// first to come makes the files, in one step.
#[derive(Clone, Debug)]
pub struct Identity {
    folder: PathBuf,
    pub(crate) certificates: Vec<X509>,
    pub(crate) key: PKey<Private>,
}

impl Identity {
    /// The certificates that are sent, the server's own first.
    pub fn chain_file(&self) -> PathBuf {
        self.folder.join(CHAIN)
    }

    /// The key of the server's own certificate.
    pub fn key_file(&self) -> PathBuf {
        self.folder.join(KEY)
    }

    /// The certificate that clients trust.
    pub fn root_file(&self) -> PathBuf {
        self.folder.join(ROOT)
    }

    pub(crate) fn load(folder: PathBuf) -> Result<Self, PeerError> {
        let certificates = X509::stack_from_pem(&read(&folder.join(CHAIN))?)?;
        let key = PKey::private_key_from_pem(&read(&folder.join(KEY))?)?;
        Ok(Self { folder, certificates, key })
    }

    pub(crate) fn from_chain(chain: Chain) -> Self {
        Self { folder: PathBuf::new(), certificates: chain.certificates, key: chain.key }
    }

    /// The last certificate sent is its own issuer.
    pub(crate) fn root(&self) -> Option<&X509> {
        self.certificates.last()
    }
}

/// Returns the trust anchors of clients of `suite` in `directory`: for every server there, whatever
/// its flight.
pub(crate) fn roots(directory: &Path, suite: Suite) -> Result<Vec<X509>, PeerError> {
    let mut folders: Vec<_> = fs::read_dir(directory)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(|error| unusable(directory, &error))?
        .into_iter()
        .filter(|entry| of_suite(&entry.file_name().to_string_lossy(), suite))
        .map(|entry| entry.path().join(ROOT))
        .collect();
    folders.sort();
    let roots: Vec<_> = folders
        .iter()
        .map(|file| Ok(X509::from_pem(&read(file)?)?))
        .collect::<Result<_, PeerError>>()?;
    match roots.is_empty() {
        true => Err(PeerError::new(format!("{}: no server of {suite} yet", directory.display()))
            .with_hint("start the server first, with the same --identity")),
        false => Ok(roots),
    }
}

pub(crate) fn folder_name(suite: Suite, flight: Option<usize>) -> String {
    flight.map_or_else(|| suite.to_string(), |flight| format!("{suite}.{flight}"))
}

fn of_suite(folder: &str, suite: Suite) -> bool {
    let rest = folder.strip_prefix(suite.name());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn read(file: &Path) -> Result<Vec<u8>, PeerError> {
    fs::read(file).map_err(|error| {
        PeerError::new(format!("cannot read {}: {error}", file.display()))
            .with_hint("remove its folder, so that the server makes a new one")
    })
}

pub(crate) fn unusable(directory: &Path, error: &io::Error) -> PeerError {
    PeerError::new(format!("cannot use {}: {error}", directory.display()))
        .with_hint("give a directory that client and server may use with --identity")
}
