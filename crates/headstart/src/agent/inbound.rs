//! Connections from applications: one port for SOCKS5, HTTP CONNECT and redirected connections.
//!
//! [`accept`] finds out what the client speaks and where it wants to go. Its caller connects and
//! answers through [`Answer`]: at once, or when it knows the outcome. After a success the client's
//! socket is bare again, with the bytes that were read beyond the request beside it.

mod answer;
mod connect;
mod socks;
mod target;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

pub(super) use answer::upstream;
pub use answer::{Answer, Reason};
pub(super) use connect::authority;
pub use target::{Host, HostName, Target, Via};

/// Time that a client may say nothing after it has connected. Browsers open proxy connections ahead
/// of need, so longer than [`REQUEST_TIME`]; the socket is all that such a client holds.
pub const FIRST_BYTE_TIME: Duration = Duration::from_secs(60);

/// Time that a request may take from its first byte on. It is a few hundred bytes from the same
/// machine or network; a client that takes longer is holding on to the connection on purpose.
pub const REQUEST_TIME: Duration = Duration::from_secs(10);

/// First byte of SOCKS version 4.
const SOCKS4: u8 = 0x04;
/// First byte of SOCKS version 5 (RFC 1928 section 3).
const SOCKS5: u8 = 0x05;

/// Time limits of a request; [`Default`] is what the agent uses.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Time from accepting the connection to its first byte.
    pub first_byte: Duration,
    /// Time from the first byte to the whole request.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { first_byte: FIRST_BYTE_TIME, request: REQUEST_TIME }
    }
}

/// A client whose request is read, and that waits for the answer.
#[derive(Debug)]
pub struct Inbound {
    /// Requested host and port, and the form of the request.
    pub target: Target,
    /// Channel that tells the client the outcome.
    pub answer: Answer,
}

/// Reads a client's request; `redirected` is the original destination of a connection that was
/// redirected here (then the client says nothing to the agent, and no byte is read).
///
/// # Errors
/// [`Refusal`]: the client has been told as well as its protocol allows and the connection is
/// closed. Dropping the future closes it too.
pub async fn accept(
    stream: TcpStream,
    redirected: Option<SocketAddr>,
    timeouts: Timeouts,
) -> Result<Inbound, Refusal> {
    if let Some(destination) = redirected {
        return Ok(Inbound {
            target: Target::redirected(destination),
            answer: Answer::redirected(stream),
        });
    }
    let first = timeout(timeouts.first_byte, peek(&stream)).await;
    let first = first.map_err(|_| Refusal::Silent)??;
    let request = read_request(stream, first);
    timeout(timeouts.request, request).await.map_err(|_| Refusal::Slow)?
}

async fn read_request(stream: TcpStream, first: u8) -> Result<Inbound, Refusal> {
    match first {
        SOCKS5 => {
            let (target, stream) = socks::accept(stream).await?;
            Ok(Inbound { target, answer: Answer::socks5(stream) })
        }
        SOCKS4 => Err(socks::refuse_version_4(stream).await),
        letter if letter.is_ascii_alphabetic() => {
            let (target, exchange) = connect::accept(stream).await?;
            Ok(Inbound { target, answer: Answer::connect(exchange) })
        }
        other => Err(Refusal::UnknownProtocol(other)),
    }
}

/// The first byte, which stays in the socket for the parser of its protocol.
async fn peek(stream: &TcpStream) -> Result<u8, Refusal> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(Refusal::Closed),
        _ => Ok(first[0]),
    }
}

/// Reason why a client got no connection; the client was told if its protocol has words for it.
#[derive(Debug)]
pub enum Refusal {
    /// It sent nothing in time.
    Silent,
    /// It sent a part of a request and not the rest in time.
    Slow,
    /// It closed the connection before its request was complete.
    Closed,
    /// It speaks neither SOCKS5 nor HTTP; the first byte it sent.
    UnknownProtocol(u8),
    /// It speaks SOCKS4, which has no IPv6 addresses and in its first form no names.
    Socks4,
    /// It offered no SOCKS5 authentication that the agent takes: none, or user name and password.
    Authentication,
    /// It asked for something else than a TCP connection: SOCKS5 BIND or UDP ASSOCIATE.
    Command,
    /// It sent an ordinary HTTP request, not CONNECT.
    NotConnect,
    /// Its request is not well formed, or names no possible target.
    Malformed(&'static str),
    /// The socket failed.
    Io(io::Error),
}

impl Refusal {
    /// A word for logs and metrics, from a fixed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Closed => "closed",
            Self::UnknownProtocol(_) => "unknown_protocol",
            Self::Socks4 => "socks4",
            Self::Authentication => "authentication",
            Self::Command => "command",
            Self::NotConnect => "not_connect",
            Self::Malformed(_) => "malformed",
            Self::Io(_) => "io",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("the client sent nothing in time"),
            Self::Slow => f.write_str("the client took too long to send its request"),
            Self::Closed => f.write_str("the client closed the connection before its request"),
            Self::UnknownProtocol(first) => {
                write!(f, "neither SOCKS5 nor HTTP (first byte {first:#04x})")
            }
            Self::Socks4 => f.write_str("SOCKS4 is not supported, SOCKS5 is"),
            Self::Authentication => f.write_str("no SOCKS5 authentication in common"),
            Self::Command => f.write_str("SOCKS5 command other than CONNECT"),
            Self::NotConnect => f.write_str("HTTP request other than CONNECT"),
            Self::Malformed(what) => write!(f, "malformed request: {what}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
