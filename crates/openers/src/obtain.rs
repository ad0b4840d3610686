//! Making the identity of a server, with a first flight of the length asked for.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::arm::Suite;
use crate::certificate::Chain;
use crate::error::PeerError;
use crate::flight::{self, FLIGHT_MAX};
use crate::identity::{CHAIN, Identity, KEY, ROOT, folder_name, unusable};

impl Identity {
    /// Reads the identity of `suite` in `directory`, and makes it where it is missing.
    ///
    /// With `flight`, the certificate is padded so that the server's first flight has this many
    /// bytes, TLS records included.
    ///
    /// # Errors
    /// The directory cannot be used, or no flight can be so short or long.
    pub fn obtain(
        directory: &Path,
        suite: Suite,
        name: &str,
        flight: Option<usize>,
    ) -> Result<Self, PeerError> {
        let folder = directory.join(folder_name(suite, flight));
        if !folder.exists() {
            let chain = padded(suite, name, flight)?;
            store(&chain, directory, &folder).map_err(|error| unusable(directory, &error))?;
        }
        Self::load(folder)
    }
}

/// Within some bytes: signatures of ECDSA differ in length, and so do flights.
fn padded(suite: Suite, name: &str, flight: Option<usize>) -> Result<Chain, PeerError> {
    let chain = Chain::new(suite, name, 0)?;
    let Some(wanted) = flight else { return Ok(chain) };
    let identity = Identity::from_chain(chain);
    let least = flight::measure(suite, &identity, name)?;
    if wanted > FLIGHT_MAX {
        return Err(PeerError::new(format!("a flight of {wanted} bytes is too long"))
            .with_hint(format!("give at most {FLIGHT_MAX}")));
    }
    let cost = PADDING_COST + wanted / RECORD * RECORD_COST;
    let Some(padding) = wanted.checked_sub(least + cost) else {
        return Err(PeerError::new(format!(
            "a flight of {suite} is never as short as {wanted} bytes"
        ))
        .with_hint(format!("give at least {}", least + cost)));
    };
    Chain::new(suite, name, padding.max(1))
}

/// Bytes in a TLS record, and what each further one takes: header, authentication, content type
/// (RFC 8446 section 5.2).
const RECORD: usize = 16 * 1024;
const RECORD_COST: usize = 5 + 16 + 1;

/// Cost of a padding besides its bytes: object identifier and lengths of an extension in DER.
const PADDING_COST: usize = 24;

fn store(chain: &Chain, directory: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(directory)?;
    let mut all = Vec::new();
    for certificate in &chain.certificates {
        all.extend(certificate.to_pem()?);
    }
    fs::write(new.path().join(CHAIN), all)?;
    if let Some(root) = chain.certificates.last() {
        fs::write(new.path().join(ROOT), root.to_pem()?)?;
    }
    let mut key = OpenOptions::new();
    let mut key = key.write(true).create_new(true).mode(0o600).open(new.path().join(KEY))?;
    key.write_all(&chain.key.private_key_to_pem_pkcs8()?)?;
    match fs::rename(new.path(), folder) {
        // Another server was faster: its files stay.
        Err(_) if folder.exists() => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::roots;

    #[test]
    fn the_first_makes_it_and_the_others_find_it() {
        let directory = tempfile::tempdir().unwrap();
        let servers = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| Identity::obtain(directory.path(), Suite::P256, "peer.test", None))
            });
            threads.map(|thread| thread.join().unwrap().unwrap())
        });
        let serials = servers.iter().map(|server| server.certificates[0].to_der().unwrap());
        let mut serials: Vec<_> = serials.collect();
        serials.dedup();
        assert_eq!(serials.len(), 1);
        assert_eq!(roots(directory.path(), Suite::P256).unwrap().len(), 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn clients_trust_every_flight_of_their_suite_and_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let error = roots(directory.path(), Suite::P256).unwrap_err();
        assert!(error.hint().unwrap().contains("start the server first"));
        for flight in [None, Some(3000)] {
            Identity::obtain(directory.path(), Suite::P256, "peer.test", flight).unwrap();
        }
        Identity::obtain(directory.path(), Suite::X25519MlKem768, "peer.test", None).unwrap();
        assert_eq!(roots(directory.path(), Suite::P256).unwrap().len(), 2);
    }

    #[test]
    fn a_flight_cannot_be_of_any_length() {
        let directory = tempfile::tempdir().unwrap();
        for flight in [100, FLIGHT_MAX + 1] {
            let made = Identity::obtain(directory.path(), Suite::P256, "peer.test", Some(flight));
            assert!(made.unwrap_err().hint().is_some());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
