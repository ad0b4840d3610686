use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use tokio::task::{JoinHandle, JoinSet};

use super::{PROTOCOL, provider};
use crate::arm::Suite;
use crate::content::{Answer, Requests};
use crate::error::PeerError;
use crate::identity::Identity;
use crate::serving::{Broken, end};

/// Sessions kept for tickets that allow early data, as OpenSSL keeps by default.
const SESSIONS_MAX: usize = 20_480;

/// Bytes written at a time.
const WRITE: usize = 16 * 1024;

/// Listens at all addresses, and serves in tasks; gives the first. With `early`, tickets allow
/// early data, and each is good once, at any of the addresses.
pub(crate) fn serve(
    addresses: impl Iterator<Item = SocketAddr>,
    suite: Suite,
    identity: &Identity,
    early: bool,
) -> Result<(SocketAddr, JoinHandle<()>), PeerError> {
    let config = config(suite, identity, early)?;
    let mut accepting = JoinSet::new();
    let mut local = None;
    for address in addresses {
        let endpoint = Endpoint::server(config.clone(), address);
        let bound = endpoint.and_then(|endpoint| Ok((endpoint.local_addr()?, endpoint)));
        let (at, endpoint) = bound.map_err(|error| {
            PeerError::new(format!("cannot listen on {address}: {error}"))
                .with_hint("another program may have the port, or the address may not be here")
        })?;
        local.get_or_insert(at);
        accepting.spawn(accept(endpoint, early));
    }
    let local = local.ok_or_else(|| PeerError::new("a server has no address to listen on"))?;
    Ok((local, tokio::spawn(async move { while accepting.join_next().await.is_some() {} })))
}

async fn accept(endpoint: Endpoint, early: bool) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(end(serve_one(incoming, early)));
    }
}

fn config(suite: Suite, identity: &Identity, early: bool) -> Result<ServerConfig, PeerError> {
    let certificates = identity
        .certificates
        .iter()
        .map(|certificate| Ok(CertificateDer::from(certificate.to_der()?)))
        .collect::<Result<_, PeerError>>()?;
    let key = PrivatePkcs8KeyDer::from(identity.key.private_key_to_pkcs8()?);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from(key))?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    if early {
        // Nothing else is allowed (RFC 9001 section 4.6.1).
        tls.max_early_data_size = u32::MAX;
        tls.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    }
    let tls = QuicServerConfig::try_from(tls)
        .map_err(|error| PeerError::new(format!("cannot use rustls for QUIC: {error}")))?;
    Ok(ServerConfig::with_crypto(Arc::new(tls)))
}

async fn serve_one(incoming: Incoming, early: bool) -> Result<(), Broken> {
    let connecting = incoming.accept()?;
    let connection = match early {
        true => connecting.into_0rtt().map_err(|_| "no early data")?.0,
        false => connecting.await?,
    };
    // As long as the client wants: a request whose early data was refused comes again, and those of
    // a page are many.
    let mut answers = JoinSet::new();
    while let Ok((send, receive)) = connection.accept_bi().await {
        while answers.try_join_next().is_some() {}
        answers.spawn(answer(connection.clone(), send, receive));
    }
    Ok(())
}

async fn answer(connection: Connection, send: SendStream, receive: RecvStream) {
    if let Err(error) = try_answer(&connection, send, receive).await {
        tracing::debug!(%error, "stream");
    }
}

async fn try_answer(
    connection: &Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<(), Broken> {
    let mut requests = Requests::default();
    let mut buffer = vec![0; WRITE];
    let request = loop {
        if let Some(request) = requests.poll() {
            break request;
        }
        let Some(count) = receive.read(&mut buffer).await? else {
            connection.close(1u32.into(), b"no whole request");
            return Ok(());
        };
        requests.take(buffer.get(..count).unwrap_or_default());
    };
    let mut answer = Answer::new(request);
    answer.think().await;
    loop {
        let piece = answer.next(answer.piece());
        if piece.is_empty() {
            break;
        }
        send.write_all(&piece).await?;
    }
    Ok(send.finish()?)
}
