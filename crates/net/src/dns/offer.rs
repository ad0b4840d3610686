//! Answers of the queries, as far as they concern a lookup.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::{DnsError, EdgeAdvert};
use crate::advert::Advert;

/// Addresses of one family, or the reason why there are none.
pub(super) type Answer = Result<FamilyAddresses, DnsError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FamilyAddresses {
    /// Name that owns them, in lower case and without final dot: the end of the CNAME chain, which
    /// may differ by family.
    pub(super) owner: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) valid_until: Instant,
}

/// Result of following a name's HTTPS records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Discovered {
    /// No record, no usable one, or no answer.
    #[default]
    Nothing,
    /// An alias without advertisement: the service has these addresses.
    Alias(Vec<IpAddr>),
    /// An edge at the name's own addresses, as far as they have the same owner as its record.
    Own(Offer),
    /// An edge at addresses of its own.
    Elsewhere(EdgeAdvert),
}

/// An advertisement whose addresses are not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) advert: Advert,
    pub(super) port: u16,
    /// Lower case, without final dot.
    pub(super) target: String,
    pub(super) valid_until: Instant,
}

impl Offer {
    /// Returns true if `found` are addresses of the target itself.
    ///
    /// A CNAME record may differ between answers, and then the addresses are those of a host that
    /// advertises nothing.
    pub(super) fn holds_for(&self, found: &FamilyAddresses) -> bool {
        found.owner == self.target
    }

    /// Returns the offer for `found`.
    pub(super) fn at<'a>(
        &self,
        found: impl IntoIterator<Item = &'a FamilyAddresses>,
    ) -> EdgeAdvert {
        let mut edge = self.for_addresses(&[]);
        for found in found {
            edge.addresses.extend(self.sockets(&found.addresses));
            edge.valid_until = edge.valid_until.min(found.valid_until);
        }
        edge
    }

    /// Returns the offer for the addresses in its own record.
    pub(super) fn for_addresses(&self, addresses: &[IpAddr]) -> EdgeAdvert {
        EdgeAdvert {
            advert: self.advert,
            addresses: self.sockets(addresses).collect(),
            target: self.target.clone(),
            valid_until: self.valid_until,
        }
    }

    fn sockets(&self, addresses: &[IpAddr]) -> impl Iterator<Item = SocketAddr> {
        addresses.iter().map(|ip| SocketAddr::new(*ip, self.port))
    }
}
