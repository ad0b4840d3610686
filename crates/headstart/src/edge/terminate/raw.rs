//! The bytes inside of TLS, for origins that speak no HTTP.

use std::io;
use std::net::SocketAddr;

use headstart_net::{ServerStream, TlsStream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::life::{Life, Over};
use crate::base::value::HostPort;
use crate::daemon;
use crate::edge::proxy_protocol;
use crate::edge::settings::ConnectionSettings;
use crate::metrics::Outcome;

/// A connection's two addresses, as the origin may be told them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) client: SocketAddr,
    pub(super) edge: SocketAddr,
}

/// Passes bytes between `tls`, which is open, and `origin` until both are through.
pub(super) async fn serve(
    tls: TlsStream<ServerStream>,
    origin: &HostPort,
    addresses: Addresses,
    settings: &ConnectionSettings,
    life: &Life,
) -> Over {
    let Ok(tcp) = connect(origin, addresses, settings).await else { return Over::Unreachable };
    let outcome = tokio::select! {
        // The bridge resets both sides when it is dropped.
        outcome = daemon::bridge(tls, tcp, &[], settings.limits, |_| {}) => Outcome::from(&outcome),
        over = life.handshake() => return over,
    };
    match outcome {
        Outcome::Closed => Over::Closed,
        Outcome::TimedOut => Over::Idle,
        _ => Over::Broken,
    }
}

async fn connect(
    origin: &HostPort,
    addresses: Addresses,
    settings: &ConnectionSettings,
) -> io::Result<TcpStream> {
    let mut tcp = settings.dial.connect(origin).await?;
    if settings.proxy_protocol {
        tcp.write_all(&proxy_protocol::header(addresses.client, addresses.edge)?).await?;
    }
    Ok(tcp)
}
