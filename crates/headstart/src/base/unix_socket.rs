//! Unix sockets as files: nobody else's is taken over, and they go with the process.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, chmodat, chownat, renameat, statat};
use socket2::{Domain, SockAddr, Socket as RawSocket, Type};
use tokio::net::UnixListener;

use crate::base::failure::Failure;
use crate::base::files;

/// Connections the kernel may hold before they are accepted; capped by net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Name of the socket while it is made.
const FRESH: &str = "socket";

/// Whom a socket is for, and of which kind it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketKind {
    /// Streams or sequenced packets.
    pub(crate) kind: Type,
    /// Permission bits of the file.
    pub(crate) mode: u32,
    /// Group of the file.
    pub(crate) group: Option<u32>,
    /// Advice where another process listens.
    pub(crate) in_use: &'static str,
}

/// The file of a socket, and the lock that keeps other processes from it; both go with this.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: if somebody has put another file in its place, that stays.
    id: (u64, u64),
    _lock: File,
}

impl SocketFile {
    /// Listens at `path`, for the users that mode and group allow to write.
    ///
    /// # Errors
    /// Another process listens there already, or the file system does not allow it.
    pub(crate) fn listen(path: &Path, kind: SocketKind) -> Result<(UnixListener, Self), Failure> {
        let lock = lock(path, kind.in_use)?;
        make_way(path, kind.in_use)?;
        let (listener, id) = listen(path, kind).map_err(|error| unusable(path, &error))?;
        Ok((listener, Self { path: path.to_owned(), id, _lock: lock }))
    }

    /// Takes the file of a listener that another process has given up; gives it this mode and
    /// group.
    ///
    /// # Errors
    /// The file is missing, it is not a socket, or another process has it.
    pub(crate) fn adopt(path: &Path, kind: SocketKind) -> Result<Self, Failure> {
        let lock = lock(path, kind.in_use)?;
        let id = permit(path, kind).map_err(|error| unusable(path, &error))?;
        Ok(Self { path: path.to_owned(), id, _lock: lock })
    }

    /// Leaves the file to the process that listens on its socket from now on.
    pub(crate) fn leave(mut self) {
        self.id = (0, 0);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.id) {
            // Nobody answers there any more, even if it cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Two processes that start at one time must not both find that nobody is there.
fn lock(path: &Path, advice: &str) -> Result<File, Failure> {
    let path_of_lock = beside(path, ".lock");
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false).mode(0o600);
    // In a directory of others, do not create the target of a link.
    // Nor wait for the reader of a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = open.custom_flags(flags).open(&path_of_lock);
    let file = file.map_err(|error| unusable(path, &error))?;
    let found = file.metadata().map_err(|error| unusable(path, &error))?;
    files::check_owner(&found).map_err(|fault| fault.failure(&path_of_lock))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(in_use(path, advice)),
        Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
    }
}

/// Removes the socket of a dead process. What is no socket is somebody's file.
fn make_way(path: &Path, advice: &str) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(path, &error)),
        Ok(file) if !file.file_type().is_socket() => {
            Err(Failure::usage(format!("{} is there, and is no socket", path.display()))
                .hint("give it another path, or remove the file"))
        }
        Ok(_) if is_alive(path) => Err(in_use(path, advice)),
        Ok(_) => Ok(()),
    }
}

/// Returns true if somebody listens: any error but a refusal may come from a busy listener.
fn is_alive(path: &Path) -> bool {
    match connect(path) {
        Ok(()) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        }
    }
}

fn connect(path: &Path) -> io::Result<()> {
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

/// Makes the socket in a directory that nobody else can enter, so that nobody can connect before
/// mode and group are right, or have them given to another file; then the path leads to one socket
/// or the other at all times.
fn listen(path: &Path, kind: SocketKind) -> io::Result<(UnixListener, (u64, u64))> {
    let SocketKind { kind, mode, group, .. } = kind;
    // Clients need a path that is short enough.
    SockAddr::unix(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let private = tempfile::Builder::new()
        .prefix(".headstart-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent.unwrap_or(Path::new(".")))?;
    let directory = files::open_own_directory(private.path()).map_err(io::Error::other)?;
    let socket = RawSocket::new(Domain::UNIX, kind, None)?;
    socket.set_nonblocking(true)?;
    // By the directory that is open, whatever its path leads to by now.
    let inside = format!("/proc/self/fd/{}/{FRESH}", directory.as_raw_fd());
    socket.bind(&SockAddr::unix(inside)?)?;
    // The group first: its rights must not be another one's for a moment.
    give(&directory, FRESH, group, AtFlags::SYMLINK_NOFOLLOW)?;
    chmodat(&directory, FRESH, Mode::from_raw_mode(mode), AtFlags::empty())?;
    let found = statat(&directory, FRESH, AtFlags::SYMLINK_NOFOLLOW)?;
    socket.listen(BACKLOG)?;
    renameat(&directory, FRESH, CWD, path)?;
    Ok((UnixListener::from_std(socket.into())?, (found.st_dev, found.st_ino)))
}

/// Gives mode and group to the socket at `path`, and to nothing that takes its place meanwhile;
/// returns its device and inode.
fn permit(path: &Path, kind: SocketKind) -> io::Result<(u64, u64)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.file_type().is_socket() {
        return Err(io::Error::other("it is no socket"));
    }
    let inside = format!("/proc/self/fd/{}", file.as_raw_fd());
    let set = |mode| fs::set_permissions(&inside, Permissions::from_mode(mode));
    // The old group must not have the new one's rights for a moment, nor the other way round.
    set(found.mode() & kind.mode)?;
    give(&file, "", kind.group, AtFlags::EMPTY_PATH)?;
    set(kind.mode)?;
    Ok((found.dev(), found.ino()))
}

/// Gives a socket to a group, if to any: the edge may change no owner (packaging/systemd).
fn give(file: &File, name: &str, group: Option<u32>, flags: AtFlags) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    Ok(chownat(file, name, None, Some(Gid::from_raw(group)), flags)?)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn in_use(path: &Path, advice: &str) -> Failure {
    Failure::usage(format!("another program listens on {}", path.display())).hint(advice)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::usage(format!("cannot listen on {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound => failure.hint("make its directory first"),
        io::ErrorKind::PermissionDenied => failure
            .hint("a directory of your own is in $XDG_RUNTIME_DIR; a group has to be one of yours"),
        io::ErrorKind::InvalidInput => failure.hint("paths of sockets have at most 107 bytes"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::net::UnixStream;

    use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
    use rustix::fs::mkfifoat;

    use super::*;

    const KIND: SocketKind =
        SocketKind { kind: Type::STREAM, mode: 0o600, group: None, in_use: "stop it" };

    fn bind(path: &Path) -> Result<(UnixListener, SocketFile), Failure> {
        SocketFile::listen(path, KIND)
    }

    fn words(found: Result<(UnixListener, SocketFile), Failure>) -> String {
        found.map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = bind(&path).unwrap();
        assert!(words(bind(&path)).contains("another program listens on "));
        UnixStream::connect(&path).unwrap();
        drop(first);
        assert!(!path.exists(), "it goes with its process");

        // Dead: bound once, and without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let second = bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(second);

        // Alive, of a program without locks.
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(words(bind(&path)).contains("another program listens on "));
        drop(other);
    }

    #[tokio::test]
    async fn other_files_at_the_path_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "mine").unwrap();
        assert!(words(bind(&path)).contains("is no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let missing = dir.path().join("no").join("s");
        assert!(words(bind(&missing)).contains("hint: make its directory"));
        let long = dir.path().join("x".repeat(120));
        assert!(words(bind(&long)).contains("at most 107 bytes"));
    }

    #[tokio::test]
    async fn a_lock_that_somebody_has_prepared_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let lock = dir.path().join("s.lock");
        mkfifoat(CWD, &lock, Mode::from_raw_mode(0o600)).unwrap();
        assert!(words(bind(&path)).contains("cannot listen on "));
        fs::remove_file(&lock).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::write(&lock, "").unwrap();
            std::os::unix::fs::chown(&lock, Some(54_321), None).unwrap();
            let refused = words(bind(&path));
            assert!(refused.contains("it belongs to another user (uid 54321)"), "{refused}");
        }
    }

    #[tokio::test]
    async fn the_mode_is_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for mode in [0o600, 0o660] {
            let _socket = SocketFile::listen(&path, SocketKind { mode, ..KIND }).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
    }

    #[tokio::test]
    async fn a_socket_of_another_process_gets_the_mode_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, file) =
            SocketFile::listen(&path, SocketKind { mode: 0o666, ..KIND }).unwrap();
        file.leave();
        SocketFile::adopt(&path, KIND).unwrap().leave();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(SocketFile::adopt(&path, KIND).is_err(), "it would be removed at the end");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    /// chmod(2) after bind(2) would change whatever the path leads to by then: the kernel tells all
    /// that happens at the path.
    #[tokio::test]
    async fn mode_and_group_never_go_to_another_file_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let all = WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, dir.path(), all).unwrap();
        let kind = SocketKind { mode: 0o666, ..KIND };
        let _socket = SocketFile::listen(&dir.path().join("s"), kind).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let (mut events, mut seen) = (inotify::Reader::new(watch, &mut buffer), Vec::new());
        while let Ok(event) = events.next() {
            if event.file_name() == Some(c"s") {
                seen.push(event.events());
            }
        }
        assert_eq!(seen, [ReadFlags::MOVED_TO]);
    }

    #[tokio::test]
    async fn another_socket_in_its_place_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
