//! Ways of a program to a server that speaks TLS: TLS in the program itself, or plain bytes to
//! the program that speaks TLS for it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_net::{TlsHandle, TlsStream};
use headstart_openers::NAME;
use headstart_tls::{ClientConfig, ClientContext, Session, Trust};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::work::{Place, Served, Work};

/// Request of a short answer, and of one without end.
const SHORT: &[u8] = b"GET / HTTP/1.1\r\nHost: peer.test\r\n\r\n";
const BULK: &[u8] = b"GET /bulk HTTP/1.1\r\nHost: peer.test\r\n\r\n";

/// Time that an exchange may take, or a stream among others may wait for its next bytes: a hang
/// takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes read at a time in bulk: four records.
const PIECE: usize = 64 * 1024;

/// Bytes of the long answer of [`answer`]: a few of them are more than kernels and proxies keep of
/// what nobody reads.
const LONG: usize = 256 * 1024;

/// Sessions kept: more than connections at a time.
const SESSIONS_MAX: usize = 1_024;

/// One of the ways. All of them check the server's certificate for its name.
#[derive(Clone)]
pub(super) enum Way {
    /// TLS by the program itself.
    Direct(Arc<Direct>),
    /// An agent that listens on a socket (docs/managed.md).
    Managed { socket: PathBuf, origin: SocketAddr, resumes: bool },
    /// A proxy that takes plain bytes over TCP.
    Plain(SocketAddr),
}

/// A server, and the state for connections to it.
pub(super) struct Direct {
    server: SocketAddr,
    context: ClientContext,
    /// Sessions to be offered once (RFC 8446 appendix C.4): a resumption takes one and brings one.
    /// Handshakes are full without them.
    sessions: Option<Mutex<Vec<Session>>>,
}

impl Direct {
    /// A client of `server` that trusts the certificates in the file `root`.
    pub(super) fn new(server: SocketAddr, root: &Path, resumes: bool) -> io::Result<Self> {
        let mut config = ClientConfig::new(Trust::Roots(std::fs::read(root)?));
        config.groups = Some("X25519".to_owned());
        let context = ClientContext::new(&config).map_err(io::Error::other)?;
        Ok(Self { server, context, sessions: resumes.then(Mutex::default) })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.server
    }

    async fn open(&self) -> io::Result<TlsStream<TcpStream>> {
        let tcp = connect(self.server).await?;
        let session = self.with_sessions(Vec::pop).flatten();
        let conn = self.context.connect(NAME, session, false).map_err(io::Error::other)?;
        Ok(TlsStream::new(conn, tcp))
    }

    fn keep(&self, handle: &TlsHandle<TcpStream>) {
        self.with_sessions(|kept| {
            let new = std::iter::from_fn(|| handle.take_session()).map(|new| new.session);
            let free = SESSIONS_MAX - kept.len();
            kept.extend(new.take(free));
        });
    }

    fn with_sessions<T>(&self, work: impl FnOnce(&mut Vec<Session>) -> T) -> Option<T> {
        let sessions = self.sessions.as_ref()?;
        Some(work(&mut sessions.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Way {
    /// Starts clients, each of which makes one exchange after the other. One alone waits until the
    /// server has closed, too.
    pub(super) fn clients(&self, place: Place<'_>, count: u16) -> io::Result<Work> {
        let way = self.clone();
        Work::exchanges(place, count, PATIENCE, move || {
            let way = way.clone();
            async move { way.exchange(count == 1).await }
        })
    }

    /// Starts `count` streams of the answer without end.
    pub(super) fn streams(&self, place: Place<'_>, count: u16) -> io::Result<Work> {
        let way = self.clone();
        Work::start(place, count, move |work| {
            let way = way.clone();
            async move {
                let mut stream = way.open().await?;
                stream.write_all(BULK).await?;
                let mut buffer = vec![0; PIECE];
                while !work.is_over() {
                    match timeout(PATIENCE, stream.read(&mut buffer)).await?? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        read => work.add_bytes(read),
                    }
                }
                Ok(())
            }
        })
    }

    /// Opens a connection, asks for the short answer and takes it.
    pub(super) async fn exchange(&self, to_the_end: bool) -> io::Result<Served> {
        let Self::Direct(direct) = self else {
            let mut stream = self.open().await?;
            let served = exchange(&mut stream).await?;
            if to_the_end {
                drain(stream).await;
            }
            return Ok(served);
        };
        let mut stream = direct.open().await?;
        let handle = stream.handle();
        let served = exchange(&mut stream).await?;
        // A server that ends without close_notify would spoil its sessions.
        direct.keep(&handle);
        let resumed = handle.facts().resumed;
        if to_the_end {
            drain(stream).await;
        }
        Ok(Served { resumed, ..served })
    }

    async fn open(&self) -> io::Result<Box<dyn Plain>> {
        Ok(match self {
            Self::Direct(direct) => Box::new(direct.open().await?),
            Self::Managed { socket, origin, resumes } => {
                Box::new(managed(socket, *origin, *resumes).await?)
            }
            Self::Plain(proxy) => Box::new(connect(*proxy).await?),
        })
    }
}

/// Plain bytes both ways.
trait Plain: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Plain for T {}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Waits for the agent's answer, as programs do that want to know what was agreed on.
async fn managed(socket: &Path, origin: SocketAddr, resumes: bool) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    let policy = if resumes { "share" } else { "off" };
    let request = format!(
        "CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\nHeadstart-TLS: managed\r\n\
         Headstart-Server-Name: {NAME}\r\nHeadstart-Policy: {policy}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(4096);
    // Nothing comes behind the head before the origin is asked for something.
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(stream);
    }
    Err(io::Error::other(format!("the agent says {}", String::from_utf8_lossy(&head).trim())))
}

/// Asks for the short answer, takes it and ends the program's side.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Served> {
    stream.write_all(SHORT).await?;
    let mut answer = Vec::with_capacity(1024);
    let mut first = None;
    let resumed = loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.get_or_insert_with(Instant::now);
        if let Some(body) = body(&answer)? {
            break body.starts_with(b"r ");
        }
    };
    stream.shutdown().await?;
    Ok(Served { first: first.unwrap_or_else(Instant::now), resumed, bytes: answer.len() })
}

/// Waits for the server's end, however it comes: the answer is here.
async fn drain(mut stream: impl AsyncRead + Unpin) {
    let mut buffer = [0; 64];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// Returns the body, once all of it is there: it ends with its line.
fn body(answer: &[u8]) -> io::Result<Option<&[u8]>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = answer.windows(END.len()).position(|four| four == END) else {
        return Ok(None);
    };
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        let text = String::from_utf8_lossy(answer);
        let line = text.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("the server says {line:?}")));
    }
    let body = answer.get(head + END.len()..).unwrap_or_default();
    Ok(Some(body).filter(|body| body.ends_with(b"\n")))
}

/// An origin's side of the short answer, for as many requests as come on a connection; of the long
/// one to `/long`, and of none to what has a body.
pub(super) async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let [short, long] = [100, LONG].map(|length| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; length - 1], b"\n"].concat()
    });
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await? > 0 {
        while let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") {
            let is_long = request.starts_with(b"GET /long ");
            if request.starts_with(b"POST ") {
                drain(stream).await;
                return Ok(());
            }
            request.drain(..end + 4);
            stream.write_all(if is_long { &long } else { &short }).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_line() {
        let whole = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nr TLSv1.3 x\n";
        assert_eq!(body(whole).unwrap(), Some(&b"r TLSv1.3 x\n"[..]));
        for length in 0..whole.len() {
            assert_eq!(body(&whole[..length]).unwrap(), None, "{length}");
        }
        let error = body(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").unwrap_err();
        assert!(error.to_string().contains("502 Bad Gateway"), "{error}");
    }

    #[tokio::test]
    async fn an_exchange_is_over_once_the_answer_is_whole() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await });
        let served = Way::Plain(address).exchange(true).await.unwrap();
        assert!(!served.resumed && served.bytes > 100, "{served:?}");
        server.await.unwrap().unwrap();
    }
}
