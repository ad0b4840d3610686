//! Files of key rings: which owners and modes are accepted, and that readers see whole rings only.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use headstart_proto::UnixSeconds;
use headstart_testkit::has_net;
use headstart_tls::keyring::{
    FILE_MAX, FileFault, KeyFile, KeyFileError, KeyRing, PERIOD, TextFault,
};
use rustix::fs::Mode;
use tempfile::TempDir;

const NOW: UnixSeconds = UnixSeconds(1_790_000_000);

/// A temporary directory for a key file.
struct KeyDir {
    dir: TempDir,
}

impl KeyDir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("keys")
    }

    /// Creates the file with a new ring.
    fn with_ring() -> (Self, KeyRing) {
        let (keys, ring) = (Self::new(), ring());
        ring.create(&keys.path()).unwrap();
        (keys, ring)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn ring() -> KeyRing {
    KeyRing::generate(NOW, PERIOD).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn fault(result: Result<impl Sized, KeyFileError>) -> FileFault {
    let Err(error) = result else { panic!("expected an error") };
    assert!(!error.hint().is_empty());
    assert!(error.to_string().contains(&error.path.display().to_string()), "{error}");
    error.fault
}

#[test]
fn a_ring_is_read_as_it_was_written() {
    let (keys, ring) = KeyDir::with_ring();
    assert_eq!(mode(&keys.path()), 0o600);
    assert_eq!(keys.names(), ["keys"]);
    let read = KeyRing::load(&keys.path()).unwrap();
    assert_eq!(*read.to_text(), *ring.to_text());
    assert_eq!(fs::read_to_string(keys.path()).unwrap(), *ring.to_text());
}

// F-KEYS-2
#[test]
fn a_file_that_others_may_touch_is_refused() {
    let (keys, _) = KeyDir::with_ring();
    for allowed in [0o600, 0o400, 0o700] {
        fs::set_permissions(keys.path(), Permissions::from_mode(allowed)).unwrap();
        assert!(KeyRing::load(&keys.path()).is_ok(), "{allowed:o}");
    }
    for open in [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o666] {
        fs::set_permissions(keys.path(), Permissions::from_mode(open)).unwrap();
        let error = KeyRing::load(&keys.path()).unwrap_err();
        assert!(error.hint().starts_with("chmod 600 "), "{}", error.hint());
        assert!(matches!(fault(Err::<(), _>(error)), FileFault::Open(mode) if mode == open));
    }
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !has_net() {
        return;
    }
    let (keys, _) = KeyDir::with_ring();
    chown(keys.path(), Some(65534), None).expect("tests that were switched on run as root");
    assert!(matches!(fault(KeyRing::load(&keys.path())), FileFault::Owner(65534)));
}

#[test]
fn only_regular_files_are_read() {
    let (keys, _) = KeyDir::with_ring();
    let [link, pipe, missing] = ["link", "pipe", "missing"].map(|name| keys.dir.path().join(name));
    symlink(keys.path(), &link).unwrap();
    assert!(matches!(fault(KeyRing::load(&link)), FileFault::Symlink));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(matches!(fault(KeyRing::load(&pipe)), FileFault::NotFile));
    assert!(matches!(fault(KeyRing::load(keys.dir.path())), FileFault::NotFile));
    let missing = fault(KeyRing::load(&missing));
    assert!(matches!(missing, FileFault::Read(error) if error.kind() == ErrorKind::NotFound));
}

#[test]
fn a_file_over_the_size_limit_is_refused() {
    let (keys, ring) = KeyDir::with_ring();
    let text = ring.to_text();
    let [most, more] =
        [FILE_MAX, FILE_MAX + 1].map(|size| format!("{}{}", *text, "#".repeat(size - text.len())));
    fs::write(keys.path(), most).unwrap();
    assert!(KeyRing::load(&keys.path()).is_ok());
    fs::write(keys.path(), more).unwrap();
    assert!(matches!(fault(KeyRing::load(&keys.path())), FileFault::TooLarge));
    fs::write(keys.path(), vec![b'#'; 10_000_000]).unwrap();
    assert!(matches!(fault(KeyRing::load(&keys.path())), FileFault::TooLarge));
}

#[test]
fn a_malformed_ring_is_refused_with_its_line() {
    let (keys, ring) = KeyDir::with_ring();
    fs::write(keys.path(), [0xff, 0xfe]).unwrap();
    assert!(matches!(fault(KeyRing::load(&keys.path())), FileFault::NotText));
    fs::write(keys.path(), "").unwrap();
    let empty = fault(KeyRing::load(&keys.path()));
    assert!(matches!(empty, FileFault::Text(error) if error.fault == TextFault::Version));
    // A copy truncated at any byte.
    let text = ring.to_text();
    for end in 0..text.trim_end().len() {
        fs::write(keys.path(), &text[..end]).unwrap();
        let cut = fault(KeyRing::load(&keys.path()));
        assert!(matches!(cut, FileFault::Text(error) if error.line <= 4), "{end}");
    }
}

#[test]
fn create_replaces_no_file() {
    let (keys, ring) = KeyDir::with_ring();
    let before = ring.to_text();
    assert!(matches!(fault(self::ring().create(&keys.path())), FileFault::Exists));
    assert_eq!(fs::read_to_string(keys.path()).unwrap(), *before);
    let (link, target) = (keys.dir.path().join("link"), keys.dir.path().join("target"));
    symlink(&target, &link).unwrap();
    assert!(matches!(fault(ring.create(&link)), FileFault::Exists));
    assert!(!target.exists());
    let nowhere = keys.dir.path().join("no").join("keys");
    let missing = fault(ring.create(&nowhere));
    assert!(matches!(missing, FileFault::Write(error) if error.kind() == ErrorKind::NotFound));
    assert_eq!(keys.names().len(), 2, "{:?}", keys.names());
}

#[test]
fn a_stored_ring_replaces_the_file_and_follows_no_link() {
    let (keys, ring) = KeyDir::with_ring();
    let mut open = fs::File::open(keys.path()).unwrap();
    let rotated = ring.rotated(NOW).unwrap();
    fs::set_permissions(keys.path(), Permissions::from_mode(0o644)).unwrap();
    rotated.store(&keys.path()).unwrap();
    assert_eq!(mode(&keys.path()), 0o600);
    assert_eq!(fs::read_to_string(keys.path()).unwrap(), *rotated.to_text());
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(old, *ring.to_text(), "whoever had the file open reads the old ring to its end");
    let link = keys.dir.path().join("link");
    symlink(keys.path(), &link).unwrap();
    ring.store(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert_eq!(fs::read_to_string(keys.path()).unwrap(), *rotated.to_text());
}

#[test]
fn concurrent_rotations_are_all_kept() {
    let (keys, first) = KeyDir::with_ring();
    let path = keys.path();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let file = KeyFile::lock(&path).unwrap();
                    let rotated = file.ring().rotated(NOW).unwrap();
                    file.replace(&rotated).unwrap();
                }
            });
        }
    });
    let last = KeyRing::load(&path).unwrap();
    assert_eq!(last.current.id, first.current.id.wrapping_add(100));
    assert_eq!(keys.names(), ["keys"]);
}

#[test]
fn a_locked_file_stays_readable_and_is_unlocked_on_drop() {
    let (keys, ring) = KeyDir::with_ring();
    let locked = KeyFile::lock(&keys.path()).unwrap();
    assert_eq!(*locked.ring().to_text(), *ring.to_text());
    assert!(KeyRing::load(&keys.path()).is_ok());
    drop(locked);
    drop(KeyFile::lock(&keys.path()).unwrap());
    // Locking checks the file as loading does.
    fs::set_permissions(keys.path(), Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(fault(KeyFile::lock(&keys.path())), FileFault::Open(0o640)));
    fs::remove_file(keys.path()).unwrap();
    assert!(matches!(fault(KeyFile::lock(&keys.path())), FileFault::Read(_)));
}

#[test]
fn a_failed_store_changes_nothing() {
    let keys = KeyDir::new();
    let taken = keys.path();
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("inside"), "").unwrap();
    assert!(matches!(fault(ring().store(&taken)), FileFault::Write(_)));
    assert!(taken.join("inside").exists());
    assert_eq!(keys.names(), ["keys"]);
}

#[test]
fn readers_see_whole_rings_while_it_is_rotated() {
    const LOADS: usize = 20;
    let (keys, first) = KeyDir::with_ring();
    let path = keys.path();
    let loads = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut ring, mut stored) = (first.clone(), 0);
            // Until the reader has had its turns; the cap ends it if the reader has panicked.
            while stored < 200 || (loads.load(Ordering::Relaxed) < LOADS && stored < 20_000) {
                ring = ring.rotated(NOW).unwrap();
                ring.store(&path).unwrap();
                stored += 1;
            }
            ring
        });
        while !writer.is_finished() {
            KeyRing::load(&path).unwrap();
            loads.fetch_add(1, Ordering::Relaxed);
        }
        let last = writer.join().unwrap();
        assert_eq!(*KeyRing::load(&path).unwrap().to_text(), *last.to_text());
        assert!(loads.load(Ordering::Relaxed) >= LOADS);
    });
    assert_eq!(keys.names(), ["keys"]);
}
