//! Reasons for having no connection.

use std::fmt;
use std::io;

/// Reason for having no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No socket is named, and `XDG_RUNTIME_DIR` is not set.
    Unnamed,
    /// Nothing answers there, or the agent closed before it answered. At most early data has left
    /// this machine.
    Unavailable {
        /// The path or address.
        agent: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The listener may not be the agent, and was sent nothing: on a Unix socket the
    /// listener's user is not trusted, on a port the listener does not prove that it has the token.
    Untrusted {
        /// The path or address.
        agent: String,
        /// Reason for not trusting it.
        why: String,
        /// Advice.
        hint: String,
    },
    /// The answer does not come from an agent, or from one of another version.
    NotUnderstood(&'static str),
    /// The request would need something that no request can hold.
    Unsupported(&'static str),
    /// The agent did not answer in time.
    TimedOut,
    /// The agent refused.
    Refused(Box<Refusal>),
}

/// A refusal of the agent, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Subject of the refusal (`Headstart-Error`), such as `certificate_expired`; empty if the
    /// agent names none.
    pub name: String,
    /// Message.
    pub text: String,
    /// Advice on what to do about it.
    pub hint: Option<String>,
}

/// Party that has to act after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request is malformed, or asks for something unknown.
    Request,
    /// This user is not allowed, or did not prove the token.
    NotAllowed,
    /// This user has too many connections.
    Overloaded,
    /// The server has no address, refuses connections, or cannot be reached.
    Connect,
    /// The server's certificate is not trusted.
    Certificate,
    /// The handshake failed in another way.
    Tls,
    /// The server did not answer in time.
    TimedOut,
    /// The agent itself failed.
    Agent,
}

impl Error {
    /// Returns advice on what to do about it, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unnamed => Some("name it in HEADSTART_SOCKET"),
            Self::Unavailable { source, .. } => Some(match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "the agent's --socket-mode and --socket-group say who may use it"
                }
                _ => "start one: headstart agent --socket PATH",
            }),
            Self::Untrusted { hint, .. } => Some(hint),
            Self::NotUnderstood(_) => Some("is that a headstart agent of this version?"),
            Self::Unsupported(_) => None,
            Self::TimedOut => Some("is the server reachable? the agent's log says more"),
            Self::Refused(refusal) => refusal.hint.as_deref(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => {
                f.write_str("no socket of an agent is named, and XDG_RUNTIME_DIR is not set")
            }
            Self::Unavailable { agent, .. } => write!(f, "cannot reach an agent at {agent}"),
            Self::Untrusted { agent, why, .. } => {
                write!(f, "the listener at {agent} is not trusted: {why}")
            }
            Self::NotUnderstood(why) => write!(f, "the agent's answer is not understood: {why}"),
            Self::Unsupported(what) => f.write_str(what),
            Self::TimedOut => f.write_str("the agent did not answer in time"),
            Self::Refused(refusal) => f.write_str(&refusal.text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Refusal {
    /// Reads the body of an answer, which ends with a hint.
    pub(crate) fn new(status: u16, name: &str, body: &str) -> Self {
        let body = body.trim();
        let (text, hint) = match body.split_once("\nhint: ") {
            Some((text, hint)) => (text, Some(hint.to_owned())),
            None => (body, None),
        };
        let text = match text {
            "" => format!("the agent answers {status}"),
            text => text.to_owned(),
        };
        Self { status, name: name.to_owned(), text, hint }
    }

    /// Returns the party that has to act.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.status {
            502 if self.name.starts_with("certificate") => Kind::Certificate,
            502 if self.name == "tls" => Kind::Tls,
            502 => Kind::Connect,
            403 | 407 => Kind::NotAllowed,
            503 => Kind::Overloaded,
            504 => Kind::TimedOut,
            400..500 => Kind::Request,
            _ => Kind::Agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_quotes_the_agent() {
        let refusal = Refusal::new(502, "certificate_expired", "it has expired\nhint: renew it\n");
        assert_eq!(
            (refusal.text.as_str(), refusal.hint.as_deref()),
            ("it has expired", Some("renew it"))
        );
        assert_eq!(refusal.kind(), Kind::Certificate);
        let error = Error::Refused(Box::new(refusal));
        assert_eq!(
            (error.to_string().as_str(), error.hint()),
            ("it has expired", Some("renew it"))
        );
        let wordless = Refusal::new(431, "", "");
        assert_eq!(
            (wordless.text.as_str(), wordless.hint.clone()),
            ("the agent answers 431", None)
        );
        assert_eq!(wordless.kind(), Kind::Request);
    }

    #[test]
    fn refusals_are_classified() {
        for (status, name, kind) in [
            (400, "roots", Kind::Request),
            (403, "certificate_not_allowed", Kind::NotAllowed),
            (407, "token", Kind::NotAllowed),
            (502, "name", Kind::Connect),
            (502, "tls", Kind::Tls),
            (503, "overloaded", Kind::Overloaded),
            (504, "timed_out", Kind::TimedOut),
            (500, "internal", Kind::Agent),
        ] {
            assert_eq!(Refusal::new(status, name, "").kind(), kind, "{status} {name}");
        }
    }
}
