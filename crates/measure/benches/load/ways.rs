//! The ways of a program to an origin that speaks TLS: OpenSSL in itself, the agent, or HAProxy in
//! between.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_openers::NAME;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslSession, SslSessionCacheMode, SslVerifyMode,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_openssl::SslStream;

use super::{Failure, sys};

/// Plain bytes both ways.
pub(crate) trait Plain: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Plain for T {}

/// One of them. All check the origin's certificate for its name.
pub(crate) enum Way {
    Direct(Direct),
    Managed(Managed),
    Proxied(Proxied),
}

impl Way {
    /// A connection with a full handshake, or one that resumes if there is something to resume.
    pub(crate) async fn open(&self, resumes: bool) -> Result<Box<dyn Plain>, Failure> {
        let opened: Box<dyn Plain> = match self {
            Self::Direct(direct) => Box::new(direct.open(resumes).await?),
            Self::Managed(managed) => Box::new(managed.open(resumes).await?),
            Self::Proxied(proxied) => Box::new(proxied.open(resumes).await?),
        };
        Ok(opened)
    }
}

/// A program that speaks TLS by itself, with the settings that OpenSSL has for all.
pub(crate) struct Direct {
    origin: SocketAddr,
    full: SslContext,
    resuming: SslContext,
    /// Tickets of TLS 1.3, to be shown once (RFC 8446 appendix C.4): a resumption takes one and
    /// brings one.
    sessions: Sessions,
}

type Sessions = Arc<Mutex<Vec<SslSession>>>;

impl Direct {
    /// To `origin`, trusting the certificates in the file `root`.
    pub(crate) fn new(origin: SocketAddr, root: &Path) -> Result<Self, Failure> {
        let sessions = Sessions::default();
        let kept = Arc::clone(&sessions);
        let mut resuming = checking(root)?;
        resuming
            .set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        resuming.set_new_session_callback(move |_, session| lock(&kept).push(session));
        Ok(Self { origin, full: checking(root)?.build(), resuming: resuming.build(), sessions })
    }

    async fn open(&self, resumes: bool) -> Result<SslStream<TcpStream>, Failure> {
        let tcp = connect(self.origin).await?;
        let mut ssl = Ssl::new(if resumes { &self.resuming } else { &self.full })?;
        ssl.set_hostname(NAME)?;
        ssl.param_mut().set_host(NAME)?;
        let session = if resumes { lock(&self.sessions).pop() } else { None };
        if let Some(session) = &session {
            sys::set_session(&mut ssl, session)?;
        }
        let mut tls = SslStream::new(ssl, tcp)?;
        Pin::new(&mut tls).connect().await?;
        Ok(tls)
    }
}

fn checking(root: &Path) -> Result<SslContextBuilder, Failure> {
    let mut context = SslContext::builder(SslMethod::tls_client())?;
    context.set_ca_file(root)?;
    context.set_verify(SslVerifyMode::PEER);
    Ok(context)
}

fn lock(sessions: &Sessions) -> MutexGuard<'_, Vec<SslSession>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that has the agent speak TLS (docs/managed.md).
pub(crate) struct Managed {
    socket: PathBuf,
    full: String,
    resuming: String,
}

impl Managed {
    /// To `origin`, by the agent that listens on `socket`.
    pub(crate) fn new(origin: SocketAddr, socket: PathBuf) -> Self {
        let request = |policy: &str| {
            format!(
                "CONNECT {origin} HTTP/1.1\r\n\
                 Host: {origin}\r\n\
                 Headstart-TLS: managed\r\n\
                 Headstart-Server-Name: {NAME}\r\n\
                 Headstart-Policy: {policy}\r\n\r\n"
            )
        };
        Self { socket, full: request("off"), resuming: request("share") }
    }

    /// Waits for the answer, as programs do that want to know what was agreed on.
    async fn open(&self, resumes: bool) -> Result<UnixStream, Failure> {
        let mut socket = UnixStream::connect(&self.socket).await?;
        let request = if resumes { &self.resuming } else { &self.full };
        socket.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(4096);
        // Nothing comes behind the head before the origin is asked for something.
        while !head.ends_with(b"\r\n\r\n") {
            let read = socket.read_buf(&mut head).await?;
            if read == 0 || !is_begun(&head) {
                return Err(format!("the agent says {}", String::from_utf8_lossy(&head)).into());
            }
        }
        Ok(socket)
    }
}

/// Returns true if this may become a yes.
fn is_begun(head: &[u8]) -> bool {
    const YES: &[u8] = b"HTTP/1.1 200 ";
    head.iter().zip(YES).all(|(has, wanted)| has == wanted)
}

/// A program that sends plain bytes to HAProxy, which has a port with sessions and one without.
pub(crate) struct Proxied {
    pub(crate) full: SocketAddr,
    pub(crate) resuming: SocketAddr,
}

impl Proxied {
    async fn open(&self, resumes: bool) -> Result<TcpStream, Failure> {
        connect(if resumes { self.resuming } else { self.full }).await
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
