//! Follows a name's HTTPS aliases to the edge behind it, if there is one.

use hickory_resolver::proto::rr::{Name, RData, RecordType, rdata::svcb::SVCB};
use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use super::{
    DnsError, EdgeAdvert, FamilyAddresses, HTTPS_PORT, Inner, canonical,
    service::{Choice, Service},
};
use crate::advert::Advert;

/// Most names in a chain of AliasMode records (RFC 9460 section 2.4.2 asks for a limit).
///
/// Each costs a query, and the first answer is awaited for 50 ms only.
pub(super) const ALIASES_MAX: usize = 4;

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
    pub(super) target: Name,
    pub(super) valid_until: Instant,
}

impl Offer {
    fn new(advert: Advert, service: &Service, target: &Name, valid_until: Instant) -> Self {
        Self {
            advert,
            port: service.port.unwrap_or(HTTPS_PORT),
            target: target.clone(),
            valid_until,
        }
    }

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
    fn for_addresses(&self, addresses: &[IpAddr]) -> EdgeAdvert {
        EdgeAdvert {
            advert: self.advert,
            addresses: self.sockets(addresses).collect(),
            target: self.target.to_ascii().trim_end_matches('.').to_owned(),
            valid_until: self.valid_until,
        }
    }

    fn sockets(&self, addresses: &[IpAddr]) -> impl Iterator<Item = SocketAddr> {
        addresses.iter().map(|ip| SocketAddr::new(*ip, self.port))
    }
}

/// Follows the HTTPS records of `name`; any failure yields [`Discovered::Nothing`].
pub(super) async fn discover(dns: &Inner, name: Name) -> Discovered {
    match dns.services(&name).await {
        Ok(set) => follow(dns, name, set).await,
        Err(error) => {
            tracing::debug!(%error, "no HTTPS record");
            Discovered::Nothing
        }
    }
}

/// A set of HTTPS records, and the end of the CNAME chain where it was found.
pub(super) struct ServiceSet {
    owner: Name,
    choice: Choice,
    valid_until: Instant,
}

async fn follow(dns: &Inner, name: Name, set: ServiceSet) -> Discovered {
    match set.choice {
        Choice::Nothing => Discovered::Nothing,
        Choice::Alias(target) => follow_alias(dns, name, target, set.valid_until).await,
        Choice::Service(service) => {
            let Some(advert) = service.advert else {
                return Discovered::Nothing;
            };
            let own =
                service.target.is_root() || service.target == set.owner || service.target == name;
            let target = if own { &set.owner } else { &service.target };
            let offer = Offer::new(advert, &service, target, set.valid_until);
            if own { Discovered::Own(offer) } else { elsewhere(dns, &service, offer).await }
        }
    }
}

/// Queries each name of an alias chain for its HTTPS record and its addresses at once.
async fn follow_alias(
    dns: &Inner,
    name: Name,
    mut target: Name,
    mut valid_until: Instant,
) -> Discovered {
    let mut seen = vec![name];
    // An alias to the root means no service (RFC 9460 section 2.5.1).
    while !target.is_root() && !seen.contains(&target) && seen.len() <= ALIASES_MAX {
        let (set, found) = tokio::join!(dns.services(&target), dns.both_families(&target));
        let Ok(set) = set else {
            return behind_alias(found);
        };
        valid_until = valid_until.min(set.valid_until);
        let service = match set.choice {
            Choice::Nothing => return behind_alias(found),
            Choice::Alias(next) => {
                seen.push(std::mem::replace(&mut target, next));
                continue;
            }
            Choice::Service(service) => service,
        };
        let Some(advert) = service.advert else {
            return behind_alias(found);
        };
        let own =
            service.target.is_root() || service.target == set.owner || service.target == target;
        if !own {
            let offer = Offer::new(advert, &service, &service.target, valid_until);
            return elsewhere(dns, &service, offer).await;
        }
        let offer = Offer::new(advert, &service, &set.owner, valid_until);
        return match found {
            Ok(found) if found.iter().all(|found| offer.holds_for(found)) => {
                Discovered::Elsewhere(offer.at(&found))
            }
            found => behind_alias(found),
        };
    }
    tracing::debug!(aliases = seen.len(), "alias chain of HTTPS records leads to no service");
    Discovered::Nothing
}

fn behind_alias(found: Result<Vec<FamilyAddresses>, DnsError>) -> Discovered {
    found.map_or(Discovered::Nothing, |found| {
        Discovered::Alias(found.into_iter().flat_map(|found| found.addresses).collect())
    })
}

/// Returns the offer at the hinted addresses of its target, or else at those from the DNS.
async fn elsewhere(dns: &Inner, service: &Service, offer: Offer) -> Discovered {
    if !service.hints.is_empty() {
        return Discovered::Elsewhere(offer.for_addresses(&service.hints));
    }
    match dns.both_families(&service.target).await {
        Ok(found) => Discovered::Elsewhere(offer.at(&found)),
        Err(_) => Discovered::Nothing,
    }
}

impl Inner {
    pub(super) async fn services(&self, name: &Name) -> Result<ServiceSet, DnsError> {
        let lookup = self.dns.lookup(name.clone(), RecordType::HTTPS).await?;
        let owner = canonical(name, lookup.answers());
        let records: Vec<&SVCB> = lookup
            .answers()
            .iter()
            .filter(|record| record.name == owner)
            .filter_map(|record| match &record.data {
                RData::HTTPS(https) => Some(&https.0),
                _ => None,
            })
            .collect();
        let choice = Choice::among(&records, |n| rand::random_range(0..n));
        Ok(ServiceSet { owner, choice, valid_until: lookup.valid_until() })
    }

    /// Looks up both families, IPv6 first; never empty.
    async fn both_families(&self, name: &Name) -> Result<Vec<FamilyAddresses>, DnsError> {
        let (v6, v4) = tokio::join!(
            self.addresses(name, RecordType::AAAA),
            self.addresses(name, RecordType::A)
        );
        match (v6, v4) {
            (Ok(v6), Ok(v4)) => Ok(vec![v6, v4]),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(vec![found]),
            (Err(_), Err(error)) => Err(error),
        }
    }
}
