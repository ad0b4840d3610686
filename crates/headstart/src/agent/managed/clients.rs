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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use super::answer::Refusal;
use super::limits::{ROOTS_MAX, ROOTS_OF_USER};
use super::request::{TlsAsk, Verify};
use crate::agent::managed::options::ClientCertificate;
use crate::base::failure::Failure;
use crate::base::files;

/// Makes TLS clients, and keeps them: reading the roots of a system takes some 20 ms.
///
/// Those of roots that programs bring are bounded by user, and one that is in use is never dropped,
/// so that the bound is one of memory. All others are as many as the agent was configured with. A
/// reload makes another one of this, which reads all files again.
pub(in crate::agent) struct Clients {
    certificates: HashMap<String, Certificate>,
    /// Contexts in order of use, the last used at the end.
    made: Mutex<Vec<(Settings, Arc<ClientContext>)>>,
    /// Files are read one after the other for each user: a slow disk keeps nobody else waiting, and
    /// few threads.
    turns: Mutex<HashMap<Option<u32>, Arc<Semaphore>>>,
}

/// A certificate that programs of its owner may have shown.
struct Certificate {
    key: CertifiedKey,
    owner: u32,
}

/// Settings that tell two clients apart. Application protocols are a connection's own.
#[derive(Clone, PartialEq, Eq)]
struct Settings {
    trust: Trusted,
    certificate: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trusted {
    System,
    Anyone,
    /// The roots of a file with this hash, which this user has brought.
    Roots([u8; 32], Option<u32>),
}

impl Settings {
    /// Returns true if they are roots that `user` has brought.
    fn is_brought_by(&self, user: Option<u32>) -> bool {
        matches!(self.trust, Trusted::Roots(_, owner) if owner == user)
    }
}

impl Clients {
    /// Starts with these certificates, and no clients yet.
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
        Ok(Self { certificates: all, made: Mutex::default(), turns: Mutex::default() })
    }

    /// Returns what a program of `user` asks for, if it is there and depends on no file: most are,
    /// and wait for nobody whose disk is slow.
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
        let settings = Settings { trust, certificate: ask.certificate.clone() };
        Ok(find(&mut lock(&self.made), &settings))
    }

    /// The turn of a program of `user` to have files read, once it comes; to be held by who reads
    /// them.
    pub(super) async fn turn(&self, user: Option<u32>) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut all = lock(&self.turns);
            // Users that wait for nothing need no permit.
            all.retain(|_, turns| Arc::strong_count(turns) > 1);
            Arc::clone(all.entry(user).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        turns.acquire_owned().await.ok()
    }

    /// Returns the TLS client that a program of `user` asks for. May block on a disk.
    ///
    /// # Errors
    /// The program may not have it, or it cannot be made.
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
                (Trust::Roots(pem), Trusted::Roots(hash, user))
            }
        };
        let settings = Settings { trust: trusted, certificate: ask.certificate.clone() };
        if let Some(client) = find(&mut lock(&self.made), &settings) {
            return Ok(client);
        }
        let config = ClientConfig {
            certificate: certificate.map(|certificate| certificate.key.clone()),
            ..ClientConfig::new(trust)
        };
        let client = ClientContext::new(&config).map_err(|error| unmade(&error))?;
        self.keep(settings, client, user).ok_or_else(too_many)
    }

    /// Looks a certificate up. One that `user` may not use is treated as missing.
    fn certificate(&self, name: &str, user: Option<u32>) -> Result<&Certificate, Refusal> {
        self.certificates
            .get(name)
            .filter(|certificate: &&Certificate| Some(certificate.owner) == user)
            .ok_or_else(|| {
                Refusal::new(
                    StatusCode::FORBIDDEN,
                    "certificate_not_allowed",
                    "there is no client certificate of that name that this user may use",
                    "give the agent --client-certificate NAME=FILE with a file of this user",
                )
            })
    }

    /// Keeps what was made for `user`; none if as many are in use as a user may have. If another
    /// thread has made the same meanwhile, that is the one.
    fn keep(
        &self,
        settings: Settings,
        client: ClientContext,
        user: Option<u32>,
    ) -> Option<Arc<ClientContext>> {
        let mut made = lock(&self.made);
        if let Some(found) = find(&mut made, &settings) {
            return Some(found);
        }
        if settings.is_brought_by(user)
            && made.iter().filter(|(known, _): &&(Settings, _)| known.is_brought_by(user)).count()
                >= ROOTS_OF_USER
        {
            let idle =
                made.iter().position(|(known, client): &(Settings, Arc<ClientContext>)| {
                    known.is_brought_by(user) && Arc::strong_count(client) == 1
                })?;
            made.remove(idle);
        }
        let client = Arc::new(client);
        made.push((settings, Arc::clone(&client)));
        Some(client)
    }
}

/// The client with these settings, which is used with this.
fn find(
    made: &mut Vec<(Settings, Arc<ClientContext>)>,
    settings: &Settings,
) -> Option<Arc<ClientContext>> {
    let at = made.iter().position(|(known, _)| known == settings)?;
    let found = made.remove(at);
    let client = Arc::clone(&found.1);
    made.push(found);
    Some(client)
}

/// Neither a list nor a table can be left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("made", &lock(&self.made).len()).finish_non_exhaustive()
    }
}

impl Certificate {
    fn load(path: &Path) -> Result<Self, Failure> {
        let unreadable =
            |error: io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
        let file = open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        files::check_private(&about).map_err(|fault| fault.failure(path))?;
        let pem = Zeroizing::new(read(&file).map_err(unreadable)?);
        let key = CertifiedKey::from_pem(&pem, &pem).map_err(|error| {
            Failure::usage(format!("cannot use {}: {error}", path.display())).hint(error.hint())
        })?;
        Ok(Self { key, owner: about.uid() })
    }
}

/// The PEM of roots, for a user who may read it.
///
/// The agent must not be a way around permissions: a stranger gets only what everybody may read,
/// and no word about the rest.
fn roots(path: &Path, user: Option<u32>) -> Result<Vec<u8>, Refusal> {
    let own = user == Some(rustix::process::geteuid().as_raw());
    let found =
        if own { open(path).and_then(|file| read(&file)) } else { read_for_everybody(path) };
    found.map_err(|error| {
        let why = if own { format!("cannot read the roots: {error}") } else { UNUSABLE.into() };
        unusable(why)
    })
}

/// Reads a file that everybody may read, in directories that everybody may pass.
fn read_for_everybody(path: &Path) -> io::Result<Vec<u8>> {
    let path = fs::canonicalize(path)?;
    for directory in path.ancestors().skip(1) {
        check_mode(&fs::metadata(directory)?, 0o001)?;
    }
    let file = open(&path)?;
    check_mode(&file.metadata()?, 0o004)?;
    read(&file)
}

fn check_mode(about: &fs::Metadata, wanted: u32) -> io::Result<()> {
    match about.mode() & wanted {
        0 => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(()),
    }
}

const UNUSABLE: &str = "the file of roots cannot be used";

fn unusable(why: String) -> Refusal {
    let hint = "Headstart-Verify takes a PEM file that everybody may read";
    Refusal::new(StatusCode::BAD_REQUEST, "roots", why, hint)
}

fn too_many() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "overloaded",
        "this user has connections with too many different files of roots",
        "close some, or have fewer files",
    )
}

fn unmade(error: &ConfigError) -> Refusal {
    match error {
        ConfigError::Roots(_) => unusable(UNUSABLE.into()),
        _ => Refusal::internal(format!("cannot make a TLS client: {error}")),
    }
}

/// Opens an ordinary file. Devices do things when they are opened, so it is looked at before; and
/// if it has become a pipe meanwhile, nobody waits for its other end.
fn open(path: &Path) -> io::Result<File> {
    check_ordinary(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check_ordinary(&file.metadata()?)?;
    Ok(file)
}

fn check_ordinary(about: &fs::Metadata) -> io::Result<()> {
    match about.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "no ordinary file")),
    }
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().min(ROOTS_MAX);
    // Of its length at once, and a little to find the end with: no copy of a key is left behind by
    // growing.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 64);
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

    /// A file of roots, each of its own.
    fn roots_file(dir: &Path, name: &str) -> Verify {
        let file = dir.join(name);
        fs::write(&file, headstart_testkit::self_signed(&[name], 0..60).chain).unwrap();
        Verify::Roots(file)
    }

    #[test]
    fn clients_are_made_once() {
        let clients = Clients::new(&[]).unwrap();
        assert!(clients.ready(&ask(Verify::Nobody, None), me()).unwrap().is_none());
        let [first, second] = [("h2", me()), ("http/1.1", None)].map(|(alpn, user)| {
            let alpn = vec![alpn.into()];
            clients.client(&TlsAsk { alpn, ..ask(Verify::Nobody, None) }, user).unwrap()
        });
        assert!(Arc::ptr_eq(&first, &second), "protocols are a connection's own");
        let ready = clients.ready(&ask(Verify::Nobody, None), me()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &ready));
    }

    #[test]
    fn roots_of_a_user_at_the_limit_and_one_over() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&[]).unwrap();
        let asks: Vec<_> = (0..=ROOTS_OF_USER)
            .map(|at| ask(roots_file(dir.path(), &at.to_string()), None))
            .collect();
        let (last, first) = asks.split_last().unwrap();
        let used = first.iter().map(|ask| clients.client(ask, me()).unwrap());
        let mut used: Vec<_> = used.collect();
        assert_eq!(clients.client(last, me()).unwrap_err().name, "overloaded");
        let again = clients.client(&asks[3], me()).unwrap();
        assert!(Arc::ptr_eq(&used[3], &again), "what is there can be used again");
        drop((again, used.remove(3)));
        clients.client(last, me()).unwrap();
        assert_eq!(lock(&clients.made).len(), ROOTS_OF_USER, "the idle one gave way");
        clients.client(&asks[3], me()).unwrap();
        assert_eq!(lock(&clients.made).len(), ROOTS_OF_USER);
    }

    #[tokio::test]
    async fn files_are_read_one_after_the_other_for_each_user() {
        let clients = Clients::new(&[]).unwrap();
        let turn = clients.turn(Some(1)).await.unwrap();
        assert!(clients.turn(Some(2)).await.is_some(), "others have their own");
        let next = clients.turn(Some(1));
        let mut next = std::pin::pin!(next);
        tokio::select! {
            biased;
            _ = &mut next => panic!("two at a time"),
            () = tokio::task::yield_now() => {}
        }
        drop(turn);
        assert!(next.await.is_some());
        let _turn = clients.turn(Some(3)).await.unwrap();
        assert_eq!(lock(&clients.turns).len(), 1, "nothing is left of who is gone");
    }

    #[test]
    fn what_is_no_file_of_roots_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let clients = Clients::new(&[]).unwrap();
        let [file, long] = ["roots", "long"].map(|name| dir.path().join(name));
        fs::write(&file, "no PEM").unwrap();
        fs::write(&long, vec![b'x'; usize::try_from(ROOTS_MAX).unwrap() + 1]).unwrap();
        let others = [Path::new("/dev/zero"), Path::new("/nonexistent")];
        for path in [&*file, &*long, dir.path()].into_iter().chain(others) {
            let refused = clients.client(&ask(Verify::Roots(path.to_owned()), None), me());
            assert_eq!(refused.unwrap_err().name, "roots", "{}", path.display());
        }
    }

    #[test]
    fn a_stranger_is_not_told_why() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let file = dir.path().join("roots");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let stranger = me().map(|me| me + 1);
        let hidden = roots(&file, stranger).unwrap_err();
        assert_eq!(hidden, roots(&dir.path().join("missing"), stranger).unwrap_err());
        assert_eq!(roots(&file, me()).unwrap(), b"x");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(roots(&file, stranger).unwrap_err(), hidden, "in a directory of its owner");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(roots(&file, stranger).unwrap(), b"x");
    }

    #[test]
    fn a_certificate_is_its_owners() {
        let clients = Clients::new(&[]).unwrap();
        let refused = clients.client(&ask(Verify::System, Some("work")), me()).unwrap_err();
        assert_eq!(refused.name, "certificate_not_allowed");
    }
}
