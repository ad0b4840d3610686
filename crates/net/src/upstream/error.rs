use std::{fmt, io};

use super::Objection;

/// Why there is no connection through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// The proxy itself cannot be connected to.
    Unreachable(io::ErrorKind),
    /// It ended the connection instead of this reply.
    Closed(Step),
    /// It said something that is not this reply.
    Garbage(Step),
    /// It was silent for too long when this reply was due.
    Silent(Step),
    /// It takes no login of the kind that is configured.
    NoMethod,
    /// It does not take the user name and password.
    LoginRefused,
    /// It could not, or would not, connect to the target; the reply code (RFC 1928 section 6).
    Refused(u8),
}

/// What a proxy is asked, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// How to log in.
    Method,
    /// User name and password.
    Login,
    /// The connection.
    Request,
}

impl UpstreamError {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable(_) => "upstream_unreachable",
            Self::Closed(_) => "upstream_closed",
            Self::Garbage(_) => "upstream_garbage",
            Self::Silent(_) => "upstream_silent",
            Self::NoMethod | Self::LoginRefused => "upstream_login",
            Self::Refused(_) => "upstream_refused",
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Unreachable(_) => "is the proxy running, and --upstream its address?",
            Self::Closed(_) | Self::Garbage(_) | Self::Silent(Step::Method | Step::Login) => {
                "is there a SOCKS5 proxy at --upstream, and not one for HTTP?"
            }
            Self::Silent(Step::Request) => {
                "a Tor that is not bootstrapped accepts requests and says nothing: see its log"
            }
            Self::NoMethod => {
                "give --upstream a user name and password if the proxy wants them, and none if it does not"
            }
            Self::LoginRefused => "check the user name and password in --upstream",
            Self::Refused(_) => "the proxy's log may say more",
        }
    }

    /// What an application understands of it.
    const fn kind(self) -> io::ErrorKind {
        match self {
            Self::Refused(2) => io::ErrorKind::PermissionDenied,
            Self::Refused(3) => io::ErrorKind::NetworkUnreachable,
            Self::Refused(4) => io::ErrorKind::HostUnreachable,
            Self::Refused(5) => io::ErrorKind::ConnectionRefused,
            Self::Refused(6) | Self::Silent(_) => io::ErrorKind::TimedOut,
            Self::Closed(_) => io::ErrorKind::ConnectionAborted,
            Self::Garbage(_) => io::ErrorKind::InvalidData,
            Self::Unreachable(_) | Self::NoMethod | Self::LoginRefused | Self::Refused(_) => {
                io::ErrorKind::Other
            }
        }
    }

    /// Whether it may be about bytes that came early: those that the proxy takes for a part of something else. A proxy
    /// that could not connect has understood what it was asked.
    pub(super) const fn objection(self) -> Option<Objection> {
        match self {
            Self::Closed(_) => Some(Objection::Closed),
            Self::Garbage(_) => Some(Objection::Garbage),
            Self::NoMethod | Self::LoginRefused | Self::Refused(7 | 8) => Some(Objection::Refused),
            Self::Silent(_) => Some(Objection::Silence),
            Self::Unreachable(_) | Self::Refused(_) => None,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(kind) => write!(f, "the upstream proxy cannot be reached: {kind}"),
            Self::Closed(step) => {
                write!(f, "the upstream proxy closed the connection instead of answering {step}")
            }
            Self::Garbage(step) => {
                write!(f, "the upstream proxy's answer to {step} is not SOCKS5")
            }
            Self::Silent(step) => write!(f, "the upstream proxy did not answer {step} in time"),
            Self::NoMethod => f.write_str("the upstream proxy takes no such login"),
            Self::LoginRefused => {
                f.write_str("the upstream proxy refused the user name and password")
            }
            Self::Refused(code) => {
                write!(f, "the upstream proxy did not connect: {} (code {code})", reason(*code))
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the greeting",
            Self::Login => "the login",
            Self::Request => "the request",
        })
    }
}

impl std::error::Error for UpstreamError {}

impl From<UpstreamError> for io::Error {
    fn from(error: UpstreamError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// RFC 1928 section 6.
const fn reason(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "it took too long",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown code",
    }
}
