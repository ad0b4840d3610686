//! Chromium's TLS where it is not the default, for measurements.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use clap::ValueEnum;
use headstart::base::failure::Failure;

/// Settings that are the whole browser's are in this file of a profile.
const LOCAL_STATE: &str = "Local State";

/// The groups that Chromium 156 offers (net/ssl/ssl_config_service.h), as they lie in its program:
/// each with whether a key share is sent. X25519MLKEM768 with one, X25519 with one, P-256, P-384.
const GROUPS: [u8; 16] = [0xec, 0x11, 1, 0, 0x1d, 0, 1, 0, 0x17, 0, 0, 0, 0x18, 0, 0, 0];

/// As many without X25519MLKEM768: X25519 with a share, P-256, P-384, P-521. A server that would
/// rather have the first asks for it again if it is offered without a share, which costs a round
/// trip.
const CLASSICAL: [u8; 16] = [0x1d, 0, 1, 0, 0x17, 0, 0, 0, 0x18, 0, 0, 0, 0x19, 0, 0, 0];

/// Bytes of the program looked through at once.
const CHUNK: usize = 4 << 20;

/// Writes into a new profile what there is a setting for, and the number of connections at a time
/// through a proxy, if it is not Chromium's own.
pub(crate) fn settle(profile: &Path, tls: &[BrowserTls], per_proxy: Option<u8>) -> io::Result<()> {
    let ssl: Map<String, Value> = tls.iter().filter_map(setting).collect();
    let net = per_proxy.map(|count| json!({ "max_connections_per_proxy": count }));
    let ssl = (!ssl.is_empty()).then_some(Value::Object(ssl));
    let parts = [("ssl", ssl), ("net", net)].into_iter();
    let state: Map<String, Value> =
        parts.filter_map(|(name, part)| Some((name.to_owned(), part?))).collect();
    if state.is_empty() {
        return Ok(());
    }
    fs::write(profile.join(LOCAL_STATE), Value::Object(state).to_string())
}

fn setting(tls: &BrowserTls) -> Option<(String, Value)> {
    match tls {
        BrowserTls::NoEch => Some(("ech_enabled".into(), false.into())),
        BrowserTls::EarlyData | BrowserTls::NoPostQuantum => None,
    }
}

pub(crate) fn arguments(tls: &[BrowserTls]) -> Vec<String> {
    // The setting takes effect only as a policy.
    let early = "--enable-features=EnableTLS13EarlyData";
    tls.iter().filter(|one| **one == BrowserTls::EarlyData).map(|_| early.to_owned()).collect()
}

/// A copy of Chromium that offers no post-quantum key share: there is no setting for it any more.
/// It is gone when dropped.
#[derive(Debug)]
pub(crate) struct Classical {
    dir: TempDir,
    name: PathBuf,
}

impl Classical {
    /// Copies `program`, or what it is a wrapper of, into a new folder in `into`; the files beside
    /// it are linked to.
    ///
    /// # Errors
    /// No room, or a version whose groups lie elsewhere.
    pub(crate) fn copy(program: &Path, into: &Path) -> Result<Self, Failure> {
        let program = binary(program).ok_or_else(|| {
            cannot("it is a script that leads elsewhere")
                .hint("name the program itself with --browser")
        })?;
        let name = program.file_name().map(PathBuf::from).unwrap_or_default();
        let dir = beside(&program, into).map_err(|error| cannot(&error.to_string()))?;
        let copy = Self { dir, name };
        let written = fs::copy(&program, copy.program()).and_then(|_| {
            let file = OpenOptions::new().read(true).write(true).open(copy.program())?;
            exchange(&file)
        });
        match written {
            Ok(1) => Ok(copy),
            Ok(count) => Err(cannot(&format!("its list of key shares is there {count} times"))
                .hint("this is for Chromium 156; --tls no-post-quantum has no other way")),
            Err(error) => Err(cannot(&error.to_string())
                .hint(format!("it takes some 300 MB in {}", into.display()))),
        }
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }
}

fn cannot(why: &str) -> Failure {
    Failure::usage(format!(
        "cannot make a copy of Chromium without a post-quantum key share: {why}"
    ))
}

/// Returns the program that a wrapper starts, as Debian's and Google's are placed.
fn binary(program: &Path) -> Option<PathBuf> {
    let path = program.canonicalize().ok()?;
    let name = path.file_name()?;
    let places =
        [path.clone(), Path::new("/usr/lib").join(name).join(name), path.with_file_name("chrome")];
    places.into_iter().find(|path| is_elf(path))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok()
        && magic == *b"\x7fELF"
}

/// A folder with links to all that is beside a program, but not to the program.
fn beside(program: &Path, into: &Path) -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("headstart-browser-").tempdir_in(into)?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path() != program {
            symlink(entry.path(), dir.path().join(entry.file_name()))?;
        }
    }
    Ok(dir)
}

/// Puts [`CLASSICAL`] where [`GROUPS`] are, if they are in one place; in how many they are.
fn exchange(file: &File) -> io::Result<usize> {
    let mut found = Vec::new();
    let mut bytes = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut bytes, at)?;
        let windows = bytes.get(..read).unwrap_or_default().windows(GROUPS.len());
        found.extend((at..).zip(windows).filter(|(_, window)| *window == GROUPS).map(|(at, _)| at));
        // Bytes across the end of a piece are searched again with the next.
        let next = at + (read as u64).saturating_sub(GROUPS.len() as u64 - 1);
        if read < GROUPS.len() {
            break;
        }
        at = next;
    }
    if let [place] = found[..] {
        file.write_all_at(&CLASSICAL, place)?;
    }
    Ok(found.len())
}

/// Chromium's TLS, where it is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BrowserTls {
    /// No Encrypted ClientHello, not even a made-up one (as policy
    /// EncryptedClientHelloEnabled=false)
    NoEch,
    /// No X25519MLKEM768: with a copy of Chromium that is changed, as there is no setting for it
    NoPostQuantum,
    /// Early data where servers take it (as chrome://flags/#enable-tls13-early-data)
    EarlyData,
}

impl BrowserTls {
    /// Name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoEch => "no-ech",
            Self::NoPostQuantum => "no-post-quantum",
            Self::EarlyData => "early-data",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_into_the_profile() {
        let profile = tempfile::tempdir().unwrap();
        settle(profile.path(), &[BrowserTls::NoPostQuantum], None).unwrap();
        assert!(!profile.path().join(LOCAL_STATE).exists());
        settle(profile.path(), &[BrowserTls::NoEch, BrowserTls::EarlyData], Some(9)).unwrap();
        let written: Value =
            serde_json::from_slice(&fs::read(profile.path().join(LOCAL_STATE)).unwrap()).unwrap();
        let net = json!({ "max_connections_per_proxy": 9 });
        assert_eq!(written, json!({ "ssl": { "ech_enabled": false }, "net": net }));
        assert_eq!(arguments(&[BrowserTls::NoEch]), [""; 0]);
        assert!(arguments(&[BrowserTls::EarlyData])[0].contains("EarlyData"));
    }

    #[test]
    fn groups_are_exchanged_where_they_are_once() {
        for (places, expected) in [(vec![], 0), (vec![CHUNK - 7], 1), (vec![3, CHUNK + 9], 2)] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(CHUNK as u64 + 100).unwrap();
            places.iter().for_each(|place| file.write_all_at(&GROUPS, *place as u64).unwrap());
            assert_eq!(exchange(&file).unwrap(), expected);
            let mut now = [0; 16];
            file.read_exact_at(&mut now, places.first().copied().unwrap_or(0) as u64).unwrap();
            assert_eq!(now == CLASSICAL, expected == 1);
        }
    }

    #[test]
    fn wrapper_scripts_are_followed() {
        assert!(binary(Path::new("/proc/self/exe")).is_some_and(|path| is_elf(&path)));
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("browser");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(binary(&script), None);
        fs::write(dir.path().join("chrome"), b"\x7fELF...").unwrap();
        assert_eq!(binary(&script), Some(dir.path().canonicalize().unwrap().join("chrome")));
        let into = tempfile::tempdir().unwrap();
        let failure = Classical::copy(&script, into.path()).unwrap_err();
        assert!(failure.to_string().contains("0 times"));
        assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);
    }
}
