//! Follows a name's HTTPS aliases to the edge behind it, if there is one.

use hickory_resolver::proto::rr::{Name, RData, RecordType, rdata::svcb::SVCB};
use std::time::Instant;

use super::{
    DnsError, HTTPS_PORT,
    offer::{Discovered, FamilyAddresses, Offer},
    queries::{Source, canonical},
    service::{Choice, Service},
};
use crate::advert::Advert;
use crate::name::normalized;

/// Most names in a chain of AliasMode records (RFC 9460 section 2.4.2 asks for a limit).
///
/// Each costs a query, and the first answer is awaited for 50 ms only.
pub(super) const ALIASES_MAX: usize = 4;

fn offer(advert: Advert, service: &Service, target: &Name, valid_until: Instant) -> Offer {
    let target = normalized(&target.to_ascii());
    Offer { advert, port: service.port.unwrap_or(HTTPS_PORT), target, valid_until }
}

/// A set of HTTPS records, and the end of the CNAME chain where it was found.
pub(super) struct ServiceSet {
    owner: Name,
    choice: Choice,
    valid_until: Instant,
}

async fn follow(dns: &Source, name: Name, set: ServiceSet) -> Discovered {
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
            let offer = offer(advert, &service, target, set.valid_until);
            if own { Discovered::Own(offer) } else { elsewhere(dns, &service, offer).await }
        }
    }
}

/// Queries each name of an alias chain for its HTTPS record and its addresses at once.
async fn follow_alias(
    dns: &Source,
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
            let offer = offer(advert, &service, &service.target, valid_until);
            return elsewhere(dns, &service, offer).await;
        }
        let offer = offer(advert, &service, &set.owner, valid_until);
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
async fn elsewhere(dns: &Source, service: &Service, offer: Offer) -> Discovered {
    if !service.hints.is_empty() {
        return Discovered::Elsewhere(offer.for_addresses(&service.hints));
    }
    match dns.both_families(&service.target).await {
        Ok(found) => Discovered::Elsewhere(offer.at(&found)),
        Err(_) => Discovered::Nothing,
    }
}

impl Source {
    /// Follows the HTTPS records of `name`; any failure yields [`Discovered::Nothing`].
    pub(super) async fn discover(&self, name: Name) -> Discovered {
        match self.services(&name).await {
            Ok(set) => follow(self, name, set).await,
            Err(error) => {
                tracing::debug!(%error, "no HTTPS record");
                Discovered::Nothing
            }
        }
    }

    pub(super) async fn services(&self, name: &Name) -> Result<ServiceSet, DnsError> {
        let lookup = self.look_up(name, RecordType::HTTPS).await?;
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
