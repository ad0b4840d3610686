//! HTTP of clients without their TLS, for fuzz targets.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use headstart_net::{ProvenAddr, ServerStream, TlsHandle};
use hyper::http::uri::Authority;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::Pending;
use super::http::{HttpService, h1, h2};
use super::io::ClientIo;
use super::requests::Requests;
use super::{Capacity, CapacityLimits, Claims, HttpOrigins};
use crate::base::failure::Failure;
use crate::base::names::NameMap;
use crate::base::value::OriginServer;
use crate::edge::dial::Dial;
use crate::edge::options::EdgeOptions;

/// The part of an edge between its TLS and its origins.
#[derive(Debug)]
pub struct HttpEdge {
    options: EdgeOptions,
    origins: Arc<NameMap<OriginServer>>,
    tls: TlsHandle<ServerStream>,
    client: ProvenAddr,
}

impl HttpEdge {
    /// Makes one for connections to the first of the origins; `tls` is that of a client which is
    /// through with its handshake, and at the address `client`.
    ///
    /// # Errors
    /// Two origins for the same name.
    pub fn new(
        options: EdgeOptions,
        tls: TlsHandle<ServerStream>,
        client: ProvenAddr,
    ) -> Result<Self, Failure> {
        let origins = Arc::new(options.origins()?);
        Ok(Self { options, origins, tls, client })
    }

    /// Serves what a client sends behind its handshake, until its connection is over.
    ///
    /// # Errors
    /// Options that leave nothing to connect to.
    pub async fn serve<T>(&self, client: T, is_http2: bool) -> Result<(), Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let origin = &self.options.origin[0];
        let dial = Arc::new(Dial::new(&self.options, Arc::default())?);
        let limits = CapacityLimits { requests: 64, requests_per_address: 64, memory: 1 << 20 };
        let capacity = Arc::new(Capacity::new(limits));
        let http = HttpOrigins::new(dial, self.options.origin_response_timeout, capacity);
        let pending = Pending::new(http.capacity());
        let address: Authority =
            origin.server.address.to_string().parse().map_err(|_| {
                Failure::usage(format!("{} is no authority", origin.server.address))
            })?;
        let io = TokioIo::new(ClientIo::new(client, &pending, is_http2));
        let service = HttpService(Arc::new(Requests {
            origin: origin.server.clone(),
            address,
            origins: Arc::clone(&self.origins),
            http,
            tls: self.tls.clone(),
            client: self.client.clone(),
            server_name: origin.name.as_ref().map(ToString::to_string),
            client_certificate: None,
            early_data: self.options.early_data_requests,
            claims: Arc::new(Claims::new(self.options.drop_header.clone())),
            pending,
            tunnel: Mutex::new(None),
            old: AtomicBool::new(false),
        }));
        // A client that breaks off, or does harm, is not a failure of the edge.
        let _ = if is_http2 { h2(io, service).await } else { h1(io, service).await };
        Ok(())
    }
}
