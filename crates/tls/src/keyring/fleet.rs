//! The file that the machines of a fleet share: a key, and the address of each edge.
//!
//! ```text
//! headstart fleet 1
//! key 0a1b... (64 hex digits)
//! edge 1 10.0.0.1:4433
//! edge 2 10.0.0.2:4433
//! ```
//!
//! Edge numbers go from 1 to 255; at the address the edge takes joins that arrived at another edge.
//! Empty lines and lines that begin with `#` are skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headstart_proto::EdgeNumber;
use zeroize::Zeroizing;

use super::KeyRingError;
use super::epoch::{Secret, expand, random_secret};
use super::file::{FileFault, create, dir, read};
use super::text::{numbered_lines, put_secret, secret};

/// The first line.
const VERSION: &str = "headstart fleet 1";

/// Salt of all derivations, which separates them from those of key rings.
const SALT: &[u8] = b"headstart fleet 1";

/// Purpose of the key that seals rings.
pub(super) const SEAL: &str = "ring seal";

/// Purpose of the key with which edges authenticate each other.
pub(crate) const LINK: &str = "edge link";

/// Maximum size of a fleet's file in bytes: 255 edges take about 12,000.
const FLEET_FILE_MAX: usize = 16 * 1024;

/// The secret of a fleet, wiped when dropped.
///
/// It seals the key ring in untrusted storage, and authenticates edges to each other. It is not a
/// ticket key: its holder can make the fleet accept a forged ring, and read any sealed ring.
#[derive(Clone)]
pub struct FleetKey(Secret);

impl FleetKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// A failure of randomness.
    pub fn generate() -> Result<Self, KeyRingError> {
        random_secret().map(Self)
    }

    /// Derives the key for one purpose: HKDF-SHA-256 of the secret, with the purpose as `info` (RFC
    /// 5869).
    pub(crate) fn derive(&self, purpose: &str) -> Result<Zeroizing<[u8; 32]>, KeyRingError> {
        let mut key = Secret::default();
        expand(&self.0, SALT, purpose, &mut key).map_err(|_| KeyRingError::Derive)?;
        Ok(key)
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetKey(..)")
    }
}

/// A fleet as described by its file.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Its secret.
    pub key: FleetKey,
    /// Address at which each edge takes joins from the others; may be empty.
    pub edges: BTreeMap<EdgeNumber, SocketAddr>,
}

impl Fleet {
    /// Generates a fleet without edges, with a new key.
    ///
    /// # Errors
    /// A failure of randomness.
    pub fn generate() -> Result<Self, KeyRingError> {
        Ok(Self { key: FleetKey::generate()?, edges: BTreeMap::new() })
    }

    /// Reads a fleet's file.
    ///
    /// # Errors
    /// A file that others may read or write, that another user owns, or that is a symbolic link;
    /// one that does not describe a fleet.
    pub fn load(path: &Path) -> Result<Self, FleetFileError> {
        let fleet = read(path, FLEET_FILE_MAX).map_err(FleetFault::File).and_then(|bytes| {
            let text = std::str::from_utf8(&bytes);
            Self::parse(text.map_err(|_| FleetFault::File(FileFault::NotText))?)
        });
        fleet.map_err(|fault| FleetFileError { path: path.to_owned(), fault })
    }

    /// Writes a file that only its owner can read, where no file may exist yet.
    ///
    /// # Errors
    /// The file exists, or the directory is not writable.
    pub fn create(&self, path: &Path) -> Result<(), FleetFileError> {
        create(path, self.to_text().as_bytes()).map_err(|fault| FleetFileError {
            path: path.to_owned(),
            fault: FleetFault::File(fault),
        })
    }

    /// Returns the content of a file, the secret included.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Enough capacity, so that growing leaves no copy behind.
        let mut text = Zeroizing::new(String::with_capacity(128 + 64 * self.edges.len()));
        text.push_str(VERSION);
        text.push_str("\nkey ");
        put_secret(&mut text, &self.key.0);
        text.push('\n');
        for (number, address) in &self.edges {
            text.push_str(&format!("edge {number} {address}\n"));
        }
        text
    }

    /// Reads text from [`to_text`](Self::to_text).
    ///
    /// # Errors
    /// The number of the faulty line, from 1. Errors contain nothing of the text.
    pub fn parse(text: &str) -> Result<Self, FleetFault> {
        let mut lines = numbered_lines(text);
        let (version, first) = lines.next().unwrap_or(("", 1));
        if version != VERSION {
            return Err(FleetFault::Line(first));
        }
        let (mut key, mut edges, mut last) = (None, BTreeMap::new(), first);
        for (line, number) in lines {
            let words: Vec<_> = line.split_whitespace().collect();
            let taken = match *words.as_slice() {
                ["key", digits] if key.is_none() => {
                    key = secret(digits).map(FleetKey);
                    key.is_some()
                }
                ["edge", number, address] => edge(&mut edges, number, address),
                _ => false,
            };
            if !taken {
                return Err(FleetFault::Line(number));
            }
            last = number;
        }
        Ok(Self { key: key.ok_or(FleetFault::Line(last))?, edges })
    }
}

/// Adds an edge whose number and address are new.
fn edge(edges: &mut BTreeMap<EdgeNumber, SocketAddr>, number: &str, address: &str) -> bool {
    let number = number.parse().ok().map(EdgeNumber);
    let address: Option<SocketAddr> = address.parse().ok();
    let (Some(number), Some(address)) = (number, address) else { return false };
    let is_new = !edges.values().any(|other| *other == address);
    is_new && address.port() != 0 && edges.insert(number, address).is_none()
}

/// A fleet's file that could not be used.
#[derive(Debug)]
pub struct FleetFileError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub fault: FleetFault,
}

/// A fault of a fleet's file.
#[derive(Debug)]
pub enum FleetFault {
    /// It is not readable, not writable, or not private.
    File(FileFault),
    /// The line with this number is invalid or repeats another, or it is the last and the key is
    /// missing.
    Line(usize),
}

impl FleetFileError {
    /// Returns advice for the user, in one line.
    #[must_use]
    pub fn hint(&self) -> String {
        let file = self.path.display();
        match &self.fault {
            FleetFault::File(FileFault::Read(error))
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                format!(
                    "`headstart keys new --fleet {file}` makes one; then copy it to all machines"
                )
            }
            FleetFault::File(FileFault::Write(error))
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                format!("make its directory first: mkdir -p -m 700 {}", dir(&self.path).display())
            }
            FleetFault::File(FileFault::Exists) => {
                "a new key invalidates the rings that the old one sealed; \
                 remove the file first"
                    .into()
            }
            FleetFault::File(FileFault::Open(_)) => format!(
                "chmod 600 {file}; if somebody else may have read it, make a new one and new keys"
            ),
            FleetFault::File(FileFault::Owner(_)) => {
                format!("run this as the owner, or: chown $(id -u) {file}")
            }
            FleetFault::File(FileFault::Symlink | FileFault::NotFile) => {
                "name the file itself".into()
            }
            FleetFault::File(_) => format!("copy it again; run this as the owner of {file}"),
            FleetFault::Line(_) => format!(
                "the lines are `{VERSION}`, `key` with 64 hex digits, and `edge NUMBER ADDR:PORT` \
                 for each edge"
            ),
        }
    }
}

impl fmt::Display for FleetFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.display();
        match &self.fault {
            FleetFault::Line(line) => write!(f, "{file} does not describe a fleet: line {line}"),
            FleetFault::File(FileFault::Read(error)) => write!(f, "cannot read {file}: {error}"),
            FleetFault::File(FileFault::Write(error)) => write!(f, "cannot write {file}: {error}"),
            FleetFault::File(FileFault::Exists) => write!(f, "{file} exists already"),
            FleetFault::File(FileFault::Symlink) => write!(f, "{file} is a symbolic link"),
            FleetFault::File(FileFault::NotFile) => write!(f, "{file} is not a file"),
            FleetFault::File(FileFault::Owner(uid)) => {
                write!(f, "{file} belongs to another user (uid {uid})")
            }
            FleetFault::File(FileFault::Open(mode)) => {
                write!(f, "{file} is open to other users (mode {mode:04o})")
            }
            FleetFault::File(FileFault::TooLarge) => {
                write!(f, "{file} is larger than a fleet's file can be")
            }
            FleetFault::File(FileFault::NotText | FileFault::Text(_)) => {
                write!(f, "{file} is not text")
            }
        }
    }
}

impl std::error::Error for FleetFileError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> String {
        "0f".repeat(32)
    }

    #[test]
    fn a_fleet_survives_a_round_trip() {
        let mut fleet = Fleet::generate().unwrap();
        fleet.edges.insert(EdgeNumber::new(255).unwrap(), "[2001:db8::1]:4433".parse().unwrap());
        fleet.edges.insert(EdgeNumber::new(1).unwrap(), "10.0.0.1:4433".parse().unwrap());
        let again = Fleet::parse(&fleet.to_text()).unwrap();
        assert_eq!((again.edges, *again.key.0), (fleet.edges, *fleet.key.0));
    }

    #[test]
    fn errors_name_the_faulty_line() {
        let head = format!("headstart fleet 1\nkey {}\n", key());
        for (text, line) in [
            (String::new(), 1),
            ("headstart key ring 1\n".into(), 1),
            ("headstart fleet 1\n".into(), 1),
            (format!("headstart fleet 1\nkey {}f\n", key()), 2),
            (format!("{head}key {}\n", key()), 3),
            (format!("{head}edge 0 10.0.0.1:1\n"), 3),
            (format!("{head}edge 256 10.0.0.1:1\n"), 3),
            (format!("{head}edge 1 10.0.0.1:0\n"), 3),
            (format!("{head}edge 1 host:1\n"), 3),
            (format!("{head}edge 1 10.0.0.1:1 more\n"), 3),
            (format!("{head}edge 1 10.0.0.1:1\nedge 1 10.0.0.2:1\n"), 4),
            (format!("{head}\n# \nedge 1 10.0.0.1:1\nedge 2 10.0.0.1:1\n"), 6),
        ] {
            let fault = Fleet::parse(&text).unwrap_err();
            assert!(matches!(fault, FleetFault::Line(found) if found == line), "{text}: {fault:?}");
        }
    }

    #[test]
    fn purposes_have_distinct_keys() {
        let fleet = Fleet::parse(&format!("headstart fleet 1\nkey {}\n", key())).unwrap();
        let (seal, link) = (fleet.key.derive(SEAL).unwrap(), fleet.key.derive(LINK).unwrap());
        assert_ne!(*seal, *link);
        assert_ne!(*seal, *fleet.key.0);
        assert_eq!(format!("{:?}", fleet.key), "FleetKey(..)");
    }

    #[test]
    fn the_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet");
        let fleet = Fleet::generate().unwrap();
        fleet.create(&path).unwrap();
        assert_eq!(*Fleet::load(&path).unwrap().key.0, *fleet.key.0);
        let again = fleet.create(&path).unwrap_err();
        assert!(again.to_string().ends_with("exists already"), "{again}");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(&path, open).unwrap();
        let error = Fleet::load(&path).unwrap_err();
        assert!(error.to_string().ends_with("is open to other users (mode 0640)"), "{error}");
        assert!(error.hint().starts_with("chmod 600 "), "{}", error.hint());
    }
}
