//! TLS 1.3 with Encrypted ClientHello (RFC 9849), by rustls, over any stream.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use openssl::base64::decode_block;
use openssl::x509::X509;
use rustls::client::{
    ClientSessionStore, EchConfig, EchMode, EchStatus, Resumption, Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs::hpke::ALL_SUPPORTED_SUITES;
use rustls::pki_types::{CertificateDer, EchConfigListBytes, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::arm::Suite;
use crate::attempt::{Exchange, SentEarly, end};
use crate::error::PeerError;
use crate::kept::Kept;
use crate::quic::provider;
use crate::tickets::Arrived;
use crate::transport::Transport;
use crate::trial::{Trial, out_of_time};

/// A client's side.
#[derive(Clone, Debug)]
pub(crate) struct EchTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    tickets: Arc<Kept<Tls13ClientSessionValue>>,
}

/// One connection, however far it comes.
struct Visit {
    exchange: Exchange,
    resumed: bool,
    /// The request that is early data, and whether the server took it.
    sent_early: Option<SentEarly>,
    accepted: bool,
}

impl EchTls {
    /// Trusts `roots` for `name`, which is encrypted with what `list` has: an ECHConfigList in
    /// base64. With `early`, sessions are kept, each is used once, and requests are early data;
    /// without it nothing is resumed.
    pub(crate) fn client(
        suite: Suite,
        roots: &[X509],
        name: &str,
        list: &str,
        early: bool,
    ) -> Result<Self, PeerError> {
        let mut trusted = RootCertStore::empty();
        for root in roots {
            trusted.add(CertificateDer::from(root.to_der()?))?;
        }
        let list = decode_block(list).map_err(|_| wrong_list("not base64"))?;
        let ech = EchConfig::new(EchConfigListBytes::from(list), ALL_SUPPORTED_SUITES)
            .map_err(|error| wrong_list(&error.to_string()))?;
        let mut config = ClientConfig::builder_with_provider(provider(suite))
            .with_ech(EchMode::Enable(ech))?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let tickets = Arc::<Kept<_>>::default();
        config.enable_early_data = early;
        config.resumption = if early {
            let store = Arc::new(Arrived::new(Arc::clone(&tickets)));
            Resumption::store(store as Arc<dyn ClientSessionStore>)
        } else {
            Resumption::disabled()
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| PeerError::new(format!("{name}: {error}")))?;
        Ok(Self { config: Arc::new(config), name, tickets })
    }

    pub(crate) fn forget(&self) {
        self.tickets.clear();
    }

    /// Makes one connection over `transport`, with one request. Fails if the server did not accept
    /// the encrypted ClientHello, since it would measure something else.
    pub(crate) async fn open(
        &self,
        transport: &mut impl Transport,
        exchange: Exchange,
        deadline: Instant,
    ) -> Trial {
        let mut visit = Visit { exchange, resumed: false, sent_early: None, accepted: false };
        let outcome = timeout_at(deadline.into(), self.run(transport, &mut visit)).await;
        let outcome = match outcome {
            Ok(Ok(stream)) => {
                end(stream).await;
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(out_of_time(visit.exchange.marks.stage())),
        };
        visit.trial(transport, outcome)
    }

    async fn run<'t, T: Transport>(
        &self,
        transport: &'t mut T,
        visit: &mut Visit,
    ) -> Result<TlsStream<&'t mut T>, String> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let mut first = Ok(Vec::new());
        let mut connecting = connector.connect_with(self.name.clone(), transport, |tls| {
            first = first_flight(tls, visit.exchange.request());
        });
        let first = first.map_err(|error| format!("TLS: {error}"))?;
        if let (false, Some(transport)) = (first.is_empty(), connecting.get_mut()) {
            visit.send_early(*transport, &first).await?;
        }
        let mut stream = connecting.await.map_err(|error| format!("TLS: {error}"))?;
        let (transport, tls) = stream.get_ref();
        match tls.ech_status() {
            EchStatus::Accepted => {}
            status => return Err(format!("no Encrypted ClientHello: {status:?}")),
        }
        visit.note_handshake(tls);
        visit.note_early(*transport);
        if !visit.accepted {
            visit.exchange.ask(&mut stream).await?;
        }
        // Bytes that TLS could not pass down at once wait for this.
        let flushed = stream.flush().await;
        flushed.map_err(|error| format!("{}: {error}", visit.exchange.marks.stage()))?;
        visit.exchange.read(&mut stream).await?;
        Ok(stream)
    }
}

impl Visit {
    /// Sends the ClientHello and the request behind it.
    async fn send_early(
        &mut self,
        transport: &mut impl Transport,
        first: &[u8],
    ) -> Result<(), String> {
        let from = Instant::now();
        let written = async {
            transport.write_all(first).await?;
            transport.flush().await
        };
        written.await.map_err(|error| format!("the connection broke: {error}"))?;
        let end = u64::try_from(first.len()).unwrap_or(u64::MAX);
        self.sent_early = Some(SentEarly { from, written: Instant::now(), end });
        Ok(())
    }

    fn note_handshake(&mut self, tls: &ClientConnection) {
        self.resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        self.accepted = tls.is_early_data_accepted();
    }

    fn note_early(&mut self, transport: &impl Transport) {
        if let Some(sent) = self.sent_early.filter(|_| self.accepted) {
            self.exchange.note_early(sent, transport);
        }
    }

    /// The account of it, once `outcome` is known.
    fn trial(mut self, transport: &impl Transport, outcome: Result<(), String>) -> Trial {
        // Acknowledgements may have come since.
        self.note_early(transport);
        let (opening, mut reason) = transport.account();
        if reason.is_empty() && outcome.is_ok() && self.sent_early.is_some() && !self.accepted {
            reason = "early_data_refused";
        }
        Trial {
            opening,
            resumed: self.resumed,
            early_data: self.accepted,
            reason: reason.to_owned(),
            ..self.exchange.marks.trial(outcome)
        }
    }
}

/// Returns the bytes of a ClientHello with `request` behind it; none if there is no session that
/// allows early data.
fn first_flight(tls: &mut ClientConnection, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut flight = Vec::new();
    if let Some(mut early) = tls.early_data() {
        early.write_all(request)?;
        while tls.wants_write() {
            tls.write_tls(&mut flight)?;
        }
    }
    Ok(flight)
}

fn wrong_list(why: &str) -> PeerError {
    PeerError::new(format!("not an ECHConfigList: {why}"))
        .with_hint("give what headstart-ech-server says as ech_config_list")
}
