//! From a name along its HTTPS aliases to the edge behind it, if there is one.

use hickory_resolver::proto::rr::{Name, RData, RecordType, rdata::svcb::SVCB};
use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use super::{
    DnsError, EdgeAdvert, Found, HTTPS_PORT, Inner, canonical,
    service::{Choice, Service},
};
use crate::advert::Advert;

/// Names in a chain of AliasMode records (RFC 9460 section 2.4.2 asks for a limit).
///
/// Each costs a question, and the first answer is awaited for 50 ms only.
pub(super) const ALIASES_MAX: usize = 4;

/// What the HTTPS records of a name lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Discovered {
    /// No record, none to be used, or no answer.
    #[default]
    Nothing,
    /// An alias without advertisement: the service has these addresses.
    Alias(Vec<IpAddr>),
    /// An edge at the name's own addresses, whatever they are.
    Own(Offer),
    /// An edge at addresses of its own.
    Elsewhere(EdgeAdvert),
}

/// An advertisement whose addresses are not yet known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) advert: Advert,
    pub(super) port: u16,
    pub(super) target: String,
    pub(super) valid_until: Instant,
}

impl Offer {
    fn new(advert: Advert, service: &Service, target: &Name, valid_until: Instant) -> Self {
        Self {
            advert,
            port: service.port.unwrap_or(HTTPS_PORT),
            target: target.to_ascii().trim_end_matches('.').to_owned(),
            valid_until,
        }
    }

    /// The offer for `addresses`, which are known until `valid_until`.
    pub(super) fn at(&self, addresses: &[IpAddr], valid_until: Instant) -> EdgeAdvert {
        EdgeAdvert {
            advert: self.advert,
            addresses: addresses.iter().map(|ip| SocketAddr::new(*ip, self.port)).collect(),
            target: self.target.clone(),
            valid_until: self.valid_until.min(valid_until),
        }
    }
}

/// Follows the HTTPS records of `name`; failures of any kind come out as nothing.
pub(super) async fn discover(dns: &Inner, name: Name) -> Discovered {
    match dns.services(&name).await {
        Ok(set) => follow(dns, name, set).await,
        Err(error) => {
            tracing::debug!(%error, "no HTTPS record");
            Discovered::Nothing
        }
    }
}

/// A set of HTTPS records and the end of the CNAME chain at which it stands.
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

/// Asks each name of a chain of aliases for its HTTPS record and its addresses at once.
async fn follow_alias(
    dns: &Inner,
    name: Name,
    mut target: Name,
    mut valid_until: Instant,
) -> Discovered {
    let mut seen = vec![name];
    // The root as target of an alias says that there is no service (RFC 9460 section 2.5.1).
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
        return found.map_or(Discovered::Nothing, |found| {
            Discovered::Elsewhere(offer.at(&found.addresses, found.valid_until))
        });
    }
    tracing::debug!(aliases = seen.len(), "alias chain of HTTPS records ends nowhere");
    Discovered::Nothing
}

fn behind_alias(found: Result<Found, DnsError>) -> Discovered {
    found.map_or(Discovered::Nothing, |found| Discovered::Alias(found.addresses))
}

/// The offer at the hinted addresses of its target, or else at those that the DNS gives.
async fn elsewhere(dns: &Inner, service: &Service, offer: Offer) -> Discovered {
    if !service.hints.is_empty() {
        return Discovered::Elsewhere(offer.at(&service.hints, offer.valid_until));
    }
    match dns.both_families(&service.target).await {
        Ok(found) => Discovered::Elsewhere(offer.at(&found.addresses, found.valid_until)),
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

    async fn both_families(&self, name: &Name) -> Result<Found, DnsError> {
        let (v6, v4) = tokio::join!(
            self.addresses(name, RecordType::AAAA),
            self.addresses(name, RecordType::A)
        );
        match (v6, v4) {
            (Ok(mut both), Ok(v4)) => {
                both.addresses.extend(v4.addresses);
                both.valid_until = both.valid_until.min(v4.valid_until);
                Ok(both)
            }
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(_), Err(error)) => Err(error),
        }
    }
}
