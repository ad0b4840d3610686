use std::{fmt, io};

use super::Objection;

/// Reason why a connection through a proxy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// The proxy itself cannot be reached.
    Unreachable(io::ErrorKind),
    /// The proxy closed the connection instead of sending this reply.
    Closed(Step),
    /// The proxy sent something that is not this reply.
    Garbage(Step),
    /// The proxy was silent for too long when this reply was due.
    Silent(Step),
    /// The proxy does not support the configured login method.
    NoMethod,
    /// The proxy rejected the user name and password.
    LoginRefused,
    /// The proxy could not, or would not, connect to the target; the reply code (RFC 1928 section
    /// 6).
    Refused(u8),
}

/// Request to a proxy, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Method negotiation.
    Method,
    /// User name and password.
    Login,
    /// The CONNECT request.
    Request,
}

impl UpstreamError {
    /// Returns a short stable name, for counters and scripts.
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

    /// Returns advice on how to fix it.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Unreachable(_) => "is the proxy running, and --upstream its address?",
            Self::Closed(_) | Self::Garbage(_) | Self::Silent(Step::Method | Step::Login) => {
                "is the proxy at --upstream a SOCKS5 proxy, and not an HTTP one?"
            }
            Self::Silent(Step::Request) => {
                "a Tor that has not bootstrapped accepts requests and stays silent: see its log"
            }
            Self::NoMethod => {
                "give --upstream a user name and password if the proxy wants them, \
                 and none if it does not"
            }
            Self::LoginRefused => "check the user name and password in --upstream",
            Self::Refused(_) => "the proxy's log may say more",
        }
    }

    /// Returns the error kind that the application sees.
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

    /// Returns the objection if early bytes may have caused this: the proxy may have taken them for
    /// part of something else, which some answer with a general failure (code 1). A proxy that says
    /// why it could not connect has understood the request.
    pub(super) const fn objection(self) -> Option<Objection> {
        match self {
            Self::Closed(_) => Some(Objection::Closed),
            Self::Garbage(_) => Some(Objection::Garbage),
            Self::NoMethod | Self::LoginRefused | Self::Refused(1 | 7 | 8) => {
                Some(Objection::Refused)
            }
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
            Self::NoMethod => f.write_str("the upstream proxy does not support this login"),
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

/// Meaning of a reply code (RFC 1928 section 6).
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
