//! Servers: certificates by name, tickets under the key ring, early data, cookies.

mod accepted;
mod config;
mod contexts;
mod hooks;
mod hosts;
mod replay;
mod serving;

use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use headstart_proto::UnixSeconds;
use openssl::ssl::Ssl;

use crate::conn::Conn;
use crate::error::{ConfigError, TlsError, forget_errors};

use accepted::Accepted;
pub use config::{ClientAuth, CookiePolicy, ServerConfig, SharedRing, TicketBinding};
pub use replay::{FirstSeen, MemoryFilter, NoEarlyData, ReplayFilter};
use serving::Serving;

/// Shared state of a server's connections.
pub struct ServerContext {
    serving: RwLock<Arc<Serving>>,
}

impl ServerContext {
    /// Creates a server with this configuration.
    ///
    /// # Errors
    /// A fault of the configuration.
    pub fn new(config: &ServerConfig) -> Result<Self, ConfigError> {
        Ok(Self { serving: RwLock::new(Arc::new(contexts::serving(config)?)) })
    }

    /// Serves new connections with another configuration; open connections keep theirs.
    ///
    /// Sessions stay valid as far as the key ring stays the same.
    ///
    /// # Errors
    /// A fault of the configuration; the old one then stays.
    pub fn replace(&self, config: &ServerConfig) -> Result<(), ConfigError> {
        let serving = Arc::new(contexts::serving(config)?);
        let mut place = self.serving.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = mem::replace(&mut *place, serving);
        // Accept connections again before dropping the old configuration.
        drop(place);
        drop(earlier);
        Ok(())
    }

    /// Accepts a connection that a client at `peer` opened `now`. Cookies are for that address, and
    /// their life starts at that time; sessions end
    /// [`RESUMPTION_LIFE`](crate::limits::RESUMPTION_LIFE) after their full handshake.
    ///
    /// # Errors
    /// [`TlsError::Internal`]: out of memory.
    pub fn accept(&self, peer: IpAddr, now: UnixSeconds) -> Result<Conn, TlsError> {
        self.accept_first(peer, now, None)
    }

    /// Accepts a connection as [`accept`](Self::accept) does, after the caller has asked a filter
    /// about its ClientHello: if the answer was `first`, its early data may be accepted without
    /// calling [`ReplayFilter::is_first`].
    ///
    /// # Errors
    /// [`TlsError::Internal`]: out of memory.
    pub fn accept_first(
        &self,
        peer: IpAddr,
        now: UnixSeconds,
        first: Option<FirstSeen>,
    ) -> Result<Conn, TlsError> {
        forget_errors();
        let serving = Arc::clone(&self.serving.read().unwrap_or_else(PoisonError::into_inner));
        let mut ssl = Ssl::new(&serving.hosts.first().context)?;
        let accepted = Arc::new(Accepted::new(serving, peer, now, first));
        accepted.attach(&mut ssl)?;
        ssl.set_accept_state();
        Conn::new(ssl, accepted)
    }
}

impl fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerContext").finish_non_exhaustive()
    }
}
