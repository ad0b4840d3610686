//! Configuration files.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use clap::{ArgAction, Args, Command, FromArgMatches};
use headstart::agent::options::AgentOptions;
use headstart::base::settings::{Invocation, Stop};
use headstart::edge::options::EdgeOptions;
use toml::{Table, Value};

/// A word that no message repeats where it is the password of a proxy or of Redis.
const PASSWORD: &str = "s3cret";

/// Options that take URLs with passwords.
const SECRET: [&str; 2] = ["keys", "upstream"];

/// Any file of options: its keys are flags, no more and no less, what is typed goes before it, and
/// no message shows a password.
pub fn options(bytes: &[u8]) {
    let file = file(bytes);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let tables = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    let is_secret = has_secrets_alone(text, tables.as_ref());
    for failure in [
        check::<EdgeOptions>("edge", &path, tables.as_ref()),
        check::<AgentOptions>("agent", &path, tables.as_ref()),
    ] {
        assert!(!is_secret || !failure.contains(PASSWORD), "{failure}");
    }
}

/// Makes a file that only this user can read, in memory.
fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Compares a file with the same as flags, with another flag beside both; returns the failure, if
/// it is one.
fn check<T>(name: &'static str, path: &str, file: Option<&Table>) -> String
where
    T: Args + FromArgMatches + Debug,
{
    const TYPED: &str = "--shutdown-timeout=7s";
    let loaded = load::<T>(&["headstart", name, "--config", path, TYPED]);
    let flags = file.and_then(|file| flags::<T>(name, file)).and_then(|mut flags| {
        // A file has to be right by itself, also where something typed goes before it.
        load::<T>(&words(name, &flags)).ok()?;
        flags.retain(|flag| !flag.starts_with("--shutdown-timeout="));
        flags.push(TYPED.to_owned());
        load::<T>(&words(name, &flags)).ok()
    });
    let shown = loaded.as_ref().map(|loaded| loaded.replace(&format!("Some({path:?})"), "None"));
    assert_eq!(shown.as_ref().ok(), flags.as_ref(), "[{name}]: {loaded:?}");
    loaded.err().unwrap_or_default()
}

fn words<'a>(name: &'a str, flags: &'a [String]) -> Vec<&'a str> {
    ["headstart", name].into_iter().chain(flags.iter().map(String::as_str)).collect()
}

/// Returns options as text, or the text of the failure.
fn load<T: Args + FromArgMatches + Debug>(words: &[&str]) -> Result<String, String> {
    let command = Command::new("headstart")
        .subcommand(EdgeOptions::augment_args(Command::new("edge")))
        .subcommand(AgentOptions::augment_args(Command::new("agent")));
    match Invocation::new(command, words.iter().map(OsString::from)).load::<T>() {
        Ok(options) => Ok(format!("{options:?}")),
        Err(Stop::Failure(failure)) => {
            assert!(!failure.message().is_empty());
            Err(format!("{}\n{}", failure.message(), failure.advice().unwrap_or_default()))
        }
        Err(Stop::Answer(answer)) => panic!("a file asked for {answer}"),
    }
}

/// Returns what a file says of a command as flags; none if it may not say that.
fn flags<T: Args>(name: &str, file: &Table) -> Option<Vec<String>> {
    if file.keys().any(|key| key != "edge" && key != "agent") {
        return None;
    }
    let Some(table) = file.get(name) else { return Some(Vec::new()) };
    let command = T::augment_args(Command::new(name.to_owned()));
    let mut flags = Vec::new();
    for (key, value) in table.as_table()? {
        let option = command.get_arguments().find(|option| option.get_long() == Some(key))?;
        let values = match (option.get_action(), value) {
            _ if key == "config" => return None,
            (ArgAction::Append, Value::Array(values)) => values.iter().collect(),
            (ArgAction::Append | ArgAction::Set, value) => vec![value],
            _ => return None,
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => plain(value),
                _ => return None,
            };
            flags.push(format!("--{key}={text}"));
        }
    }
    Some(flags)
}

/// Returns a number or a truth as one would type it.
fn plain(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// Returns true if the word is a password wherever it stands: between the signs of a URL, and in an
/// option that takes one, if the file can be read at all.
fn has_secrets_alone(text: &str, file: Option<&Table>) -> bool {
    let mut places = text.match_indices(PASSWORD);
    let is_between = places
        .all(|(at, word)| text[..at].ends_with(':') && text[at + word.len()..].starts_with('@'));
    let tables = file.into_iter().flatten().map(|(_, table)| table);
    is_between
        && tables.into_iter().all(|table| match table {
            Value::Table(table) => {
                let mut others = table.iter().filter(|(key, _)| !SECRET.contains(&key.as_str()));
                others.all(|(_, value)| !value.to_string().contains(PASSWORD))
            }
            other => !other.to_string().contains(PASSWORD),
        })
}
