//! Destinations of connections.

use headstart_sessions::{Context, Service};

/// Destination of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The name that `host` is known to serve if it is an address: from the ClientHello.
    pub server_name: Option<String>,
    /// Owner of the connection: state kept for the next one is shared within this context only.
    pub context: Context,
    /// True if the application writes before TCP is connected. If not, no SYN waits for its data.
    pub speaks_first: bool,
}

impl Target {
    /// Creates a target: `host`, a name or an address, at `port`.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        Self { host, port, server_name: None, context: Context::UNKNOWN, speaks_first: true }
    }

    /// Returns the name of the server, or its address if no name is known.
    pub(crate) fn name(&self) -> &str {
        self.server_name.as_deref().unwrap_or(&self.host)
    }

    pub(crate) fn service(&self) -> Service<'_> {
        Service { host: self.name(), port: self.port, context: &self.context }
    }
}
