//! The far end: an ordinary TLS server, and an edge before it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use headstart_net::{
    Acceptor, AcceptorConfig, Arrival, RelayCounts, RelayLimits, TlsStream, bridge,
};
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{CertifiedKey, Conn, ServerConfig, ServerContext, SharedRing};
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use tokio::net::{TcpListener, TcpStream};

use headstart::base::clock::wall_clock;
use headstart::base::failure::Failure;

/// Answer of the origin.
const PAGE: &[u8] = b"hello over a slow link\n";

/// A certificate of its own issuer, and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

impl Identity {
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
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
    let tls = context(&identity).map_err(|error| unusable(error.as_ref()))?;
    let origin = SocketAddr::new(address.ip(), 0);
    let origin = TcpListener::bind(origin).await.map_err(|error| Failure::bind(origin, &error))?;
    let behind = origin.local_addr().map_err(|error| Failure::bind(address, &error))?;
    let edge = Acceptor::bind(address, AcceptorConfig::default())
        .map_err(|error| Failure::bind(address, &error))?;
    ready();
    let (origin, edge) = tokio::join!(run_origin(origin, tls), run_edge(edge, behind));
    origin.and(edge).map_err(|error| Failure::usage(format!("the emulated server ended: {error}")))
}

/// TLS of the origin, with a key ring that ends with this process.
fn context(identity: &Identity) -> Result<ServerContext, Box<dyn std::error::Error>> {
    let chain = identity.certificate.to_pem()?;
    let certified = CertifiedKey::from_pem(&chain, &identity.key.private_key_to_pem_pkcs8()?)?;
    let keys = SharedRing::new(KeyRing::generate(wall_clock(), PERIOD)?);
    let mut config = ServerConfig::new(vec![certified], Arc::new(keys));
    config.alpn = vec![b"http/1.1".to_vec()];
    Ok(ServerContext::new(&config)?)
}

fn unusable(error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("cannot use OpenSSL: {error}"))
}

async fn run_origin(listener: TcpListener, tls: ServerContext) -> io::Result<()> {
    loop {
        let (tcp, peer) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let conn = tls.accept(peer.ip(), wall_clock()).map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = answer(tcp, conn).await {
                tracing::debug!(%error, "origin");
            }
        });
    }
}

async fn answer(tcp: TcpStream, conn: Conn) -> hyper::Result<()> {
    let stream = TlsStream::new(conn, tcp);
    let page = service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(PAGE))))
    });
    http1::Builder::new().serve_connection(TokioIo::new(stream), page).await
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
