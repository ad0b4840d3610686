use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use openssl::x509::X509;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connecting, Connection, Endpoint, ZeroRttAccepted};
use rustls::RootCertStore;
use rustls::client::{ClientSessionStore, Resumption, Tls13ClientSessionValue};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::{PROTOCOL, provider};
use crate::arm::Suite;
use crate::content::{self, Response};
use crate::error::PeerError;
use crate::kept::Kept;
use crate::tickets::Arrived;
use crate::trial::{Marks, Trial, out_of_time};
use headstart_proto::Carrier;

/// Bytes read at a time.
const READ: usize = 16 * 1024;

/// Time that a ticket is waited for when the response is here: two round trips of a satellite link
/// and one retransmission.
const TICKET: Duration = Duration::from_secs(3);

/// Opens QUIC connections, each from a socket of its own, as browsers do.
///
/// What can be ready before there is a connection is made by [`ready`](Self::ready), before the
/// clock starts: the configuration, as the other arms have theirs in a context, and the endpoint.
/// quinn makes that with its socket, so the UDP socket is outside the clock as well: TurboTLS makes
/// its own inside, which costs it some microseconds more. Inside are the TLS session, the ticket
/// that it takes, and all packets.
#[derive(Debug)]
pub(crate) struct QuicClient {
    config: Config,
    tickets: Arc<Kept<Tls13ClientSessionValue>>,
    name: String,
}

/// Without resumption, connections share one; else each has its own, which learns of its
/// tickets.
#[derive(Debug)]
enum Config {
    Shared(ClientConfig),
    Each(Box<rustls::ClientConfig>),
}

/// State of one connection before it begins.
#[derive(Debug)]
pub(crate) struct Ready {
    endpoint: Endpoint,
    arrived: Option<Arc<Arrived>>,
}

impl Ready {
    /// Waits until its connection, which is closed, has nothing more to send.
    pub(crate) async fn idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl QuicClient {
    /// Trusts `roots` for `name`; without `early`, nothing is resumed.
    pub(crate) fn new(
        suite: Suite,
        roots: &[X509],
        name: &str,
        early: bool,
    ) -> Result<Self, PeerError> {
        let mut trusted = RootCertStore::empty();
        for root in roots {
            trusted.add(CertificateDer::from(root.to_der()?))?;
        }
        let mut tls = rustls::ClientConfig::builder_with_provider(provider(suite))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        tls.enable_early_data = early;
        tls.resumption = Resumption::disabled();
        let config =
            if early { Config::Each(Box::new(tls)) } else { Config::Shared(quic_config(tls)?) };
        Ok(Self { config, tickets: Arc::default(), name: name.to_owned() })
    }

    /// Prepares a connection to `to`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// No socket can be had.
    pub(crate) fn ready(&self, to: SocketAddr) -> Result<Ready, PeerError> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut endpoint = Endpoint::client((any, 0).into())
            .map_err(|error| PeerError::new(format!("cannot make a UDP socket: {error}")))?;
        let (config, arrived) = match &self.config {
            Config::Shared(config) => (config.clone(), None),
            Config::Each(tls) => {
                let tickets = Arc::clone(&self.tickets);
                let arrived = Arc::new(Arrived::new(tickets));
                let mut tls = rustls::ClientConfig::clone(tls);
                tls.resumption =
                    Resumption::store(Arc::clone(&arrived) as Arc<dyn ClientSessionStore>);
                (quic_config(tls)?, Some(arrived))
            }
        };
        endpoint.set_default_client_config(config);
        Ok(Ready { endpoint, arrived })
    }

    pub(crate) fn forget(&self) {
        self.tickets.clear();
    }

    /// Makes one connection with one request.
    pub(crate) async fn open(
        &self,
        ready: Ready,
        to: SocketAddr,
        bytes: u64,
        marks: Marks,
        limit: Duration,
    ) -> Trial {
        let mut visit = Visit { marks, early: None, connection: None, reason: "" };
        let outcome = timeout(limit, self.run(&ready, to, bytes, &mut visit)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(out_of_time(visit.marks.stage())));
        if let (Some(arrived), Ok(())) = (&ready.arrived, &outcome) {
            let _ = timeout(TICKET, arrived.some()).await;
        }
        if let Some(connection) = visit.connection {
            connection.close(0u32.into(), b"");
        }
        let early_data = visit.early == Some(true);
        Trial {
            opening: Carrier::Quic,
            // quinn reports a resumption only if the early data was accepted.
            resumed: early_data,
            early_data,
            reason: visit.reason.to_owned(),
            ..visit.marks.trial(outcome)
        }
    }

    /// A connection, with early data if that may be; then whether the server takes it is known
    /// later.
    pub(crate) async fn connect(
        &self,
        ready: &Ready,
        to: SocketAddr,
    ) -> Result<(Connection, Option<ZeroRttAccepted>), String> {
        let connecting = ready.endpoint.connect(to, &self.name);
        let connecting = connecting.map_err(|error| error.to_string())?;
        connected(connecting, ready.arrived.is_some()).await
    }

    async fn run(
        &self,
        ready: &Ready,
        to: SocketAddr,
        bytes: u64,
        visit: &mut Visit,
    ) -> Result<(), String> {
        let (connection, accepted) = self.connect(ready, to).await?;
        visit.connection = Some(connection.clone());
        let request = content::request(&self.name, bytes);
        let first = exchange(&connection, &request, bytes, &mut visit.marks).await;
        let Some(accepted) = accepted else { return first };
        let accepted = accepted.await;
        visit.early = Some(accepted);
        if accepted {
            return first;
        }
        visit.reason = "early_data_refused";
        exchange(&connection, &request, bytes, &mut visit.marks).await
    }
}

fn quic_config(tls: rustls::ClientConfig) -> Result<ClientConfig, PeerError> {
    let tls = QuicClientConfig::try_from(tls)
        .map_err(|error| PeerError::new(format!("cannot use rustls for QUIC: {error}")))?;
    Ok(ClientConfig::new(Arc::new(tls)))
}

async fn connected(
    connecting: Connecting,
    early: bool,
) -> Result<(Connection, Option<ZeroRttAccepted>), String> {
    let connecting = match early {
        true => match connecting.into_0rtt() {
            Ok((connection, accepted)) => return Ok((connection, Some(accepted))),
            Err(connecting) => connecting,
        },
        false => connecting,
    };
    let connection = connecting.await.map_err(|error| format!("QUIC: {error}"))?;
    Ok((connection, None))
}

/// Knowledge of one connection, however far it comes.
struct Visit {
    marks: Marks,
    early: Option<bool>,
    connection: Option<Connection>,
    reason: &'static str,
}

async fn exchange(
    connection: &Connection,
    request: &[u8],
    bytes: u64,
    marks: &mut Marks,
) -> Result<(), String> {
    let opened = connection.open_bi().await;
    let (mut send, mut receive) = opened.map_err(|error| format!("{}: {error}", marks.stage()))?;
    marks.request();
    let written = send.write_all(request).await;
    written.map_err(|error| format!("{}: {error}", marks.stage()))?;
    // This fails only if the stream is already closed, which reading reports, too.
    let _ = send.finish();
    let mut response = Response::new(bytes);
    let mut buffer = vec![0; READ];
    loop {
        let read = receive.read(&mut buffer).await;
        let read = read.map_err(|error| format!("{}: {error}", marks.stage()))?;
        let Some(count) = read else { return Err(marks.stage().to_owned()) };
        if response.take(buffer.get(..count).unwrap_or_default(), marks)? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use super::*;
    use crate::identity::Identity;
    use crate::quic::serve;

    #[tokio::test]
    async fn the_socket_of_a_connection_is_there_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::obtain(directory.path(), Suite::P256, "peer.test", None).unwrap();
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let (to, _serving) = serve([any_port].into_iter(), Suite::P256, &identity, true).unwrap();
        let roots = [identity.root().unwrap().clone()];
        for early in [false, true] {
            let client = QuicClient::new(Suite::P256, &roots, "peer.test", early).unwrap();
            for number in 0..3 {
                let ready = client.ready(to).unwrap();
                let local = ready.endpoint.local_addr().unwrap();
                assert!(UdpSocket::bind(local).is_err(), "it is bound");
                let marks = Marks::new(Instant::now());
                let trial = client.open(ready, to, 1000, marks, TICKET).await;
                assert!(trial.ok, "{trial:?}");
                assert_eq!(trial.early_data, early && number > 0, "{trial:?}");
            }
        }
    }

    #[tokio::test]
    async fn connections_that_are_ready_have_sockets_of_their_own() {
        let client = QuicClient::new(Suite::P256, &[], "peer.test", false).unwrap();
        let to = (Ipv4Addr::LOCALHOST, 9).into();
        let ready = [(); 2].map(|()| client.ready(to).unwrap());
        let [one, two] = ready.each_ref().map(|ready| ready.endpoint.local_addr().unwrap().port());
        assert_ne!(one, two);
    }
}
