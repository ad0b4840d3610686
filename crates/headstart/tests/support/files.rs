//! Certificates and keys in a directory of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{KeyRing, PERIOD};
use tempfile::TempDir;

/// A directory that goes away with it.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file, for command lines.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file as a whole: nobody sees half of it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> String {
        let (path, fresh) = (self.path(name), self.path(&format!(".{name}")));
        fs::write(&fresh, bytes).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }

    /// Makes `name`.pem, a certificate for the host `name` alone, and `name`.key.
    pub(crate) fn issue(&self, name: &str) {
        self.issue_for(&[name]);
    }

    /// Makes the same, valid until this many seconds from now.
    pub(crate) fn issue_until(&self, name: &str, until: i64) {
        self.put(name, &headstart_testkit::self_signed(&[name], until.min(0) - 3600..until));
    }

    /// Makes a certificate for all `names`, with the first in the names of its files.
    pub(crate) fn issue_for(&self, names: &[&str]) {
        self.put(names[0], &headstart_testkit::self_signed(names, -3600..3600));
    }

    fn put(&self, name: &str, issued: &headstart_testkit::Issued) {
        // The key first, so that a certificate in place has its key.
        self.write(&format!("{name}.key"), &issued.key, 0o600);
        self.write(&format!("{name}.pem"), &issued.chain, 0o644);
    }

    /// The options that give an edge the certificate for `name`.
    pub(crate) fn certificate(&self, name: &str) -> [String; 4] {
        let (chain, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        ["--cert".into(), chain, "--key".into(), key]
    }

    /// A new key ring in the file `name`.
    pub(crate) fn keys(&self, name: &str) -> String {
        let path = self.path(name);
        KeyRing::generate(now(), PERIOD).unwrap().store(Path::new(&path)).unwrap();
        path
    }
}

/// Runs `headstart keys rotate`.
pub(crate) fn rotate(path: &str) {
    let path = PathBuf::from(path);
    KeyRing::load(&path).unwrap().rotated(now()).unwrap().store(&path).unwrap();
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}
