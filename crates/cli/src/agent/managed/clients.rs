//! TLS settings by what programs ask for, and whom they may be used by.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_tls::{CertifiedKey, ClientConfig, ClientContext, ConfigError, Trust};
use hyper::StatusCode;
use openssl::sha::sha256;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::answer::Refusal;
use super::limits::{CLIENTS, ROOTS_MAX};
use super::request::{TlsAsk, Verify};
use crate::failure::Failure;
use crate::options::ClientCertificate;

/// The permissions that nobody but its owner may have on a certificate with its key.
const OTHERS: u32 = 0o077;

/// Makes TLS clients, and keeps those that were used last: reading the roots of a system takes some 20 ms.
///
/// A reload makes another one, which reads all files again.
pub(in crate::agent) struct Clients {
    certificates: HashMap<String, Certificate>,
    /// Those used last are at the end.
    made: Mutex<Vec<(Settings, Arc<ClientContext>)>>,
}

/// A certificate that programs of its owner may have shown.
struct Certificate {
    key: CertifiedKey,
    owner: u32,
}

/// What tells two clients apart.
#[derive(Clone, PartialEq, Eq)]
struct Settings {
    alpn: Vec<Vec<u8>>,
    trust: Trusted,
    certificate: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trusted {
    System,
    /// Those of a file with this hash.
    Roots([u8; 32]),
    Anyone,
}

impl Settings {
    fn of(ask: &TlsAsk, trust: Trusted) -> Self {
        Self { alpn: ask.alpn.clone(), trust, certificate: ask.certificate.clone() }
    }
}

impl Clients {
    /// With these certificates, and no clients yet.
    ///
    /// # Errors
    /// A file that cannot be used, or two certificates of one name.
    pub(in crate::agent) fn new(certificates: &[ClientCertificate]) -> Result<Self, Failure> {
        let mut all = HashMap::new();
        for ClientCertificate { name, file } in certificates {
            if all.insert(name.clone(), Certificate::load(file)?).is_some() {
                return Err(Failure::usage(format!("two client certificates called {name}"))
                    .hint("give each --client-certificate a name of its own"));
            }
        }
        Ok(Self { certificates: all, made: Mutex::default() })
    }

    /// What a program of `user` asks for, if it is there and depends on no file: most are, and wait for nobody
    /// whose disk is slow.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(super) fn ready(
        &self,
        ask: &TlsAsk,
        user: Option<u32>,
    ) -> Result<Option<Arc<ClientContext>>, Refusal> {
        let trust = match ask.verify {
            Verify::System => Trusted::System,
            Verify::Nobody => Trusted::Anyone,
            Verify::Roots(_) => return Ok(None),
        };
        if let Some(name) = &ask.certificate {
            self.certificate(name, user)?;
        }
        Ok(self.find(&Settings::of(ask, trust)))
    }

    /// What a program of `user` asks for. It may wait for a disk.
    ///
    /// # Errors
    /// What it may not have, or cannot be had.
    pub(super) fn client(
        &self,
        ask: &TlsAsk,
        user: Option<u32>,
    ) -> Result<Arc<ClientContext>, Refusal> {
        let certificate = ask.certificate.as_deref();
        let certificate = certificate.map(|name| self.certificate(name, user)).transpose()?;
        let (trust, trusted) = match &ask.verify {
            Verify::System => (Trust::System, Trusted::System),
            Verify::Nobody => (Trust::Anyone, Trusted::Anyone),
            Verify::Roots(path) => {
                let pem = roots(path, user)?;
                let hash = sha256(&pem);
                (Trust::Roots(pem), Trusted::Roots(hash))
            }
        };
        let settings = Settings::of(ask, trusted);
        if let Some(client) = self.find(&settings) {
            return Ok(client);
        }
        let config = ClientConfig {
            alpn: ask.alpn.clone(),
            certificate: certificate.map(|certificate| certificate.key.clone()),
            ..ClientConfig::new(trust)
        };
        let client = Arc::new(ClientContext::new(&config).map_err(|error| unmade(&error))?);
        self.keep(settings, &client);
        Ok(client)
    }

    /// Whether it is there is nobody's business who may not use it.
    fn certificate(&self, name: &str, user: Option<u32>) -> Result<&Certificate, Refusal> {
        let owned = |certificate: &&Certificate| Some(certificate.owner) == user;
        self.certificates.get(name).filter(owned).ok_or_else(|| {
            Refusal::new(
                StatusCode::FORBIDDEN,
                "certificate_not_allowed",
                "there is no client certificate of that name that this user may use",
                "give the agent --client-certificate NAME=FILE with a file of this user",
            )
        })
    }

    fn find(&self, settings: &Settings) -> Option<Arc<ClientContext>> {
        let mut made = self.lock();
        let at = made.iter().position(|(known, _)| known == settings)?;
        let found = made.remove(at);
        let client = Arc::clone(&found.1);
        made.push(found);
        Some(client)
    }

    /// If another thread has made the same meanwhile, both are as good.
    fn keep(&self, settings: Settings, client: &Arc<ClientContext>) {
        let mut made = self.lock();
        made.retain(|(known, _)| *known != settings);
        if made.len() >= CLIENTS {
            made.remove(0);
        }
        made.push((settings, Arc::clone(client)));
    }

    /// A list of clients cannot be left half changed.
    fn lock(&self) -> MutexGuard<'_, Vec<(Settings, Arc<ClientContext>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("made", &self.lock().len()).finish_non_exhaustive()
    }
}

impl Certificate {
    fn load(path: &Path) -> Result<Self, Failure> {
        let unreadable =
            |error: io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
        let file = open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.mode() & OTHERS != 0 {
            let mode = about.mode() & 0o777;
            let open = format!("others may use the key in {} (mode {mode:04o})", path.display());
            return Err(Failure::usage(open).hint(format!("chmod 600 {}", path.display())));
        }
        let pem = Zeroizing::new(read(&file).map_err(unreadable)?);
        let key = CertifiedKey::from_pem(&pem, &pem).map_err(|error| {
            Failure::usage(format!("cannot use {}: {error}", path.display())).hint(error.hint())
        })?;
        Ok(Self { key, owner: about.uid() })
    }
}

/// The PEM of roots, for a user who may read it.
///
/// The agent must not be a way around permissions: a stranger gets only what everybody may read, and no word
/// about the rest.
fn roots(path: &Path, user: Option<u32>) -> Result<Vec<u8>, Refusal> {
    let own = user == Some(rustix::process::geteuid().as_raw());
    let found = open(path).and_then(|file| {
        let everybodys = file.metadata()?.mode() & 0o004 != 0;
        if own || everybodys { read(&file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    });
    found.map_err(|error| {
        let why = if own { format!("cannot read the roots: {error}") } else { UNUSABLE.into() };
        unusable(why)
    })
}

const UNUSABLE: &str = "the file of roots cannot be used";

fn unusable(why: String) -> Refusal {
    let hint = "Headstart-Verify takes a PEM file that everybody may read";
    Refusal::new(StatusCode::BAD_REQUEST, "roots", why, hint)
}

fn unmade(error: &ConfigError) -> Refusal {
    match error {
        ConfigError::Roots(_) => unusable(UNUSABLE.into()),
        _ => Refusal::internal(format!("cannot make a TLS client: {error}")),
    }
}

/// Opens an ordinary file. Devices do things when they are opened, so it is looked at before; and if it has become
/// a pipe meanwhile, nobody waits for its other end.
fn open(path: &Path) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "no ordinary file");
    if !fs::metadata(path)?.is_file() {
        return Err(other());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(ROOTS_MAX + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= ROOTS_MAX => Ok(bytes),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 1 MiB")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::agent::inbound::Host;

    fn ask(verify: Verify, certificate: Option<&str>) -> TlsAsk {
        TlsAsk {
            server: Host::parse("a.example").unwrap(),
            alpn: Vec::new(),
            sharing: None,
            early_data: Vec::new(),
            verify,
            certificate: certificate.map(str::to_owned),
        }
    }

    fn me() -> Option<u32> {
        Some(rustix::process::geteuid().as_raw())
    }

    #[test]
    fn clients_are_made_once_and_the_last_used_are_kept() {
        let clients = Clients::new(&[]).unwrap();
        let of = |number: usize| {
            let alpn = vec![number.to_string().into_bytes()];
            clients.client(&TlsAsk { alpn, ..ask(Verify::Nobody, None) }, me()).unwrap()
        };
        let first = of(0);
        for number in 1..CLIENTS {
            of(number);
        }
        assert!(Arc::ptr_eq(&first, &of(0)), "at the limit");
        of(CLIENTS);
        assert!(Arc::ptr_eq(&first, &of(0)), "one over, but used meanwhile");
        assert_eq!(clients.lock().len(), CLIENTS);
    }

    #[test]
    fn what_is_no_file_of_roots_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&[]).unwrap();
        let refused = |path: &Path| {
            clients.client(&ask(Verify::Roots(path.to_owned()), None), me()).unwrap_err().name
        };
        let file = dir.path().join("roots");
        fs::write(&file, "no PEM").unwrap();
        for path in [&*file, dir.path(), Path::new("/dev/zero"), Path::new("/nonexistent")] {
            assert_eq!(refused(path), "roots", "{}", path.display());
        }
        fs::write(&file, vec![b'x'; usize::try_from(ROOTS_MAX).unwrap() + 1]).unwrap();
        assert_eq!(refused(&file), "roots");
    }

    #[test]
    fn a_stranger_is_not_told_why() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("roots");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let stranger = me().map(|me| me + 1);
        let hidden = roots(&file, stranger).unwrap_err();
        assert_eq!(hidden, roots(&dir.path().join("missing"), stranger).unwrap_err());
        assert_eq!(roots(&file, me()).unwrap(), b"x");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(roots(&file, stranger).unwrap(), b"x");
    }

    #[test]
    fn a_certificate_is_its_owners() {
        let clients = Clients::new(&[]).unwrap();
        let refused = clients.client(&ask(Verify::System, Some("work")), me()).unwrap_err();
        assert_eq!(refused.name, "certificate_not_allowed");
    }
}
