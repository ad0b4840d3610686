//! Files and directories that other users must have no say in: checked once they are open, so that
//! nothing can be exchanged between a check and its use.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::base::failure::Failure;

/// Mode bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit by which everybody may read. A group is somebody's choice: a service has one.
const EVERYBODY_READS: u32 = 0o004;
/// Mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;
const EVERYBODY_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Mode of directories that are made here.
const OWN: u32 = 0o700;

/// Reason why a file or directory is not used.
#[derive(Debug)]
pub enum FileFault {
    /// The system refuses.
    Io(io::Error),
    /// It belongs to this user, who is neither root nor the one this process runs as.
    Owner(u32),
    /// Others may write to it; its mode.
    Writable(u32),
    /// It holds a secret that others may read; its mode.
    Readable(u32),
    /// It is a directory in one where everybody may exchange it.
    Exchangeable,
}

impl FileFault {
    /// The failure of a command that needs what is at `path`.
    #[must_use]
    pub fn failure(&self, path: &Path) -> Failure {
        let path = path.display();
        let failure = Failure::usage(format!("cannot use {path}: {self}"));
        match self {
            Self::Io(error) => Failure::usage(format!("cannot read {path}: {error}")),
            Self::Owner(_) => failure.hint(format!("chown {} {path}", geteuid().as_raw())),
            Self::Writable(_) => failure.hint(format!("chmod go-w {path}")),
            Self::Readable(_) => failure.hint(format!("chmod 600 {path}")),
            Self::Exchangeable => failure.hint("name another place, in a directory of your own"),
        }
    }
}

impl std::fmt::Display for FileFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Owner(uid) => write!(f, "it belongs to another user (uid {uid})"),
            Self::Writable(mode) => write!(f, "others may write to it (mode {mode:04o})"),
            Self::Readable(mode) => {
                write!(f, "it holds a secret that others may read (mode {mode:04o})")
            }
            Self::Exchangeable => f.write_str("everybody may exchange it where it is"),
        }
    }
}

impl std::error::Error for FileFault {}

impl From<io::Error> for FileFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Opens a file that decides what this program does.
///
/// # Errors
/// Others than root and this user may write to it.
pub fn open_configuration(path: &Path) -> Result<File, FileFault> {
    let file = File::open(path)?;
    check_unwritten(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file that holds a secret.
///
/// # Errors
/// Others may write to it, or everybody may read it.
pub fn open_secret(path: &Path) -> Result<File, FileFault> {
    let file = open_configuration(path)?;
    check_unread(&file)?;
    Ok(file)
}

/// Checks a file that turned out to hold a secret.
///
/// # Errors
/// Everybody may read it.
pub fn check_unread(file: &File) -> Result<(), FileFault> {
    match mode(&file.metadata()?) {
        mode if mode & EVERYBODY_READS != 0 => Err(FileFault::Readable(mode)),
        _ => Ok(()),
    }
}

/// Checks that nobody but its owner, whoever that is, has any rights to a file.
///
/// # Errors
/// Somebody has.
pub fn check_private(file: &Metadata) -> Result<(), FileFault> {
    if file.mode() & OTHERS == 0 { Ok(()) } else { Err(FileFault::Readable(mode(file))) }
}

/// Makes a directory, and those above it, or takes one that this user made before: whatever is
/// written in it is not written elsewhere through somebody's link.
///
/// # Errors
/// It is a link, it belongs to another user, or others may write to it or exchange it.
pub fn make_own_directory(path: &Path) -> Result<(), FileFault> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    fs::create_dir_all(above)?;
    if fs::metadata(above)?.mode() & (EVERYBODY_WRITES | STICKY) == EVERYBODY_WRITES {
        return Err(FileFault::Exchangeable);
    }
    match DirBuilder::new().mode(OWN).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    open_own_directory(path)?;
    Ok(())
}

/// Opens a directory that is no link, and that nobody but this user can have filled.
///
/// # Errors
/// As [`make_own_directory`].
pub fn open_own_directory(path: &Path) -> Result<File, FileFault> {
    let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = directory.metadata()?;
    if found.uid() != geteuid().as_raw() {
        return Err(FileFault::Owner(found.uid()));
    }
    check_unwritten(&found)?;
    Ok(directory)
}

fn check_unwritten(file: &Metadata) -> Result<(), FileFault> {
    if ![0, geteuid().as_raw()].contains(&file.uid()) {
        return Err(FileFault::Owner(file.uid()));
    }
    // Terminals and pipes are no files that somebody has prepared.
    if file.mode() & OTHERS_WRITE != 0 && (file.is_file() || file.is_dir()) {
        return Err(FileFault::Writable(mode(file)));
    }
    Ok(())
}

fn mode(file: &Metadata) -> u32 {
    file.mode() & 0o7777
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// Somebody else, to whom only root can give files.
    const OTHER: u32 = 54321;

    fn file(path: &Path, mode: u32) {
        fs::write(path, "x").unwrap();
        set(path, mode);
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn words(result: Result<File, FileFault>) -> String {
        result.map_or_else(|fault| fault.to_string(), |_| "taken".into())
    }

    #[test]
    fn what_others_may_write_or_everybody_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (mode, configuration, secret) in [
            (0o600, "taken", "taken"),
            (0o640, "taken", "taken"),
            (0o644, "taken", "secret that others may read (mode 0644)"),
            (0o620, "others may write to it (mode 0620)", "others may write"),
            (0o666, "others may write to it (mode 0666)", "others may write"),
        ] {
            file(&path, mode);
            let found = words(open_configuration(&path));
            assert!(found.contains(configuration), "{mode:o}: {found}");
            let found = words(open_secret(&path));
            assert!(found.contains(secret), "{mode:o}: {found}");
        }
        if geteuid().is_root() {
            set(&path, 0o600);
            chown(&path, Some(OTHER), None).unwrap();
            let found = words(open_configuration(&path));
            assert_eq!(found, "it belongs to another user (uid 54321)");
        }
    }

    #[test]
    fn directories_are_made_and_no_links_followed() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("a/own");
        make_own_directory(&own).unwrap();
        assert_eq!(mode(&fs::metadata(&own).unwrap()), OWN);
        make_own_directory(&own).unwrap();
        set(&own, 0o770);
        assert!(matches!(make_own_directory(&own), Err(FileFault::Writable(0o770))));
        let link = dir.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(matches!(make_own_directory(&link), Err(FileFault::Io(_))));
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        set(&open, 0o777);
        assert!(matches!(make_own_directory(&open.join("own")), Err(FileFault::Exchangeable)));
        set(&open, 0o1777);
        make_own_directory(&open.join("own")).unwrap();
        if geteuid().is_root() {
            set(&own, 0o700);
            chown(&own, Some(OTHER), None).unwrap();
            assert!(matches!(make_own_directory(&own), Err(FileFault::Owner(OTHER))));
        }
    }
}
