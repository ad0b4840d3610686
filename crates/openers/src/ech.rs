//! TLS 1.3 with Encrypted ClientHello (RFC 9849), by rustls, over any stream.

use std::sync::Arc;
use std::time::Instant;

use openssl::base64::decode_block;
use openssl::x509::X509;
use rustls::client::{EchConfig, EchMode, EchStatus, Resumption};
use rustls::crypto::aws_lc_rs::hpke::ALL_SUPPORTED_SUITES;
use rustls::pki_types::{CertificateDer, EchConfigListBytes, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::arm::Suite;
use crate::attempt::{Exchange, end};
use crate::error::PeerError;
use crate::quic::provider;
use crate::transport::Transport;
use crate::trial::{Trial, out_of_time};

/// A client's side. It resumes nothing.
#[derive(Clone, Debug)]
pub(crate) struct EchTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl EchTls {
    /// Trusts `roots` for `name`, which is encrypted with what `list` has: an ECHConfigList in
    /// base64.
    pub(crate) fn client(
        suite: Suite,
        roots: &[X509],
        name: &str,
        list: &str,
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
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| PeerError::new(format!("{name}: {error}")))?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Makes one connection over `transport`, with one request. Fails if the server did not accept
    /// the encrypted ClientHello, since it would measure something else.
    pub(crate) async fn open(
        &self,
        transport: &mut impl Transport,
        mut exchange: Exchange,
        deadline: Instant,
    ) -> Trial {
        let outcome = timeout_at(deadline.into(), self.run(transport, &mut exchange)).await;
        let outcome = match outcome {
            Ok(Ok(stream)) => {
                end(stream).await;
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(out_of_time(exchange.marks.stage())),
        };
        let (opening, reason) = transport.account();
        Trial { opening, reason: reason.to_owned(), ..exchange.marks.trial(outcome) }
    }

    async fn run<'t, T: Transport>(
        &self,
        transport: &'t mut T,
        exchange: &mut Exchange,
    ) -> Result<TlsStream<&'t mut T>, String> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let connected = connector.connect(self.name.clone(), transport).await;
        let mut stream = connected.map_err(|error| format!("TLS: {error}"))?;
        match stream.get_ref().1.ech_status() {
            EchStatus::Accepted => {}
            status => return Err(format!("no Encrypted ClientHello: {status:?}")),
        }
        exchange.ask(&mut stream).await?;
        // Bytes that TLS could not pass down at once wait for this.
        let flushed = stream.flush().await;
        flushed.map_err(|error| format!("{}: {error}", exchange.marks.stage()))?;
        exchange.read(&mut stream).await?;
        Ok(stream)
    }
}

fn wrong_list(why: &str) -> PeerError {
    PeerError::new(format!("not an ECHConfigList: {why}"))
        .with_hint("give what headstart-ech-server says as ech_config_list")
}
