//! The far end: an ordinary TLS server, and an edge before it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use headstart_net::{Acceptor, AcceptorConfig, Arrival, RelayCounts, RelayLimits, bridge};
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslAcceptor, SslMethod};
use openssl::x509::X509;
use tokio::net::{TcpListener, TcpStream};
use tokio_openssl::SslStream;

use headstart::base::failure::Failure;
use headstart::tls::ALPN;

/// Answer of the origin.
const PAGE: &[u8] = b"hello over a slow link\n";

/// A certificate of its own issuer, and its key.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: X509,
    key: PKey<Private>,
}

impl Identity {
    pub(super) fn new(name: &str) -> Result<Self, Failure> {
        let made = headstart_openers::self_signed(name);
        let (certificate, key) = made.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self { certificate, key })
    }
}

/// Serves for ever; calls `ready` as soon as connections are accepted.
pub(super) async fn serve(
    address: SocketAddr,
    identity: Identity,
    ready: impl FnOnce(),
) -> Result<(), Failure> {
    let tls = acceptor(&identity)
        .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))?;
    let origin = SocketAddr::new(address.ip(), 0);
    let origin = TcpListener::bind(origin).await.map_err(|error| Failure::bind(origin, &error))?;
    let behind = origin.local_addr().map_err(|error| Failure::bind(address, &error))?;
    let edge = Acceptor::bind(address, AcceptorConfig::default())
        .map_err(|error| Failure::bind(address, &error))?;
    ready();
    let (origin, edge) = tokio::join!(run_origin(origin, tls), run_edge(edge, behind));
    origin.and(edge).map_err(|error| Failure::usage(format!("the emulated server ended: {error}")))
}

/// TLS of a server with a certificate of its own for `name`.
pub(crate) fn tls_acceptor(name: &str) -> Result<SslAcceptor, Failure> {
    acceptor(&Identity::new(name)?)
        .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))
}

fn acceptor(identity: &Identity) -> Result<SslAcceptor, ErrorStack> {
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    tls.set_certificate(&identity.certificate)?;
    tls.set_private_key(&identity.key)?;
    tls.set_alpn_select_callback(|_, offered| {
        openssl::ssl::select_next_proto(ALPN, offered).ok_or(openssl::ssl::AlpnError::NOACK)
    });
    Ok(tls.build())
}

async fn run_origin(listener: TcpListener, tls: SslAcceptor) -> io::Result<()> {
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let ssl = Ssl::new(tls.context())?;
        tokio::spawn(async move {
            if let Err(error) = answer(tcp, ssl).await {
                tracing::debug!(%error, "origin");
            }
        });
    }
}

async fn answer(tcp: TcpStream, ssl: Ssl) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut stream = SslStream::new(ssl, tcp)?;
    Pin::new(&mut stream).accept().await?;
    let page = service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(PAGE))))
    });
    Ok(http1::Builder::new().serve_connection(TokioIo::new(stream), page).await?)
}

async fn run_edge(mut edge: Acceptor, origin: SocketAddr) -> io::Result<()> {
    loop {
        let arrival = edge.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = pass(arrival, origin).await {
                tracing::debug!(%error, "edge");
            }
        });
    }
}

async fn pass(arrival: Arrival, origin: SocketAddr) -> io::Result<()> {
    // `None` is the TCP part of a session that another task passes already.
    let Some(stream) = arrival.establish().await? else { return Ok(()) };
    let origin = TcpStream::connect(origin).await?;
    origin.set_nodelay(true)?;
    let counts = RelayCounts::default();
    bridge(stream, origin, &[], RelayLimits::default(), &counts, |_| {}).await;
    Ok(())
}
