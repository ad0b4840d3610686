//! Connections to origins.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{Connector, ConnectorConfig, Handoff, OpeningPolicy, Target};
use tokio::net::TcpStream;

use super::origin_states::OriginStates;
use crate::base::failure::Failure;
use crate::base::log_throttle::LogThrottle;
use crate::base::value::HostPort;
use crate::edge::options::EdgeOptions;

/// Origins that cannot be connected to: a ClientHello over UDP, from any address, is enough to try.
static UNREACHABLE: LogThrottle = LogThrottle::new();

/// Connector to origins.
#[derive(Debug)]
pub(super) struct Dial {
    /// Resolver for origins that are names; none if all are addresses.
    names: Option<Connector>,
    timeout: Duration,
    states: Arc<OriginStates>,
}

impl Dial {
    /// # Errors
    /// There are origins that are names, and this machine cannot resolve names.
    pub(super) fn new(options: &EdgeOptions, states: Arc<OriginStates>) -> Result<Self, Failure> {
        let named = options.origin.iter().any(|origin| origin.server.address.ip().is_none());
        Ok(Self {
            names: if named { Some(connector(options)?) } else { None },
            timeout: options.origin_connect_timeout,
            states,
        })
    }

    pub(super) const fn states(&self) -> &Arc<OriginStates> {
        &self.states
    }

    /// Connects to `origin`, and logs a failure.
    ///
    /// # Errors
    /// `TimedOut` if it took too long, otherwise the error of TCP or of the lookup.
    pub(super) async fn connect(&self, origin: &HostPort) -> io::Result<TcpStream> {
        let connected = self.try_connect(origin).await;
        if let Err(error) = &connected
            && let Some(left_out) = UNREACHABLE.line(Instant::now())
        {
            tracing::warn!(%origin, %error, left_out, "cannot connect to the origin");
        }
        connected
    }

    /// Connects to `origin`; the caller reports a failure.
    pub(super) async fn try_connect(&self, origin: &HostPort) -> io::Result<TcpStream> {
        let connected = self.open(origin).await;
        self.states.note(origin, connected.is_ok());
        connected
    }

    async fn open(&self, origin: &HostPort) -> io::Result<TcpStream> {
        let tcp = match origin.ip() {
            Some(ip) => {
                let connect = TcpStream::connect((ip, origin.port));
                tokio::time::timeout(self.timeout, connect).await??
            }
            None => self.by_name(origin).await?,
        };
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    async fn by_name(&self, origin: &HostPort) -> io::Result<TcpStream> {
        let target = Target::new(origin.host.as_str(), origin.port);
        let connector = self.names.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut stream = connector.connect(&target)?;
        stream.connected().await?;
        stream.into_tcp().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

fn connector(options: &EdgeOptions) -> Result<Connector, Failure> {
    let resolver = Resolver::new(&DnsConfig::default())
        .map_err(|error| Failure::usage(format!("cannot look up names: {error}")))?;
    Ok(Connector::new(ConnectorConfig {
        opening: OpeningPolicy::Plain,
        // An origin that is too busy for a SYN is not helped by two.
        second_syn: false,
        connect_timeout: options.origin_connect_timeout,
        ..ConnectorConfig::new(resolver)
    }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        edge: EdgeOptions,
    }

    fn dial(origin: &str) -> Dial {
        let options = Command::parse_from(["edge", "--origin", origin]).edge;
        Dial::new(&options, Arc::default()).unwrap()
    }

    #[tokio::test]
    async fn names_are_looked_up_only_where_an_origin_is_one() {
        assert!(dial("192.0.2.1:443,www.example.com=[::1]:443").names.is_none());
        assert!(dial("192.0.2.1:443,www.example.com=http://localhost").names.is_some());
    }
}
