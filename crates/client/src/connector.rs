//! Connections for hyper.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tower_service::Service;

use crate::agent::Agent;
use crate::error::Error;
use crate::options::Options;
use crate::stream::Stream;

/// Opens a connection for the URI of a request through the agent, which speaks TLS for `https` and
/// none for `http`.
///
/// For `hyper_util::client::legacy::Client`, whose pool reuses connections, with HTTP/2 where it
/// was negotiated. The [`Facts`](crate::Facts) of a response's connection are in the response's
/// extensions.
#[derive(Clone, Debug)]
pub struct Connector {
    agent: Agent,
    options: Arc<Options>,
}

impl Connector {
    /// Returns a connector for HTTP/1.1 through this agent, under the user's policy.
    #[must_use]
    pub fn new(agent: Agent) -> Self {
        Self { agent, options: Arc::default() }
    }

    /// Sets the options of all connections.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self { options: Arc::new(options), ..self }
    }

    /// Uses HTTP/2 where the server speaks it, else HTTP/1.1. hyper-util needs its feature `http2`.
    #[must_use]
    pub fn http2(mut self) -> Self {
        Arc::make_mut(&mut self.options).alpn = vec!["h2".into(), "http/1.1".into()];
        self
    }

    async fn open(self, uri: Uri) -> Result<TokioIo<Stream>, Error> {
        let host = uri.host().ok_or(Error::Unsupported("the URI has no host"))?;
        let opened = match uri.scheme_str() {
            Some("https") => {
                let port = uri.port_u16().unwrap_or(443);
                self.agent.connect(host, port, &self.options, &[]).await
            }
            Some("http") => {
                let port = uri.port_u16().unwrap_or(80);
                self.agent.connect_bare(host, port, self.options.context.as_deref()).await
            }
            _ => Err(Error::Unsupported("the URI is neither https nor http")),
        };
        opened.map(TokioIo::new)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}
