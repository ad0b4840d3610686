use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openssl::x509::X509;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connecting, Connection, Endpoint, ZeroRttAccepted};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{NamedGroup, RootCertStore};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{PROTOCOL, provider};
use crate::arm::Suite;
use crate::client::out_of_time;
use crate::content::{self, Response};
use crate::error::PeerError;
use crate::trial::{Marks, Opening, Trial};

/// Bytes read at a time.
const READ: usize = 16 * 1024;

/// Tickets kept: two come with each connection, and one is taken.
const TICKETS_MAX: usize = 4096;

/// How long a ticket is waited for when the response is here: two round trips of a satellite link and
/// one retransmission.
const TICKET: Duration = Duration::from_secs(3);

/// Opens QUIC connections, each from a socket of its own, as browsers do.
#[derive(Debug)]
pub(crate) struct QuicClient {
    tls: rustls::ClientConfig,
    tickets: Arc<Tickets>,
    name: String,
    early: bool,
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
        Ok(Self { tls, tickets: Arc::default(), name: name.to_owned(), early })
    }

    pub(crate) fn forget(&self) {
        self.tickets.lock().clear();
    }

    /// One connection, one request.
    pub(crate) async fn open(
        &self,
        to: SocketAddr,
        bytes: u64,
        marks: Marks,
        limit: Duration,
    ) -> Trial {
        let mut visit = Visit { marks, early: None, connection: None, reason: "" };
        let arrived =
            Arc::new(Arrived { tickets: Arc::clone(&self.tickets), notify: Notify::new() });
        let outcome = timeout(limit, self.run(to, bytes, &arrived, &mut visit)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(out_of_time(visit.marks.stage())));
        if self.early && outcome.is_ok() {
            let _ = timeout(TICKET, arrived.notify.notified()).await;
        }
        if let Some(connection) = visit.connection {
            connection.close(0u32.into(), b"");
        }
        let early_data = visit.early == Some(true);
        Trial {
            opening: Opening::Quic,
            // Only of a session whose early data was taken does quinn say that it was resumed.
            resumed: early_data,
            early_data,
            reason: visit.reason.to_owned(),
            ..visit.marks.trial(outcome)
        }
    }

    async fn run(
        &self,
        to: SocketAddr,
        bytes: u64,
        arrived: &Arc<Arrived>,
        visit: &mut Visit,
    ) -> Result<(), String> {
        let connecting = self.connect(to, arrived)?;
        let (connection, accepted) = self.connected(connecting).await?;
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

    fn connect(&self, to: SocketAddr, arrived: &Arc<Arrived>) -> Result<Connecting, String> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = Endpoint::client((any, 0).into()).map_err(|error| error.to_string())?;
        let mut tls = self.tls.clone();
        if self.early {
            tls.resumption = Resumption::store(Arc::clone(arrived) as Arc<dyn ClientSessionStore>);
        }
        let config = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
        let config = ClientConfig::new(Arc::new(config));
        endpoint.connect_with(config, to, &self.name).map_err(|error| error.to_string())
    }

    async fn connected(
        &self,
        connecting: Connecting,
    ) -> Result<(Connection, Option<ZeroRttAccepted>), String> {
        let connecting = match self.early {
            true => match connecting.into_0rtt() {
                Ok((connection, accepted)) => return Ok((connection, Some(accepted))),
                Err(connecting) => connecting,
            },
            false => connecting,
        };
        let connection = connecting.await.map_err(|error| format!("QUIC: {error}"))?;
        Ok((connection, None))
    }
}

/// What is known of one connection, however far it comes.
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
    let broke = |stage: &str, error: &dyn std::fmt::Display| format!("{stage}: {error}");
    let stage = marks.stage();
    let (mut send, mut receive) =
        connection.open_bi().await.map_err(|error| broke(stage, &error))?;
    marks.request();
    send.write_all(request).await.map_err(|error| broke(marks.stage(), &error))?;
    // It fails only where the stream is closed already, which reading tells as well.
    let _ = send.finish();
    let mut response = Response::new(bytes);
    let mut room = vec![0; READ];
    loop {
        let read = receive.read(&mut room).await.map_err(|error| broke(marks.stage(), &error))?;
        let Some(count) = read else { return Err(marks.stage().to_owned()) };
        if response.take(room.get(..count).unwrap_or_default(), marks)? {
            return Ok(());
        }
    }
}

/// Tickets of all connections.
#[derive(Debug, Default)]
struct Tickets {
    kept: Mutex<VecDeque<Tls13ClientSessionValue>>,
}

impl Tickets {
    /// No call can leave the list half changed.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Tls13ClientSessionValue>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tickets as one connection sees them, which is told when it has brought some.
#[derive(Debug)]
struct Arrived {
    tickets: Arc<Tickets>,
    notify: Notify,
}

impl ClientSessionStore for Arrived {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    /// There is only one group.
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.tickets.lock();
        if kept.len() == TICKETS_MAX {
            kept.pop_front();
        }
        kept.push_back(value);
        self.notify.notify_one();
    }

    /// The newest: the others may be past their time.
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().pop_back()
    }
}
