//! Shares of connections: one host leaves room for others, however many it opens.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use headstart_net::AcceptorConfig;
use ipnet::IpNet;

use super::options::EdgeOptions;
use crate::metrics;
use crate::shares::{Owner, Permit, Shares};

/// A host has its share.
#[derive(Debug)]
pub(super) struct Full;

/// The connections that are served, and what a host may have of them.
#[derive(Clone)]
pub(super) struct ConnectionShares {
    pub(super) served: Arc<Shares>,
    establishing: usize,
    balancers: Vec<IpNet>,
}

impl ConnectionShares {
    pub(super) fn new(options: &EdgeOptions) -> Self {
        let most = options.max_address_connections.map(NonZeroUsize::get);
        Self {
            served: Shares::with_most(options.max_connections.get(), most),
            establishing: establishing(options),
            balancers: options.proxy_protocol_from.clone(),
        }
    }

    /// Returns shares of the connections in their first bytes, of one address listened on: they
    /// have permits of their own. Joins are among them, so that a host gets what is fair, however
    /// little is set.
    pub(super) fn arriving(&self) -> Arc<Shares> {
        Shares::new(self.establishing)
    }

    /// Takes a place for a connection from `host`; none is needed for loopback and balancers,
    /// behind which there may be many.
    ///
    /// # Errors
    /// The host has its share, which is counted and logged.
    pub(super) fn take(&self, shares: &Arc<Shares>, host: IpAddr) -> Result<Option<Permit>, Full> {
        let host = host.to_canonical();
        if host.is_loopback() || self.balancers.iter().any(|network| network.contains(&host)) {
            return Ok(None);
        }
        let permit = shares.take(Owner::new(None, Some(host)));
        if permit.is_none() {
            metrics::limit_hit("address_connections");
        }
        permit.map(Some).ok_or(Full)
    }
}

/// Returns the number of connections in their first bytes, on one address listened on.
///
/// To keep others out, silent connections have to be as many as those that send something.
pub(super) fn establishing(options: &EdgeOptions) -> usize {
    AcceptorConfig::default().establishing.max(options.max_connections.get())
}
