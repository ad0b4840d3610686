//! A command's unhappy end: words, a hint, an exit code.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use crate::base::printable::printable;

/// Exit code of a negative answer: no connection, a check that failed.
pub const NEGATIVE: u8 = 1;
/// Exit code of wrong usage or an environment that does not allow the work.
pub const USAGE: u8 = 2;

const RED_BOLD: &str = "\x1b[1;31m";
const CYAN_BOLD: &str = "\x1b[1;36m";
const RESET: &str = "\x1b[0m";

/// An error for the person at the terminal: what went wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// Wrong usage or an environment that does not allow the work (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, code: USAGE }
    }

    /// A question that was answered with no (exit code 1).
    pub fn negative(message: impl Into<String>) -> Self {
        Self { code: NEGATIVE, ..Self::usage(message) }
    }

    /// A socket that could not be opened at `address`, with the remedy for the usual causes.
    pub fn bind(address: SocketAddr, error: &io::Error) -> Self {
        let failure = Self::usage(format!("cannot listen on {address}: {error}"));
        match bind_hint(address, error.kind()) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Adds a hint to the failure: one line that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The hint, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns true for wrong usage, false for a negative answer.
    pub const fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Writes the failure to standard error, with colours if that is a terminal.
    pub fn report(&self) {
        let mut stderr = io::stderr().lock();
        let output = self.printable();
        let text = if colours_wanted(stderr.is_terminal()) {
            output.coloured()
        } else {
            output.to_string()
        };
        // Nobody is left to tell when standard error itself fails.
        let _ = writeln!(stderr, "{text}");
    }

    /// Returns the same for a terminal, escaped: it may quote a server or another user.
    fn printable(&self) -> Self {
        let hint = self.hint.as_deref().map(|hint| printable(hint).into_owned());
        Self { message: printable(&self.message).into_owned(), hint, code: self.code }
    }

    fn coloured(&self) -> String {
        let mut text = format!("{RED_BOLD}error:{RESET} {}", self.message);
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{CYAN_BOLD}hint:{RESET} {hint}"));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// Returns the words of `error` and of its causes.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn bind_hint(address: SocketAddr, kind: io::ErrorKind) -> Option<String> {
    match kind {
        io::ErrorKind::AddrInUse => Some(format!(
            "another program uses port {0}; `ss -ltunp 'sport = :{0}'` shows which",
            address.port()
        )),
        io::ErrorKind::PermissionDenied if address.port() < 1024 => Some(
            "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE; \
             try a higher one, for example 8443"
                .into(),
        ),
        io::ErrorKind::AddrNotAvailable => Some(format!(
            "{} is not an address of this machine; `ip address` shows those that are",
            address.ip()
        )),
        _ if address.is_ipv6() => {
            Some("if IPv6 is off on this machine, name an IPv4 address".into())
        }
        _ => None,
    }
}

/// Returns true if output may be coloured: on a terminal, unless NO_COLOR (no-color.org) is set or
/// TERM is dumb.
pub fn colours_wanted(terminal: bool) -> bool {
    terminal
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_comes_first_and_the_hint_last() {
        let failure = Failure::usage("no origin given").hint("add --origin HOST:PORT");
        assert_eq!(failure.to_string(), "error: no origin given\nhint: add --origin HOST:PORT");
        assert_eq!(Failure::negative("refused").to_string(), "error: refused");
    }

    #[test]
    fn a_negative_answer_and_a_wrong_question_have_different_codes() {
        assert_eq!(Failure::negative("x").exit_code(), ExitCode::from(1));
        assert_eq!(Failure::usage("x").exit_code(), ExitCode::from(2));
    }

    #[test]
    fn a_privileged_port_is_explained() {
        let address = "0.0.0.0:443".parse().unwrap();
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let text = Failure::bind(address, &error).to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
    }
}
