//! The agent of this machine, and connections through it.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::error::{Error, Refusal};
use crate::facts::Facts;
use crate::head::{Head, HeadError};
use crate::options::Options;
use crate::request::{EARLY_DATA_MAX, Request};
use crate::stream::{Io, Stream};

/// Longer than the agent's own limits: 10 s for connecting, and as long again for the handshake.
const TIMEOUT: Duration = Duration::from_secs(60);

/// File name of the socket in `XDG_RUNTIME_DIR`, the default.
const NAME: &str = "headstart.sock";

/// The agent of this machine, as `headstart agent --socket` or `--managed-listen` runs it.
///
/// Creating an `Agent` connects to nothing.
#[derive(Clone)]
pub struct Agent {
    at: Address,
    timeout: Duration,
}

#[derive(Clone)]
enum Address {
    Socket(PathBuf),
    Port { address: SocketAddr, token: String },
}

impl Agent {
    /// Returns the agent that listens on this socket.
    pub fn socket(path: impl Into<PathBuf>) -> Self {
        Self { at: Address::Socket(path.into()), timeout: TIMEOUT }
    }

    /// Returns the agent that listens on this loopback port, with the token that it requires.
    pub fn port(address: SocketAddr, token: impl Into<String>) -> Self {
        Self { at: Address::Port { address, token: token.into() }, timeout: TIMEOUT }
    }

    /// Returns the agent at `HEADSTART_SOCKET`, else at `$XDG_RUNTIME_DIR/headstart.sock`.
    ///
    /// # Errors
    /// [`Error::Unnamed`].
    pub fn from_env() -> Result<Self, Error> {
        if let Some(path) = variable("HEADSTART_SOCKET") {
            return Ok(Self::socket(path));
        }
        let dir = variable("XDG_RUNTIME_DIR").ok_or(Error::Unnamed)?;
        Ok(Self::socket(Path::new(&dir).join(NAME)))
    }

    /// Limits the time that a connection may take, from here to the end of the handshake: 60 s by
    /// default. The agent has bounds of its own.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Connects to a server; the agent speaks TLS with it.
    ///
    /// `early_data` (at most 16 KiB, usually empty) may be sent before the handshake completes. If
    /// the facts say [`Accepted`](crate::EarlyData::Accepted), the server has it; otherwise the
    /// caller must send it first. **Anyone on the path can replay it** (RFC 8446 section 8).
    ///
    /// # Errors
    /// The agent cannot be reached, or refuses.
    pub async fn connect(
        &self,
        host: &str,
        port: u16,
        options: &Options,
        early_data: &[u8],
    ) -> Result<Stream, Error> {
        if early_data.len() > EARLY_DATA_MAX {
            return Err(Error::Unsupported("there are more than 16 KiB of early data"));
        }
        let mut request = Request::to(host, port)?;
        request.managed(options, early_data)?;
        let (io, head, behind) = self.ask(request).await?;
        let facts = Some(Facts::read(&head)?);
        Ok(Stream { io, behind, facts })
    }

    /// Connects to a server; the agent passes bytes unchanged.
    ///
    /// # Errors
    /// The agent cannot be reached, or refuses.
    pub async fn connect_bare(
        &self,
        host: &str,
        port: u16,
        context: Option<&str>,
    ) -> Result<Stream, Error> {
        let mut request = Request::to(host, port)?;
        if let Some(context) = context {
            request.field("Headstart-Context", context)?;
        }
        let (io, _, behind) = self.ask(request).await?;
        Ok(Stream { io, behind, facts: None })
    }

    async fn ask(&self, mut request: Request) -> Result<(Io, Head, Bytes), Error> {
        if let Address::Port { token, .. } = &self.at {
            request.field("Proxy-Authorization", &format!("Bearer {token}"))?;
        }
        let asked = timeout(self.timeout, self.exchange(request.finish())).await;
        asked.unwrap_or(Err(Error::TimedOut))
    }

    async fn exchange(&self, request: String) -> Result<(Io, Head, Bytes), Error> {
        let mut io = self.dial().await.map_err(|error| self.unavailable(error))?;
        // An overloaded agent answers without reading and closes: its answer is still there.
        let written = io.write_all(request.as_bytes()).await;
        let (head, behind) = match (Head::read(&mut io).await, written) {
            (Ok(read), _) => read,
            (Err(HeadError::Malformed(error)), _) => return Err(error),
            (Err(HeadError::Io(_)), Err(error)) | (Err(HeadError::Io(error)), Ok(())) => {
                return Err(self.unavailable(error));
            }
        };
        if (200..300).contains(&head.status) {
            return Ok((io, head, behind));
        }
        let text = head.read_text(&mut io, behind).await;
        let name = head.field("Headstart-Error").unwrap_or_default();
        Err(Error::Refused(Box::new(Refusal::new(head.status, name, &text))))
    }

    fn unavailable(&self, source: io::Error) -> Error {
        Error::Unavailable { agent: self.to_string(), source }
    }

    async fn dial(&self) -> io::Result<Io> {
        match &self.at {
            Address::Socket(path) => UnixStream::connect(path).await.map(Io::Unix),
            Address::Port { address, .. } => {
                let tcp = TcpStream::connect(address).await?;
                tcp.set_nodelay(true)?;
                Ok(Io::Tcp(tcp))
            }
        }
    }
}

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Address::Socket(path) => write!(f, "{}", path.display()),
            Address::Port { address, .. } => write!(f, "{address}"),
        }
    }
}

/// Omits the token.
impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({self})")
    }
}
