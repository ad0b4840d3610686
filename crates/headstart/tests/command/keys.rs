//! `headstart keys` as a process: exit codes, hints, and that it prints no secret. `tls/tests/keys`
//! has which files are refused, and what readers see of concurrent rotations.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use headstart_tls::keyring::KeyRing;
use serde_json::Value;
use tempfile::TempDir;

use crate::call::{Outcome, call};

/// A temporary directory for a key file.
struct KeyDir {
    dir: TempDir,
}

impl KeyDir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn with_keys() -> Self {
        let keys = Self::new();
        assert_eq!(keys.call(&["new"]), silence());
        keys
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("keys")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
        self.set_mode(0o600);
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.path(), Permissions::from_mode(mode)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// `headstart keys ARGUMENTS FILE`: exit code, standard output, standard error. No line of
    /// secrets that is in the file, before or after, is in what it says.
    fn call(&self, arguments: &[&str]) -> Outcome {
        let before = secrets(&fs::read(self.path()).unwrap_or_default());
        let path = self.path();
        let shown = headstart(&[arguments, &[path.to_str().unwrap()]].concat());
        let after = secrets(&fs::read(&path).unwrap_or_default());
        for secret in before.iter().chain(&after) {
            let lower = format!("{}{}", shown.1, shown.2).to_ascii_lowercase();
            assert!(!lower.contains(&secret[..16]), "{arguments:?} shows a secret");
        }
        shown
    }

    /// Returns the message about a file that it refuses, each time.
    fn refused(&self) -> String {
        let shown = self.call(&["show"]);
        let rotated = self.call(&["rotate"]);
        assert_eq!(shown, rotated);
        assert_eq!((shown.0, shown.1.as_str()), (Some(2), ""));
        assert!(shown.2.contains("\nhint: "), "{}", shown.2);
        shown.2
    }
}

fn headstart(arguments: &[&str]) -> Outcome {
    call(&[&["keys"], arguments].concat())
}

fn silence() -> Outcome {
    (Some(0), String::new(), String::new())
}

/// Everything in a file that is as long as a secret in hex, or longer than its half.
fn secrets(file: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(file).to_ascii_lowercase();
    let words = text.split_whitespace().filter(|word| word.len() >= 32 && word.is_ascii());
    words.map(str::to_owned).collect()
}

/// The roles of a file with their secrets.
fn epochs(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().skip(2).map(|line| line.split(' ').collect::<Vec<_>>());
    lines.map(|words| (words[0].to_owned(), words[3].to_owned())).collect()
}

#[test]
fn new_keys_are_their_owners_alone() {
    let keys = KeyDir::with_keys();
    assert_eq!(fs::metadata(keys.path()).unwrap().mode() & 0o7777, 0o600);
    let text = keys.text();
    assert!(text.starts_with("headstart key ring 1\nperiod 43200\ncurrent "), "{text}");
    assert_eq!(epochs(&text).len(), 2);
    assert_eq!(keys.names(), ["keys"]);
    assert_ne!(KeyDir::with_keys().text(), text);
}

#[test]
fn new_keys_replace_nothing() {
    let keys = KeyDir::with_keys();
    let before = keys.text();
    let (code, out, err) = keys.call(&["new"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let path = keys.path().display().to_string();
    assert!(err.starts_with(&format!("error: {path} exists already\nhint: ")), "{err}");
    assert!(err.contains(&format!("`headstart keys rotate {path}`")), "{err}");
    assert_eq!(keys.text(), before);
}

#[test]
fn new_keys_need_a_directory() {
    let keys = KeyDir::new();
    let file = keys.dir.path().join("no").join("keys");
    let (code, out, err) = headstart(&["new", file.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let start = format!("error: cannot write the keys to {}: No such file", file.display());
    assert!(err.starts_with(&start), "{err}");
    assert!(err.contains("\nhint: make its directory first: mkdir -p -m 700 "), "{err}");
}

#[test]
fn a_period_is_from_an_hour_to_a_week() {
    for (period, seconds) in [("1h", 3600), ("7days", 604_800), ("90m", 5400)] {
        let keys = KeyDir::new();
        assert_eq!(keys.call(&["new", "--period", period]), silence());
        assert!(keys.text().contains(&format!("\nperiod {seconds}\n")), "{period}");
    }
    for period in ["59m 59s", "7days 1s", "0s", "12", "soon"] {
        let keys = KeyDir::new();
        let (code, out, err) = keys.call(&["new", "--period", period]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{period}");
        let start = format!("error: invalid value '{period}' for '--period <TIME>'");
        assert!(err.starts_with(&start) && err.contains("\nhint: "), "{err}");
        assert!(keys.names().is_empty());
    }
}

#[test]
fn rotating_moves_the_epochs_and_replaces_the_file() {
    let keys = KeyDir::with_keys();
    let (before, inode) = (keys.text(), fs::metadata(keys.path()).unwrap().ino());
    assert_eq!(keys.call(&["rotate"]), silence());
    let (old, new) = (epochs(&before), epochs(&keys.text()));
    let roles: Vec<&str> = new.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["previous", "current", "next"]);
    assert_eq!((&new[0].1, &new[1].1), (&old[0].1, &old[1].1));
    assert!(old.iter().all(|(_, secret)| *secret != new[2].1));
    let file = fs::metadata(keys.path()).unwrap();
    assert_eq!(file.mode() & 0o7777, 0o600);
    assert_ne!(file.ino(), inode);
    assert_eq!(keys.names(), ["keys"]);
    assert_eq!(keys.call(&["rotate"]), silence());
    assert!(!keys.text().contains(&old[0].1), "a retired secret is gone");
}

#[test]
fn rotating_if_due_waits_for_the_end_of_the_period() {
    let keys = KeyDir::with_keys();
    let before = keys.text();
    assert_eq!(keys.call(&["rotate", "--if-due"]), silence());
    assert_eq!(keys.text(), before);
    let fields: Vec<&str> = before.lines().nth(2).unwrap().split(' ').collect();
    keys.write(&before.replace(fields[2], "1700000000"));
    let due = keys.text();
    assert_eq!(keys.call(&["rotate", "--if-due"]), silence());
    assert_eq!(epochs(&keys.text())[0].1, epochs(&due)[0].1);
}

#[test]
fn keys_of_a_clock_that_was_ahead_are_due() {
    let keys = KeyDir::with_keys();
    let before = keys.text();
    let fields: Vec<&str> = before.lines().nth(2).unwrap().split(' ').collect();
    keys.write(&before.replace(fields[2], "4000000000"));
    let shown = keys.call(&["show"]).1;
    assert!(shown.contains("by a clock that was ahead: due now, not 2096-"), "{shown}");
    assert_eq!(keys.call(&["rotate", "--if-due"]), silence());
    assert_eq!(epochs(&keys.text())[0].1, epochs(&before)[0].1);
    assert!(keys.call(&["show"]).1.starts_with("rotated every 12h, due 2"));
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn the_display_tells_rings_apart_and_hides_secrets() {
    let keys = KeyDir::with_keys();
    keys.call(&["rotate"]);
    let (code, out, err) = keys.call(&["show"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("rotated every 12h, due 2"), "{out}");
    assert_eq!(words(lines[2]), ["epoch", "id", "from", "name"]);
    let roles: Vec<&str> = lines[3..].iter().map(|line| words(line)[0]).collect();
    assert_eq!(roles, ["previous", "current", "next"]);
    let copy = KeyDir::new();
    copy.write(&keys.text());
    assert_eq!(copy.call(&["show"]).1, out);
    let other = KeyDir::with_keys();
    let shown = other.call(&["show"]).1;
    assert_ne!(words(shown.lines().nth(3).unwrap())[3], words(lines[4])[3]);
}

#[test]
fn show_prints_json() {
    let keys = KeyDir::with_keys();
    let (code, out, _) = keys.call(&["show", "--json"]);
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["period_ms"], 43_200_000);
    assert_eq!(json["is_due"], false);
    assert!(json["rotation_due"].as_str().unwrap().ends_with('Z'));
    let epochs = json["epochs"].as_array().unwrap();
    let ring = KeyRing::load(&keys.path()).unwrap();
    for (epoch, (role, ours)) in epochs.iter().zip(ring.roles()) {
        assert_eq!(epoch["role"], role.name());
        assert_eq!(epoch["id"], ours.id);
        let name: String = ours.ticket_name().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(epoch["name"], name);
    }
    assert_eq!(epochs.len(), 2);
}

#[test]
fn an_overdue_ring_says_so() {
    let keys = KeyDir::with_keys();
    let before = keys.text();
    let fields: Vec<&str> = before.lines().nth(2).unwrap().split(' ').collect();
    keys.write(&before.replace(fields[2], "1700000000"));
    assert!(keys.call(&["show"]).1.starts_with("rotated every 12h, was due 2023-11-15T10:13:20Z"));
    let json: Value = serde_json::from_str(&keys.call(&["show", "--json"]).1).unwrap();
    assert_eq!(json["is_due"], true);
}

#[test]
fn the_last_date_that_is_allowed_can_be_shown() {
    let keys = KeyDir::new();
    let (one, two) = ("1f".repeat(32), "2e".repeat(32));
    let last = "253370764800";
    keys.write(&format!(
        "headstart key ring 1\nperiod 604800\ncurrent 1 {last} {one}\nnext 2 {last} {two}\n"
    ));
    let (code, out, _) = keys.call(&["show"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("9999-01-01T00:00:00Z") && out.contains("9999-01-08T00:00:00Z"), "{out}");
}

#[test]
fn a_missing_file_is_explained() {
    let keys = KeyDir::new();
    let err = keys.refused();
    let path = keys.path().display().to_string();
    let start = format!("error: cannot read the keys in {path}: No such file");
    assert!(err.starts_with(&start), "{err}");
    assert!(err.contains(&format!("\nhint: `headstart keys new {path}` makes one")), "{err}");
    assert!(keys.names().is_empty());
}

#[test]
fn a_file_that_others_may_touch_is_refused() {
    let keys = KeyDir::with_keys();
    let before = keys.text();
    for mode in [0o640, 0o604] {
        keys.set_mode(mode);
        let err = keys.refused();
        let path = keys.path().display().to_string();
        let wanted = format!(
            "error: {path} is open to other users (mode {mode:04o})\nhint: chmod 600 {path}"
        );
        assert!(err.starts_with(&wanted), "{err}");
    }
    assert_eq!(keys.text(), before);
    keys.set_mode(0o600);
    assert_eq!(keys.call(&["show"]).0, Some(0));
}

#[test]
fn what_is_no_file_of_text_is_refused_with_a_hint() {
    let keys = KeyDir::with_keys();
    let linked = KeyDir::new();
    symlink(keys.path(), linked.path()).unwrap();
    assert!(linked.refused().contains("is a symbolic link\nhint: name the file itself"));
    let directory = KeyDir::new();
    fs::create_dir(directory.path()).unwrap();
    directory.set_mode(0o700);
    assert!(directory.refused().contains("is not a file\nhint: "));
    fs::write(keys.path(), [0xff, 0xfe]).unwrap();
    assert!(keys.refused().contains("is not text\nhint: "));
}

#[test]
fn malformed_rings_are_explained_without_showing_them() {
    let keys = KeyDir::with_keys();
    let text = keys.text();
    let lines: Vec<&str> = text.lines().collect();
    let cases = [
        (String::new(), "line 1: this is not a key ring"),
        (
            text.replace("ring 1", "ring 2"),
            "line 1: this is not a key ring, or has another version",
        ),
        (
            text.replace("period 43200", "period 60"),
            "line 2: the rotation period must be between an hour and 7 days",
        ),
        (text.replace("current ", "currant "), "line 3: lines begin with"),
        (text.trim_end()[..text.len() - 3].to_owned(), "line 4: the secret is not 64 hex digits"),
        (lines[..3].join("\n"), "line 3: the period, the current or the next epoch is missing"),
        (format!("{text}{}", lines[3]), "line 5: this role, number or secret is repeated"),
        ("#".repeat(5000), "is larger than a key ring can be"),
    ];
    for (text, words) in cases {
        keys.write(&text);
        let err = keys.refused();
        assert!(err.contains(words), "{err}");
        assert_eq!(keys.text(), text, "a refused file stays as it is");
    }
}

#[test]
fn without_a_command_or_a_file_it_explains_itself() {
    let (code, out, err) = headstart(&[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("rotate") && err.contains("show"), "{err}");
    for command in ["new", "rotate", "show"] {
        let (code, out, err) = headstart(&[command]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{command}");
        assert!(err.contains("<FILE|URL>") && err.contains("\nhint: "), "{err}");
        let (code, out, _) = headstart(&[command, "--help"]);
        assert_eq!(code, Some(0), "{command}");
        assert!(out.contains("FILE"), "{out}");
    }
}
