use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::thread::available_parallelism;
use std::time::Duration;

use headstart_net::{Acceptor, AcceptorConfig, Arrival, ServerConfig};
use openssl::ssl::{Ssl, SslContext};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_openssl::SslStream;

use crate::arm::{Arm, Carrier, Suite};
use crate::client::{NAME, supported};
use crate::content::{Answer, asked};
use crate::error::PeerError;
use crate::flight;
use crate::identity::Identity;
use crate::quic;
use crate::sys;
use crate::tls;

/// Connections the kernel completes before they are accepted, as the edge has it.
const BACKLOG: i32 = 4096;

/// How long one connection is served; longer than any client of an experiment waits.
pub(crate) const LIFE: Duration = Duration::from_secs(300);

/// Pause after accepting failed, as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes written at a time: one TLS record.
const WRITE: usize = 16 * 1024;

/// Bytes answered to early data before the client's Finished: what TCP's initial window holds
/// (RFC 6928). More would wait for acknowledgements, and these come with the Finished.
const HALF_RTT_MAX: usize = 14 * 1024;

/// What a server does.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How connections are opened.
    pub arm: Arm,
    /// What they agree on.
    pub suite: Suite,
    /// Where it listens; port 0 picks one.
    pub listen: SocketAddr,
    /// Where certificate and key are, or are left for other servers and clients.
    pub identity: PathBuf,
    /// The name that a new certificate is for.
    pub name: String,
    /// Bytes that its first flight should have, TLS records included.
    pub flight: Option<usize>,
    /// Threads of the program; by default one for each CPU.
    pub threads: usize,
    /// Threads that read the datagrams of TurboTLS.
    pub udp_workers: usize,
}

impl ServerOptions {
    /// As usual.
    #[must_use]
    pub fn new(arm: Arm, suite: Suite, listen: SocketAddr, identity: impl Into<PathBuf>) -> Self {
        Self {
            arm,
            suite,
            listen,
            identity: identity.into(),
            name: NAME.to_owned(),
            flight: None,
            threads: available_parallelism().map_or(1, Into::into),
            udp_workers: AcceptorConfig::default().udp_workers,
        }
    }
}

/// Serves one arm until it is dropped.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    flight_bytes: usize,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens, and serves in tasks of the tokio runtime it is called in.
    ///
    /// # Errors
    /// Options that do not go together, an address or directory that cannot be used.
    pub fn start(options: ServerOptions) -> Result<Self, PeerError> {
        let ServerOptions { arm, suite, listen, name, .. } = &options;
        supported(*arm, *suite)?;
        let identity = Identity::obtain(&options.identity, *suite, name, options.flight)?;
        let flight_bytes = flight::measure(*suite, &identity, name)?;
        let early = arm.sends_early_data();
        let unusable = |error: io::Error| {
            PeerError::new(format!("cannot listen on {listen}: {error}"))
                .with_hint("another program may have the port, or the address may not be here")
        };
        let (local, task) = match arm.carrier() {
            Carrier::Quic => quic::serve(*listen, *suite, &identity, early)?,
            carrier => {
                let tls = tls::server(*suite, &identity, early)?;
                let started = match carrier {
                    Carrier::Turbo => serve_turbo(*listen, tls, early, options.udp_workers),
                    _ => serve_tcp(*listen, tls, early, carrier == Carrier::FastOpen),
                };
                started.map_err(unusable)?
            }
        };
        Ok(Self { local, flight_bytes, task })
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of its first flight in a full handshake over TCP, TLS records included.
    #[must_use]
    pub const fn flight_bytes(&self) -> usize {
        self.flight_bytes
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn serve_tcp(
    address: SocketAddr,
    tls: SslContext,
    early: bool,
    fast_open: bool,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = listen(address, fast_open)?;
    let local = listener.local_addr()?;
    let accept = async move {
        loop {
            match listener.accept().await {
                Ok((tcp, _)) => {
                    let tls = tls.clone();
                    tokio::spawn(async move {
                        // A client that is gone already is met again at the first read.
                        let _ = tcp.set_nodelay(true);
                        end(serve(tcp, &tls, early)).await;
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    Ok((local, tokio::spawn(accept)))
}

fn listen(address: SocketAddr, fast_open: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    if fast_open {
        sys::fast_open_queue(&socket, BACKLOG)?;
    }
    TcpListener::from_std(socket.into())
}

fn serve_turbo(
    address: SocketAddr,
    tls: SslContext,
    early: bool,
    udp_workers: usize,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let server = ServerConfig { early_data: early, ..ServerConfig::default() };
    let config = AcceptorConfig { server, udp_workers, ..AcceptorConfig::default() };
    let mut acceptor = Acceptor::bind(address, config)?;
    let local = acceptor.local_addr();
    let accept = async move {
        loop {
            match acceptor.accept().await {
                Ok(arrival) => {
                    let tls = tls.clone();
                    tokio::spawn(end(serve_arrival(arrival, tls, early)));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    Ok((local, tokio::spawn(accept)))
}

async fn serve_arrival(arrival: Arrival, tls: SslContext, early: bool) -> Result<(), Broken> {
    // `None` is the TCP part of a connection that another task serves already.
    let Some(stream) = arrival.establish().await? else { return Ok(()) };
    serve(stream, &tls, early).await
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A client sees for itself when its connection breaks; here it is only said to whoever listens.
async fn end(connection: impl Future<Output = Result<(), Broken>>) {
    match tokio::time::timeout(LIFE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "connection"),
        Err(_) => tracing::debug!("connection out of time"),
    }
}

/// One request and its answer.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    tls: &SslContext,
    early: bool,
) -> Result<(), Broken> {
    let mut ssl = Ssl::new(tls)?;
    ssl.set_accept_state();
    let mut stream = SslStream::new(ssl, stream)?;
    let mut request = Vec::new();
    let mut answer = None;
    if early {
        answer = read_early(&mut stream, &mut request).await?;
    }
    Pin::new(&mut stream).accept().await?;
    let mut answer = match answer {
        Some(answer) => answer,
        None => read_request(&mut stream, &mut request).await?,
    };
    loop {
        let piece = answer.next(WRITE);
        if piece.is_empty() {
            break;
        }
        stream.write_all(&piece).await?;
    }
    Ok(stream.shutdown().await?)
}

/// Takes early data, and begins to answer if the whole request was in it.
async fn read_early(
    stream: &mut SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    request: &mut Vec<u8>,
) -> Result<Option<Answer>, Broken> {
    let mut answer = None;
    let mut room = [0; 2048];
    loop {
        let count = Pin::new(&mut *stream).read_early_data(&mut room).await?;
        if count == 0 {
            return Ok(answer);
        }
        request.extend_from_slice(room.get(..count).unwrap_or_default());
        if let (None, Some(asked)) = (&answer, asked(request).transpose()) {
            let mut begun = Answer::new(asked);
            write_half_rtt(stream, &begun.next(HALF_RTT_MAX)).await?;
            answer = Some(begun);
        }
    }
}

async fn write_half_rtt(
    stream: &mut SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    mut left: &[u8],
) -> Result<(), Broken> {
    while !left.is_empty() {
        let count = Pin::new(&mut *stream).write_early_data(left).await?;
        left = left.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Early data may have brought a part of it.
async fn read_request(
    stream: &mut SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    request: &mut Vec<u8>,
) -> Result<Answer, Broken> {
    let mut room = [0; 2048];
    loop {
        if let Some(asked) = asked(request).transpose() {
            return Ok(Answer::new(asked));
        }
        let count = stream.read(&mut room).await?;
        if count == 0 {
            return Err("no whole request".into());
        }
        request.extend_from_slice(room.get(..count).unwrap_or_default());
    }
}
