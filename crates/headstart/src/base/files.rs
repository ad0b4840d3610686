//! Files and directories that other users must have no say in: checked once they are open, so that
//! nothing can be replaced between a check and its use.

use std::env;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::base::failure::Failure;

/// Mode bit by which the group may write.
const GROUP_WRITES: u32 = 0o020;
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
    /// It is a directory in one where others may exchange it.
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
            Self::Exchangeable => f.write_str("others may exchange it where it is"),
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
    let file = open_unwritten(path)?;
    check_owner(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file whose owner has its contents in any case, such as a private key.
///
/// # Errors
/// Others than its owner may write to it.
pub fn open_unwritten(path: &Path) -> Result<File, FileFault> {
    let file = File::open(path)?;
    check_rights(&file.metadata()?)?;
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

/// Checks that a file's owner alone has rights to it.
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
    if let Err(error) = fs::metadata(above) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error.into());
        }
        make_own_directory(above)?;
    }
    if is_exchangeable(&fs::metadata(above)?) {
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
    // Without the slash at its end, behind which a link would be followed.
    let path: PathBuf = path.components().collect();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = directory.metadata()?;
    if found.uid() != geteuid().as_raw() {
        return Err(FileFault::Owner(found.uid()));
    }
    check_rights(&found)?;
    Ok(directory)
}

/// Checks that a file belongs to root or this user.
///
/// # Errors
/// It is another user's.
pub fn check_owner(file: &Metadata) -> Result<(), FileFault> {
    let is_own = [0, geteuid().as_raw()].contains(&file.uid());
    if is_own { Ok(()) } else { Err(FileFault::Owner(file.uid())) }
}

fn check_rights(file: &Metadata) -> Result<(), FileFault> {
    // Terminals and pipes are no files that somebody has prepared.
    if others_write(file) && (file.is_file() || file.is_dir()) {
        return Err(FileFault::Writable(mode(file)));
    }
    Ok(())
}

/// Returns true if others than the owner may write. A group with the owner's number is the owner's
/// alone, by the convention of systems whose umask is 002; root's has members on some.
fn others_write(file: &Metadata) -> bool {
    let is_private_group = file.gid() == file.uid() && file.uid() != 0;
    file.mode() & EVERYBODY_WRITES != 0 || (file.mode() & GROUP_WRITES != 0 && !is_private_group)
}

/// Returns true if others may exchange what root or this user has in a directory.
fn is_exchangeable(directory: &Metadata) -> bool {
    let (owner, own) = (directory.uid(), geteuid());
    let is_trusted = owner == 0
        || owner == own.as_raw()
        // Whoever may have root do anything; sudo(8) says who.
        || (own.is_root() && Some(owner) == sudo_user())
        // Root has no number in the user namespaces of others (user_namespaces(7)).
        || fs::metadata("/").is_ok_and(|top| top.uid() == owner);
    !is_trusted || (others_write(directory) && directory.mode() & STICKY == 0)
}

fn sudo_user() -> Option<u32> {
    env::var("SUDO_UID").ok()?.parse().ok()
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

    /// Returns true for files of a user whose group is its own: umask 002 is common there.
    fn has_private_group(path: &Path) -> bool {
        let file = fs::metadata(path).unwrap();
        file.gid() == file.uid() && file.uid() != 0
    }

    fn words(result: Result<File, FileFault>) -> String {
        result.map_or_else(|fault| fault.to_string(), |_| "taken".into())
    }

    #[test]
    fn files_writable_by_others_or_readable_by_all_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let is_shared = !has_private_group(dir.path());
        for (mode, configuration, secret) in [
            (0o600, "taken", "taken"),
            (0o640, "taken", "taken"),
            (0o644, "taken", "secret that others may read (mode 0644)"),
            (0o666, "others may write to it (mode 0666)", "others may write"),
        ] {
            file(&path, mode);
            let found = words(open_configuration(&path));
            assert!(found.contains(configuration), "{mode:o}: {found}");
            let found = words(open_secret(&path));
            assert!(found.contains(secret), "{mode:o}: {found}");
        }
        set(&path, 0o660);
        assert_eq!(open_configuration(&path).is_err(), is_shared, "umask 002");
        assert_eq!(open_secret(&path).is_err(), is_shared, "umask 002");
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
        set(&own, 0o777);
        assert!(matches!(make_own_directory(&own), Err(FileFault::Writable(0o777))));
        let link = dir.path().join("link");
        symlink(&own, &link).unwrap();
        for end in ["", "/", "/."] {
            let link = format!("{}{end}", link.display());
            assert!(
                matches!(make_own_directory(Path::new(&link)), Err(FileFault::Io(_))),
                "{link}"
            );
        }
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        set(&open, 0o777);
        assert!(matches!(make_own_directory(&open.join("own")), Err(FileFault::Exchangeable)));
        set(&open, 0o775);
        let made = make_own_directory(&open.join("own"));
        assert_eq!(made.is_err(), !has_private_group(&open), "{made:?}");
        set(&open, 0o1777);
        make_own_directory(&open.join("own")).unwrap();
        if geteuid().is_root() {
            set(&own, 0o700);
            chown(&own, Some(OTHER), None).unwrap();
            assert!(matches!(make_own_directory(&own), Err(FileFault::Owner(OTHER))));
        }
    }

    /// A directory's owner can replace its files, whatever its mode.
    #[test]
    fn no_directory_is_made_in_that_of_another_user() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can be another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        fs::create_dir(&above).unwrap();
        for mode in [0o755, 0o1777] {
            set(&above, mode);
            chown(&above, Some(OTHER), None).unwrap();
            let found = make_own_directory(&above.join("own"));
            assert!(matches!(found, Err(FileFault::Exchangeable)), "{found:?}");
            chown(&above, Some(0), None).unwrap();
        }
        // With a group that is its own, umask 002 is no fault.
        fs::create_dir(above.join("of")).unwrap();
        let of_other = above.join("of");
        set(&of_other, 0o775);
        chown(&of_other, Some(OTHER), Some(OTHER)).unwrap();
        assert!(!others_write(&fs::metadata(&of_other).unwrap()));
        set(&of_other, 0o777);
        assert!(others_write(&fs::metadata(&of_other).unwrap()));
    }
}
