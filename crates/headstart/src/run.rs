//! `headstart run`: the environment in which an unmodified program goes through the agent.

pub mod options;
mod proxy;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::base::failure::Failure;
use crate::run::options::RunOptions;
use crate::run::proxy::Proxy;

/// The library, as cargo and packages name it.
const LIBRARY: &str = "libheadstart_preload.so";

/// The socket in `XDG_RUNTIME_DIR`, if none is named.
const SOCKET: &str = "headstart.sock";

/// Bytes of a context's name, as the agent takes it.
const CONTEXT_MAX: usize = 255;

/// Exit codes of env(1) and the shells: of `headstart run` itself, and of a program that it cannot
/// run.
const NO_PROXY: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;

/// Becomes the program.
///
/// # Errors
/// Wrong usage. Where the proxy is not trusted, or the program cannot be run, it is said here, and
/// the code is env(1)'s.
pub(crate) fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Failure::usage("no command to run")
            .hint("headstart run -- curl https://www.example.com/"));
    };
    let proxy = Proxy::parse(&options.proxy)?.filter(|_| proxy::is_usable_by(program));
    let mut variables = variables(options)?;
    match proxy.map(|proxy| proxy.trusted(options.agent_uid)).transpose() {
        Ok(address) => variables.extend(address.as_deref().into_iter().flat_map(proxy::variables)),
        Err(failure) => return Ok(ended(&failure, NO_PROXY)),
    }
    let error = Command::new(program).args(arguments).envs(variables).exec();
    let (failure, code) = failed(program, &error);
    Ok(ended(&failure, code))
}

fn ended(failure: &Failure, code: u8) -> ExitCode {
    failure.report();
    ExitCode::from(code)
}

fn failed(program: &OsStr, error: &io::Error) -> (Failure, u8) {
    let failure = Failure::usage(format!("cannot run {}: {error}", program.display()));
    match error.kind() {
        io::ErrorKind::NotFound => (failure.hint("is it installed, and in PATH?"), NOT_THERE),
        _ => (failure.hint("is it a program that this user may run?"), CANNOT_RUN),
    }
}

/// Returns the variables to set, beside those that there are and those of the proxy.
fn variables(options: &RunOptions) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut all = Vec::new();
    if let Some(uid) = options.agent_uid {
        all.push(("HEADSTART_AGENT_UID", uid.to_string().into()));
    }
    if let Some(context) = &options.context {
        all.push(("HEADSTART_CONTEXT", checked(context)?.into()));
    }
    let Some(socket) = socket(options)? else {
        eprintln!(
            "note: no socket of an agent is named, and XDG_RUNTIME_DIR is not set, so no sessions \
                are shared; --socket PATH names it"
        );
        return Ok(all);
    };
    all.push(("HEADSTART_SOCKET", socket.into()));
    if let Some(library) = library(options)? {
        all.push(("LD_PRELOAD", preloaded(&library, env::var_os("LD_PRELOAD"))?));
    }
    Ok(all)
}

fn checked(context: &str) -> Result<&str, Failure> {
    let is_name =
        (1..=CONTEXT_MAX).contains(&context.len()) && !context.chars().any(char::is_control);
    is_name.then_some(context).ok_or_else(|| {
        Failure::usage("a context has 1 to 255 bytes without control characters")
            .hint("take a word: --context work")
    })
}

/// Where the agent is, as a path from the root: programs change their directories.
fn socket(options: &RunOptions) -> Result<Option<PathBuf>, Failure> {
    let named = options.socket.clone().filter(|path| !path.as_os_str().is_empty());
    named
        .or_else(|| {
            let dir = env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty())?;
            Some(Path::new(&dir).join(SOCKET))
        })
        .map(|path| absolute(&path))
        .transpose()
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("no path: {}: {error}", path.display())))
}

/// The library; none where none is wanted, or none was found and none named: the proxy is good
/// without it.
fn library(options: &RunOptions) -> Result<Option<PathBuf>, Failure> {
    match options.preload.as_deref().map(Path::new) {
        Some(named) if named.as_os_str().is_empty() => Ok(None),
        Some(named) if named.is_file() => absolute(named).map(Some),
        Some(named) => Err(Failure::usage(format!("there is no library {}", named.display()))
            .hint(
                "it is built by `cargo build -p headstart-preload`, as \
                target/debug/libheadstart_preload.so",
            )),
        None => {
            let found = beside_us();
            if found.is_none() {
                eprintln!(
                    "note: {LIBRARY} is not installed, so no sessions are shared; --preload \
                    FILE names it"
                );
            }
            Ok(found)
        }
    }
}

fn beside_us() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let dir = program.parent()?;
    let places = [dir.join(LIBRARY), dir.join("../lib/headstart").join(LIBRARY)];
    places.into_iter().find(|place| place.is_file())
}

/// The list of the loader, in which a space or a colon ends a name.
fn preloaded(library: &Path, before: Option<OsString>) -> Result<OsString, Failure> {
    let name = library.as_os_str();
    if name.as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(Failure::usage(format!(
            "the loader takes no name with spaces or colons: {}",
            library.display()
        ))
        .hint("copy the library to a path without, and name it with --preload FILE"));
    }
    let mut list = name.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_preloads_are_kept() {
        for (before, list) in [(None, "/a.so"), (Some(""), "/a.so"), (Some("/b.so"), "/a.so:/b.so")]
        {
            assert_eq!(preloaded(Path::new("/a.so"), before.map(OsString::from)).unwrap(), list);
        }
        assert!(preloaded(Path::new("/a b.so"), None).is_err());
    }

    #[test]
    fn a_context_is_a_label_that_the_agent_takes() {
        assert!(checked("work").is_ok() && checked(&"x".repeat(CONTEXT_MAX)).is_ok());
        assert!(
            checked("").is_err()
                && checked("a\nb").is_err()
                && checked(&"x".repeat(CONTEXT_MAX + 1)).is_err()
        );
    }
}
