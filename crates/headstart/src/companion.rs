//! `headstart-lab`, the program of `headstart lab`, `pageload` and `demo`.
//!
//! It is a program of its own so that edges and agents carry no browser driver, no simulator and no
//! rival's TLS stack. `headstart` runs it as git and cargo run theirs: in its own place, with the
//! same words.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::base::failure::Failure;

/// The program's name.
pub const PROGRAM: &str = "headstart-lab";

/// The argument before all others by which `headstart` tells its version, as `--called-by=0.1.0`.
pub const CALLED_BY: &str = "--called-by=";

/// The version of both programs, which are only tested together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const INSTALL: &str = "build it with `cargo build --release --bin headstart-lab`, and put it \
    beside headstart or on the PATH";

/// Finds a program of this name beside the running one, in the folder above or on the `PATH`.
///
/// The folder above is where cargo puts programs, seen from its tests.
pub fn find(name: &str) -> Option<PathBuf> {
    let this = env::current_exe().ok();
    let beside = this.iter().flat_map(|this| this.ancestors().skip(1).take(2)).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut all = beside.chain(env::split_paths(&path)).map(|folder| folder.join(name));
    all.find(|file| file.is_file())
}

/// Becomes `headstart-lab COMMAND ARGUMENTS...`.
///
/// # Errors
/// It is not installed, or cannot be run.
pub fn become_lab(command: &str, arguments: &[OsString]) -> Failure {
    let Some(program) = find(PROGRAM) else {
        return Failure::usage(format!(
            "`headstart {command}` needs {PROGRAM}, which is not there"
        ))
        .hint(INSTALL);
    };
    let error = Command::new(&program)
        .arg0("headstart")
        .arg(format!("{CALLED_BY}{VERSION}"))
        .arg(command)
        .args(arguments)
        .exec();
    not_run(&program, &error)
}

/// Removes [`CALLED_BY`] from a command line, and returns true if it was there.
///
/// # Errors
/// The caller is another version.
pub fn take_caller(argv: &mut Vec<OsString>) -> Result<bool, Failure> {
    let Some(caller) = argv.get(1).and_then(|argument| caller(argument)) else {
        return Ok(false);
    };
    if caller != VERSION {
        let message = format!("{PROGRAM} {VERSION} was called by headstart {caller}");
        return Err(Failure::usage(message).hint("install the same version of both"));
    }
    argv.remove(1);
    Ok(true)
}

fn caller(argument: &OsStr) -> Option<String> {
    argument.to_str()?.strip_prefix(CALLED_BY).map(str::to_owned)
}

fn not_run(program: &Path, error: &io::Error) -> Failure {
    let failure = Failure::usage(format!("cannot run {}: {error}", program.display()));
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint(format!("make it executable: chmod +x {}", program.display()))
        }
        _ => failure.hint(INSTALL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn own_version_is_accepted_and_removed() {
        let mut called = argv(&["headstart", &format!("{CALLED_BY}{VERSION}"), "demo"]);
        assert!(take_caller(&mut called).unwrap());
        assert_eq!(called, argv(&["headstart", "demo"]));
        let mut alone = argv(&["headstart-lab", "demo"]);
        assert!(!take_caller(&mut alone).unwrap());
        assert_eq!(alone, argv(&["headstart-lab", "demo"]));
    }

    #[test]
    fn another_version_is_refused() {
        let refused = take_caller(&mut argv(&["headstart", "--called-by=9.9.9", "demo"]));
        let failure = refused.unwrap_err();
        assert!(failure.message().contains("called by headstart 9.9.9"), "{}", failure.message());
        assert!(failure.advice().unwrap().contains("same version"));
    }
}
