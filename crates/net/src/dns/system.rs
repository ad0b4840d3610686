//! Addresses from the system's resolver, by getaddrinfo(3).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::lookup_host;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::offer::{Answer, Discovered, FamilyAddresses};
use super::{ADDRESSES_MAX, DnsConfig, DnsError, Family};

/// Asks the system, which keeps what it wants to keep.
pub(super) struct Source {
    limit: Duration,
}

impl Source {
    pub(super) fn new(config: &DnsConfig) -> Result<Self, DnsError> {
        match config.name_servers.is_empty() {
            true => Ok(Self { limit: config.limit() }),
            false => Err(DnsError::Unavailable),
        }
    }

    /// Returns nothing: the system reads that file by itself.
    pub(super) fn in_hosts_file(&self, _name: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Asks for the addresses of `name`, IPv4 and IPv6, by one call.
    pub(super) fn ask_both(self: &Arc<Self>, name: &str) -> [JoinHandle<Answer>; 2] {
        let (limit, name) = (self.limit, name.to_owned());
        let (to_v4, from_call) = oneshot::channel();
        let v6 = tokio::spawn(async move {
            let found = timeout(limit, addresses(&name)).await.unwrap_or(Err(DnsError::Timeout));
            let [v4, v6] = [Family::V4, Family::V6].map(|family| only(&name, family, &found));
            // Nobody waits for IPv4 once the lookup has ended.
            let _ = to_v4.send(v4);
            v6
        });
        let v4 = tokio::spawn(async move { from_call.await.unwrap_or(Err(DnsError::Unavailable)) });
        [v4, v6]
    }

    /// Asks for the addresses of `name` in one family.
    pub(super) fn ask(self: &Arc<Self>, name: &str, family: Family) -> JoinHandle<Answer> {
        let [v4, v6] = self.ask_both(name);
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Returns `None`: the system's resolver knows no HTTPS records.
    pub(super) fn ask_service(self: &Arc<Self>, _name: &str) -> Option<JoinHandle<Discovered>> {
        None
    }
}

async fn addresses(name: &str) -> Result<Vec<IpAddr>, DnsError> {
    match lookup_host((name, 0)).await {
        Ok(found) => Ok(found.map(|address| address.ip().to_canonical()).collect()),
        // The call's number of its error is lost on the way.
        Err(error) => {
            tracing::debug!(%error, "the system found no address");
            Err(DnsError::NoAddress)
        }
    }
}

fn only(name: &str, family: Family, found: &Result<Vec<IpAddr>, DnsError>) -> Answer {
    let of_family = |address: &&IpAddr| match family {
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let all = found.as_ref().map_err(|error| *error)?;
    let addresses: Vec<_> = all.iter().filter(of_family).copied().take(ADDRESSES_MAX).collect();
    if addresses.is_empty() {
        return Err(DnsError::NoAddress);
    }
    Ok(FamilyAddresses { owner: name.to_owned(), addresses, valid_until: Instant::now() })
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Resolver};
    use super::*;

    async fn events(host: &str) -> Vec<Event> {
        let resolver = Resolver::new(&DnsConfig::default()).unwrap();
        let mut lookup = resolver.resolve(host, 443).unwrap();
        let mut events = Vec::new();
        while let Some(event) = lookup.next().await {
            events.push(event);
        }
        events
    }

    #[tokio::test]
    async fn the_system_finds_addresses_and_no_advertisement() {
        let events = events("localhost").await;
        let found: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Addresses(addresses) => Some(addresses),
                _ => None,
            })
            .flatten()
            .collect();
        assert!(
            !found.is_empty() && found.iter().all(|address| address.is_loopback()),
            "{found:?}"
        );
        assert!(events.contains(&Event::Advert(None)), "{events:?}");
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist_fails() {
        let events = events("no-such-name.invalid").await;
        assert_eq!(events, [Event::Failed(DnsError::NoAddress)]);
    }

    #[test]
    fn name_servers_cannot_be_chosen() {
        let name_servers = vec!["192.0.2.1:53".parse().unwrap()];
        let config = DnsConfig { name_servers, ..DnsConfig::default() };
        assert_eq!(Resolver::new(&config).unwrap_err(), DnsError::Unavailable);
    }
}
