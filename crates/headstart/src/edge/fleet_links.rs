//! The other edges of a site: where joins for them are forwarded to, and theirs taken.

use std::net::SocketAddr;
use std::sync::Arc;

use headstart_net::{EdgeNumber, Fleet as Links, RelayLimits};
use headstart_tls::LinkContext;
use headstart_tls::keyring::Fleet;
use tokio::net::TcpListener;

use super::keys::SiteKeys;
use crate::base::failure::Failure;
use crate::daemon::FORWARDED;
use crate::edge::options::EdgeOptions;
use crate::listen::Sockets;

/// This edge among its fleet_links; the same as long as it lives, but for who the others are.
#[derive(Debug)]
pub(super) struct FleetLinks {
    own: EdgeNumber,
    address: SocketAddr,
    links: Arc<Links>,
}

impl FleetLinks {
    /// Reads the links from the options; `None` if they give this edge no number.
    ///
    /// # Errors
    /// A number that the fleet's file does not have.
    pub(super) fn new(
        options: &EdgeOptions,
        fleet: Option<Fleet>,
        keys: &SiteKeys,
        limits: RelayLimits,
    ) -> Result<Option<Self>, Failure> {
        let Some(fleet) = fleet else { return Ok(None) };
        let Some((own, address)) = Self::own(options, &fleet)? else { return Ok(None) };
        if options.early_data {
            tracing::warn!(
                "--early-data: clients that were never answered have no tag, and their TCP may \
                    reach an edge that knows nothing of what they sent over UDP; leave it off \
                    behind balancers that need --fleet-edge"
            );
        }
        let link = LinkContext::new(&fleet.key)
            .map_err(|error| Failure::usage(format!("cannot speak with other edges: {error}")))?;
        let ring = Arc::clone(keys.ring());
        let links = Links::new(own, fleet.edges, link, ring, limits, &FORWARDED);
        Ok(Some(Self { own, address, links: Arc::new(links) }))
    }

    /// Returns the number of this edge, and the address where it takes joins; `None` if the options
    /// give it no number.
    ///
    /// # Errors
    /// A number that the fleet's file does not have.
    pub(super) fn own(
        options: &EdgeOptions,
        fleet: &Fleet,
    ) -> Result<Option<(EdgeNumber, SocketAddr)>, Failure> {
        let Some(own) = options.fleet_edge.map(EdgeNumber) else { return Ok(None) };
        match fleet.edges.get(&own) {
            Some(address) => Ok(Some((own, *address))),
            None => Err(Failure::usage(format!("no edge of the fleet has the number {own}"))
                .hint(format!("add a line to the file of --fleet: edge {own} ADDR:PORT"))),
        }
    }

    /// Returns the links by which acceptors forward joins.
    pub(super) fn fleet(&self) -> Arc<Links> {
        Arc::clone(&self.links)
    }

    /// Listens where the others forward joins to.
    ///
    /// # Errors
    /// The address is not one of this machine, or another program uses it.
    pub(super) fn listen(&self, sockets: &mut Sockets) -> Result<TcpListener, Failure> {
        let listener = sockets.tcp(self.address)?;
        tracing::info!(edge = %self.own, address = %self.address, "joins from other edges");
        Ok(listener)
    }

    /// Takes the list of edges as it is now; this one's own line and the key are settled at the
    /// start.
    pub(super) fn reload(before: Option<&Self>, options: &EdgeOptions, fleet: Option<Fleet>) {
        let (own, number) = (before.map(|before| before.own), options.fleet_edge.map(EdgeNumber));
        if own != number {
            tracing::warn!("--fleet-edge is settled at the start, and stays");
        }
        let (Some(before), Some(fleet)) = (before, fleet) else { return };
        if fleet.edges.get(&before.own) != Some(&before.address) {
            tracing::warn!("where this edge takes joins is settled at the start, and stays");
        }
        before.links.set_edges(fleet.edges);
    }
}
