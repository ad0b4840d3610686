use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use super::{KeyRing, TextError};

/// Maximum size of a file in bytes. A ring takes about 320; the rest is for comments.
pub const FILE_MAX: usize = 4096;

/// Permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

impl KeyRing {
    /// Reads a ring from `path`.
    ///
    /// # Errors
    /// A file that others may read or write, or that another user owns: they could have read or
    /// changed it. A symbolic link, whose target others may change. Anything that is not a key
    /// ring.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        open(path).and_then(|file| ring(&file)).map_err(|fault| fault.at(path))
    }

    /// Replaces the file at `path` with the ring: a reader sees the old ring or the new one. For a
    /// ring derived from that one, use [`KeyFile`].
    ///
    /// Only the owner, who is the caller, can read and write the file. If `path` is a symbolic
    /// link, the link is replaced.
    ///
    /// # Errors
    /// The directory is missing, full or not writable. The old file then stays.
    pub fn store(&self, path: &Path) -> Result<(), KeyFileError> {
        store_private(path, self.to_text().as_bytes())
    }

    /// Writes the ring to `path`, where no file may exist yet.
    ///
    /// # Errors
    /// [`FileFault::Exists`], and the errors of [`store`](Self::store).
    pub fn create(&self, path: &Path) -> Result<(), KeyFileError> {
        create(path, self.to_text().as_bytes()).map_err(|fault| fault.at(path))
    }
}

/// Replaces the file at `path` with `bytes`, readable and writable only by its owner: a reader sees
/// the old bytes or the new ones. If `path` is a symbolic link, the link is replaced.
///
/// # Errors
/// The directory is missing, full or not writable. The old file then stays.
pub fn store_private(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let stored = write(path, bytes)
        .and_then(|file| file.persist(path).map_err(|error| FileFault::Write(error.error)));
    stored.map(|_| sync(path)).map_err(|fault| fault.at(path))
}

/// Writes `bytes` as [`store_private`] does, where no file may exist yet.
pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<(), FileFault> {
    let file = write(path, bytes)?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => FileFault::Exists,
        _ => FileFault::Write(error.error),
    })?;
    sync(path);
    Ok(())
}

/// A key file about to be changed: other writers wait until this is dropped.
///
/// Without the lock, one of two simultaneous rotations would be lost. Readers do not wait.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    ring: KeyRing,
    /// The locked file. Only the owner can open it, so nobody else can block the owner.
    _locked: File,
}

impl KeyFile {
    /// Locks `path` and reads the ring, once no other process is changing it.
    ///
    /// # Errors
    /// The errors of [`KeyRing::load`]; a file system without locks.
    pub fn lock(path: &Path) -> Result<Self, KeyFileError> {
        let locked = lock(path).and_then(|file| Ok((ring(&file)?, file)));
        let (ring, file) = locked.map_err(|fault| fault.at(path))?;
        Ok(Self { path: path.to_owned(), ring, _locked: file })
    }

    /// Returns the ring in the file.
    #[must_use]
    pub const fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Replaces the ring, as [`KeyRing::store`] does.
    ///
    /// # Errors
    /// The errors of [`KeyRing::store`].
    pub fn replace(self, ring: &KeyRing) -> Result<(), KeyFileError> {
        ring.store(&self.path)
    }
}

fn lock(path: &Path) -> Result<File, FileFault> {
    loop {
        let file = open(path)?;
        file.lock().map_err(FileFault::Read)?;
        // The previous holder of the lock has probably replaced the file, and this is a lock of the
        // old one. Each iteration means that another process made progress.
        let there = fs::symlink_metadata(path).map_err(FileFault::Read)?;
        let ours = file.metadata().map_err(FileFault::Read)?;
        if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) {
            return Ok(file);
        }
    }
}

fn open(path: &Path) -> Result<File, FileFault> {
    // Without NONBLOCK, opening a pipe waits for its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP => FileFault::Symlink,
        error => FileFault::Read(error.into()),
    })?;
    let file = File::from(file);
    check(&file.metadata().map_err(FileFault::Read)?)?;
    Ok(file)
}

fn ring(file: &File) -> Result<KeyRing, FileFault> {
    let bytes = content(file, FILE_MAX)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| FileFault::NotText)?;
    KeyRing::parse(text).map_err(FileFault::Text)
}

/// Reads a private file of at most `max` bytes.
pub(super) fn read(path: &Path, max: usize) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    content(&open(path)?, max)
}

fn content(file: &File, max: usize) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    // It has room for more than may be read: growing would leave a copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * max));
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(FileFault::Read)?;
    if bytes.len() > max { Err(FileFault::TooLarge) } else { Ok(bytes) }
}

/// Checks the open file, so that it cannot be replaced between check and use (F-KEYS-2).
fn check(file: &Metadata) -> Result<(), FileFault> {
    if !file.is_file() {
        return Err(FileFault::NotFile);
    }
    if file.uid() != rustix::process::geteuid().as_raw() {
        return Err(FileFault::Owner(file.uid()));
    }
    if file.mode() & OTHERS != 0 {
        return Err(FileFault::Open(file.mode() & 0o7777));
    }
    Ok(())
}

/// Writes a temporary file beside `path`, which is deleted unless it is renamed.
fn write(path: &Path, bytes: &[u8]) -> Result<NamedTempFile, FileFault> {
    // The tempfile crate creates files that only their owner can read and write.
    let made = tempfile::Builder::new().prefix(".headstart-keys-").tempfile_in(dir(path));
    let mut file = made.map_err(FileFault::Write)?;
    file.write_all(bytes).map_err(FileFault::Write)?;
    file.as_file().sync_all().map_err(FileFault::Write)?;
    Ok(file)
}

/// Syncs the rename to disk. Some file systems cannot; then a power failure may bring the old ring
/// back.
fn sync(path: &Path) {
    let _ = File::open(dir(path)).and_then(|dir| dir.sync_all());
}

pub(super) fn dir(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A key file that could not be used.
#[derive(Debug)]
pub struct KeyFileError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub fault: FileFault,
}

/// A fault of a key file.
#[derive(Debug)]
pub enum FileFault {
    /// It cannot be opened or read.
    Read(io::Error),
    /// It cannot be written.
    Write(io::Error),
    /// The file exists already.
    Exists,
    /// It is a symbolic link.
    Symlink,
    /// It is a directory, a pipe or a device.
    NotFile,
    /// The user of this number owns it, not the one who runs this.
    Owner(u32),
    /// Others have permissions on it; holds its mode.
    Open(u32),
    /// It is larger than [`FILE_MAX`].
    TooLarge,
    /// It is not UTF-8.
    NotText,
    /// It is not a key ring.
    Text(TextError),
}

impl FileFault {
    fn at(self, path: &Path) -> KeyFileError {
        KeyFileError { path: path.to_owned(), fault: self }
    }
}

impl KeyFileError {
    /// Returns advice for the user, in one line.
    #[must_use]
    pub fn hint(&self) -> String {
        let file = self.path.display();
        match &self.fault {
            FileFault::Read(error) if error.kind() == io::ErrorKind::NotFound => {
                format!("`headstart keys new {file}` makes one")
            }
            FileFault::Write(error) if error.kind() == io::ErrorKind::NotFound => {
                format!("make its directory first: mkdir -p -m 700 {}", dir(&self.path).display())
            }
            FileFault::Read(_) => format!("run this as the owner of {file}"),
            FileFault::Write(_) => {
                format!("{} must be writable and have room", dir(&self.path).display())
            }
            FileFault::Exists => format!(
                "`headstart keys rotate {file}` renews its keys; remove it first to start over, \
                 which invalidates all tickets and cookies"
            ),
            FileFault::Symlink => "name the file itself".into(),
            FileFault::NotFile => "name a file that `headstart keys new` made".into(),
            FileFault::Owner(_) => format!("run this as the owner, or: chown $(id -u) {file}"),
            FileFault::Open(_) => format!(
                "chmod 600 {file}; if somebody else may have read it, make new keys: \
                 rm {file} && headstart keys new {file}"
            ),
            FileFault::TooLarge | FileFault::NotText | FileFault::Text(_) => {
                format!("copy it again, or make a new one: rm {file} && headstart keys new {file}")
            }
        }
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.display();
        match &self.fault {
            FileFault::Read(error) => write!(f, "cannot read the keys in {file}: {error}"),
            FileFault::Write(error) => write!(f, "cannot write the keys to {file}: {error}"),
            FileFault::Exists => write!(f, "{file} exists already"),
            FileFault::Symlink => write!(f, "{file} is a symbolic link"),
            FileFault::NotFile => write!(f, "{file} is not a file"),
            FileFault::Owner(uid) => write!(f, "{file} belongs to another user (uid {uid})"),
            FileFault::Open(mode) => write!(f, "{file} is open to other users (mode {mode:04o})"),
            FileFault::TooLarge => write!(f, "{file} is larger than a key ring can be"),
            FileFault::NotText => write!(f, "{file} is not text"),
            FileFault::Text(error) => write!(f, "{file} is not a key ring: {error}"),
        }
    }
}

impl std::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            FileFault::Text(error) => Some(error),
            FileFault::Read(error) | FileFault::Write(error) => Some(error),
            _ => None,
        }
    }
}
