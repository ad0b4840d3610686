//! Folders that options name are this user's alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::programs::LAB;

/// Commands that write to a folder, and end soon even if they take it: nobody has this address
/// (RFC 5737), and no browser starts.
const COMMANDS: [&[&str]; 3] = [
    &["lab", "site", "app", "--listen", "192.0.2.1:1", "--certificates"],
    &["pageload", "record", "app", "--browser", "/bin/false", "--out"],
    &["interop", "--case", "opening", "--implementation", "no=false", "--client", "no", "--out"],
];

/// Returns what a command says about a folder that it cannot write to.
fn refusal(command: &[&str], folder: &Path) -> String {
    let output = Command::new(LAB).args(command).arg(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
    assert!(text.contains("hint: "), "{command:?}: {text}");
    text
}

#[test]
fn results_and_keys_do_not_go_where_others_could_exchange_them() {
    let dir = tempfile::tempdir().unwrap();
    let [open, own, link] = ["open", "own", "link"].map(|name| dir.path().join(name));
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(&own).unwrap();
    symlink(&own, &link).unwrap();
    for command in COMMANDS {
        let text = refusal(command, &open.join("new"));
        assert!(text.contains("others may exchange it where it is"), "{command:?}: {text}");
        refusal(command, &link);
    }
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0, "nothing went through the link");
}

#[test]
fn folders_are_made_for_their_owner_alone() {
    for command in COMMANDS {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("above/new");
        let output = Command::new(LAB).args(command).arg(&folder).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let made = fs::metadata(&folder).unwrap_or_else(|_| panic!("{command:?}: {text}"));
        assert_eq!(made.mode() & 0o777, 0o700, "{command:?}: {text}");
    }
}
