//! Keeps names from leading to addresses where the operator does not want them to lead.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::DnsError;
use super::offer::{Answer, Discovered};
use crate::name::normalized;

/// Returns true if a connection to a name may use an address that DNS gives for it. The name is in
/// lower case and without final dot; the address is never an IPv4 address written as IPv6.
pub type AddressFilter = Arc<dyn Fn(&str, IpAddr) -> bool + Send + Sync>;

/// The filter of one lookup; by default it permits all addresses.
#[derive(Default)]
pub(super) struct NameFilter(Option<(String, AddressFilter)>);

impl NameFilter {
    pub(super) fn new(host: &str, filter: &AddressFilter) -> Self {
        Self(Some((normalized(host), Arc::clone(filter))))
    }

    /// Returns what is left of the addresses of one family.
    pub(super) fn answer(&self, answer: Answer) -> Answer {
        let mut found = answer?;
        found.addresses.retain(|address| self.permits(*address));
        if found.addresses.is_empty() { Err(DnsError::NotPermitted) } else { Ok(found) }
    }

    /// Returns what is left of what HTTPS records lead to. An offer at the name's own addresses
    /// holds for those that are left of them.
    pub(super) fn discovered(&self, found: Discovered) -> Discovered {
        match found {
            Discovered::Alias(mut addresses) => {
                addresses.retain(|address| self.permits(*address));
                Discovered::Alias(addresses)
            }
            Discovered::Elsewhere(mut edge) => {
                edge.addresses.retain(|address| self.permits(address.ip()));
                if edge.addresses.is_empty() {
                    Discovered::Nothing
                } else {
                    Discovered::Elsewhere(edge)
                }
            }
            other @ (Discovered::Nothing | Discovered::Own(_)) => other,
        }
    }

    fn permits(&self, address: IpAddr) -> bool {
        self.0.as_ref().is_none_or(|(name, filter)| filter(name, address.to_canonical()))
    }
}

impl fmt::Debug for NameFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameFilter").field(&self.0.as_ref().map(|(name, _)| name)).finish()
    }
}
