//! Answers to clients.

use std::io;

use bytes::Bytes;
use headstart_net::close_after_drain;
use headstart_net::upstream::UpstreamError;
use tokio::net::TcpStream;

use super::connect::Exchange;
use super::socks;

/// A client's open question. Dropping it closes the connection.
#[derive(Debug)]
pub struct Answer(Protocol);

#[derive(Debug)]
enum Protocol {
    Socks5(TcpStream),
    Connect(Exchange),
    Redirect(TcpStream),
}

impl Answer {
    pub(super) fn socks5(stream: TcpStream) -> Self {
        Self(Protocol::Socks5(stream))
    }

    pub(super) fn connect(exchange: Exchange) -> Self {
        Self(Protocol::Connect(exchange))
    }

    pub(super) fn redirected(stream: TcpStream) -> Self {
        Self(Protocol::Redirect(stream))
    }

    /// Tells the client that it is connected and returns its socket, with the bytes that it sent
    /// right behind its request and that are no longer in the socket.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn success(self) -> io::Result<(TcpStream, Bytes)> {
        match self.0 {
            Protocol::Socks5(mut stream) => {
                socks::reply(&mut stream, socks::SUCCEEDED).await?;
                Ok((stream, Bytes::new()))
            }
            Protocol::Connect(exchange) => exchange.establish().await,
            Protocol::Redirect(stream) => Ok((stream, Bytes::new())),
        }
    }

    /// Tells the client why it is not connected and closes the connection. A redirected client,
    /// which already believes itself connected, sees a reset.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn failure(self, reason: Reason) -> io::Result<()> {
        match self.0 {
            Protocol::Socks5(mut stream) => {
                socks::reply(&mut stream, reason.socks_code()).await?;
                close_after_drain(stream).await
            }
            Protocol::Connect(exchange) => {
                let (status, text) = reason.http();
                exchange.refuse(status, text.into()).await
            }
            Protocol::Redirect(stream) => stream.set_zero_linger(),
        }
    }
}

/// Reason why a client is not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The agent is told not to connect there.
    NotAllowed,
    /// The name does not exist or has no address.
    NameUnknown,
    /// No route to the network.
    NetworkUnreachable,
    /// The host does not answer.
    HostUnreachable,
    /// The host refuses connections to the port.
    Refused,
    /// No answer in time.
    TimedOut,
    /// A limit of the agent is reached.
    Overloaded,
    /// The proxy that connections go through, or what it says.
    Upstream(UpstreamError),
    /// Anything else.
    Other,
}

impl Reason {
    /// The reply code (RFC 1928 section 6).
    fn socks_code(self) -> u8 {
        match self {
            Self::Other | Self::Overloaded => 0x01,
            Self::NotAllowed => 0x02,
            Self::NetworkUnreachable => 0x03,
            Self::HostUnreachable | Self::NameUnknown => 0x04,
            Self::Refused => 0x05,
            Self::TimedOut => 0x06,
            // The proxy's own code is passed on; codes beyond those of the RFC mean nothing to
            // others.
            Self::Upstream(UpstreamError::Refused(code @ 1..=8)) => code,
            Self::Upstream(UpstreamError::Silent(_)) => 0x06,
            Self::Upstream(_) => 0x01,
        }
    }

    /// Returns true if nobody answered in time.
    pub(in crate::agent) const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::Upstream(UpstreamError::Silent(_) | UpstreamError::Refused(6))
        )
    }

    fn http(self) -> (u16, String) {
        let (status, text) = match self {
            Self::NotAllowed => (403, "The agent is configured not to connect there."),
            Self::NameUnknown => (502, "The host name has no address."),
            Self::NetworkUnreachable => (502, "There is no route to that network."),
            Self::HostUnreachable => (502, "The host cannot be reached."),
            Self::Refused => (502, "The host refused the connection."),
            Self::TimedOut => (504, "The host did not answer in time."),
            Self::Overloaded => (503, "The agent has reached its limit of connections."),
            Self::Other => (502, "The connection failed."),
            Self::Upstream(error) => {
                let status = if self.is_timeout() { 504 } else { 502 };
                return (status, format!("Not connected: {error}.\nhint: {}\n", error.hint()));
            }
        };
        (status, format!("{text}\n"))
    }
}

impl From<&io::Error> for Reason {
    fn from(error: &io::Error) -> Self {
        if let Some(error) = upstream(error) {
            return Self::Upstream(error);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            io::ErrorKind::HostUnreachable => Self::HostUnreachable,
            io::ErrorKind::PermissionDenied => Self::NotAllowed,
            _ => Self::Other,
        }
    }
}

/// Returns the upstream proxy's part in an error, if it has one.
pub(in crate::agent) fn upstream(error: &io::Error) -> Option<UpstreamError> {
    error.get_ref()?.downcast_ref::<UpstreamError>().copied()
}
