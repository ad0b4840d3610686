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
use crate::proof::{Challenge, is_token};
use crate::request::{EARLY_DATA_MAX, Request};
use crate::stream::{Io, Stream};
use crate::trust::{is_anyone, is_trusted};

/// Longer than the agent's own limits: 10 s for connecting, and as long again for the handshake.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Status of a refusal for want of room, which an agent sends instead of a proof.
const OVERLOADED: u16 = 503;

/// Words for it.
const TOO_MANY: &str = "there are too many connections to the agent\n\
    hint: close some, or start the agent with a larger --max-connections";

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
    /// Returns the agent that listens on this socket, as this user, as root, or as the user whose
    /// number is in `HEADSTART_AGENT_UID`.
    pub fn socket(path: impl Into<PathBuf>) -> Self {
        Self { at: Address::Socket(path.into()), timeout: TIMEOUT }
    }

    /// Returns the agent that listens on this loopback port, with the token that both prove to each
    /// other: 32 to 256 letters and digits. With any other, no listener is trusted.
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

    async fn ask(&self, request: Request) -> Result<(Io, Head, Bytes), Error> {
        let response = timeout(self.timeout, self.exchange(request)).await;
        response.unwrap_or(Err(Error::TimedOut))
    }

    /// Sends the request to a listener that has shown that it is the agent, and to no other.
    async fn exchange(&self, mut request: Request) -> Result<(Io, Head, Bytes), Error> {
        let mut io = match &self.at {
            Address::Socket(path) => self.dial_socket(path).await?,
            Address::Port { address, token } => {
                let (io, proof) = self.dial_port(*address, token).await?;
                request.field("Proxy-Authorization", &format!("Headstart {proof}"))?;
                io
            }
        };
        let (head, behind) = self.send(&mut io, &request.finish()).await?;
        if (200..300).contains(&head.status) {
            return Ok((io, head, behind));
        }
        let text = head.read_text(&mut io, behind).await;
        let name = head.field("Headstart-Error").unwrap_or_default();
        Err(Error::Refused(Box::new(Refusal::new(head.status, name, &text))))
    }

    /// Sends a request, and reads the head of the answer.
    async fn send(&self, io: &mut Io, request: &str) -> Result<(Head, Bytes), Error> {
        // An overloaded agent answers without reading and closes: its answer is still there.
        let written = io.write_all(request.as_bytes()).await;
        match (Head::read(io).await, written) {
            (Ok(read), _) => Ok(read),
            (Err(HeadError::Malformed(error)), _) => Err(error),
            (Err(HeadError::Io(_)), Err(error)) | (Err(HeadError::Io(error)), Ok(())) => {
                Err(self.unavailable(error))
            }
        }
    }

    fn unavailable(&self, source: io::Error) -> Error {
        Error::Unavailable { agent: self.to_string(), source }
    }

    /// Connects to a Unix socket whose listener is trusted.
    async fn dial_socket(&self, path: &Path) -> Result<Io, Error> {
        let unix = UnixStream::connect(path).await.map_err(|error| self.unavailable(error))?;
        let peer = unix.peer_cred().map_err(|error| self.unavailable(error))?;
        if is_trusted(peer.uid()) {
            return Ok(Io::Unix(unix));
        }
        let uid = peer.uid();
        let hint = if is_anyone(uid) {
            "run the agent as this user or root, in this user namespace".into()
        } else {
            format!("if the agent runs as that user, say so: HEADSTART_AGENT_UID={uid}")
        };
        let why = format!("it is user {uid}, neither this user nor root");
        Err(Error::Untrusted { agent: self.to_string(), why, hint })
    }

    /// Connects to a port whose listener proves the token; returns the proof to show it.
    async fn dial_port(&self, address: SocketAddr, token: &str) -> Result<(Io, String), Error> {
        if !is_token(token) {
            return Err(Error::Untrusted {
                agent: address.to_string(),
                why: "anyone could prove what is given as its token".into(),
                hint: "a token has 32 to 256 letters and digits: is the file of it empty?".into(),
            });
        }
        let tcp = TcpStream::connect(address).await.map_err(|error| self.unavailable(error))?;
        let challenge = challenge(&tcp, token).map_err(|error| self.unavailable(error))?;
        let mut io = Io::Tcp(tcp);
        let (head, behind) = self.send(&mut io, &challenge.request()).await?;
        if head.status == OVERLOADED {
            // Anyone may say so; it is taken for no word of the agent, so its text is not read.
            return Err(Error::Refused(Box::new(Refusal::new(OVERLOADED, "overloaded", TOO_MANY))));
        }
        let proof = challenge.answer(&head)?;
        if !behind.is_empty() {
            return Err(Error::NotUnderstood("there is more than a proof"));
        }
        Ok((io, proof))
    }
}

fn challenge<'a>(tcp: &TcpStream, token: &'a str) -> io::Result<Challenge<'a>> {
    tcp.set_nodelay(true)?;
    Challenge::new(token, tcp.local_addr()?, tcp.peer_addr()?)
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
