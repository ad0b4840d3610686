//! Discovery: a name's addresses, and whether an edge that speaks TurboTLS stands behind it.
//!
//! The A, AAAA and HTTPS queries run in parallel. Addresses are handed over as soon as Happy
//! Eyeballs (RFC 8305 section 3) allows; the HTTPS record may come later or not at all, and delays
//! nothing. Names are always treated as absolute: no search domain is ever appended.

mod assembly;
mod error;
mod filter;
#[cfg(feature = "dns")]
mod follow;
#[cfg(feature = "dns")]
mod hosts;
// Without HTTPS records nothing is ever discovered.
#[cfg_attr(not(feature = "dns"), allow(dead_code))]
mod offer;
#[cfg(feature = "dns")]
mod queries;
#[cfg(feature = "dns")]
pub(crate) mod service;
#[cfg(not(feature = "dns"))]
mod system;
#[cfg(test)]
#[cfg(feature = "dns")]
mod tests;

pub use error::DnsError;
pub use filter::AddressFilter;

#[cfg(feature = "dns")]
use queries::Source;
#[cfg(not(feature = "dns"))]
use system::Source;

use assembly::{Assembly, Step};
use filter::NameFilter;
use headstart_proto::hello::address_literal;
use offer::{Answer, Discovered};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{sleep_until, timeout},
};

use crate::advert::Advert;
use crate::clock::now;
use crate::name;

/// Port for which HTTPS records are queried (RFC 9460 section 9); edges on other ports must be
/// configured.
pub const HTTPS_PORT: u16 = 443;

/// Time that IPv4 addresses wait for IPv6 ones: the Resolution Delay of RFC 8305 section 3.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Time to wait for an advertisement after addresses were handed over.
///
/// TCP connects meanwhile, so this costs nothing; any later, a first flight over UDP would seldom
/// still win.
const ADVERT_DELAY: Duration = Duration::from_millis(50);

/// Time that a name without any address waits for its HTTPS record, whose alias may lead to some.
const ALIAS_ONLY_DELAY: Duration = Duration::from_secs(1);

/// Most addresses used per family; more would never be tried at 250 ms an attempt.
pub const ADDRESSES_MAX: usize = 16;

/// Attempts after the first, for each query.
const RETRIES: u32 = 2;

/// Name servers, and the timeout for queries.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Name servers, queried over UDP and for long answers over TCP; if empty, those of the system.
    pub name_servers: Vec<SocketAddr>,
    /// Timeout of one attempt of a query; there are three attempts.
    pub timeout: Duration,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self { name_servers: Vec::new(), timeout: Duration::from_secs(2) }
    }
}

impl DnsConfig {
    /// Returns the timeout of one query with all its attempts.
    fn limit(&self) -> Duration {
        self.timeout * (RETRIES + 1)
    }
}

/// One of the two families of addresses.
#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
}

/// Resolves names; cheap to clone, clones share the cache.
///
/// Keeps answers as long as their TTL says. With the system's name servers, the hosts file as
/// it is now takes precedence; its entries are final and never have an advertisement.
///
/// Without the crate's feature `dns`, asks getaddrinfo(3), which knows no HTTPS records: no name
/// advertises TurboTLS then, edges have to be configured, and name servers cannot be. It applies
/// the system's search domains.
#[derive(Clone)]
pub struct Resolver {
    source: Arc<Source>,
}

impl Resolver {
    /// Creates a resolver with an empty cache.
    ///
    /// # Errors
    /// [`DnsError::Unavailable`] if the system configures no name server; without the feature
    /// `dns`, if `config` names some.
    pub fn new(config: &DnsConfig) -> Result<Self, DnsError> {
        Ok(Self { source: Arc::new(Source::new(config)?) })
    }

    /// Starts to look up `host`, a name or an address, for a connection to `port`.
    ///
    /// An address (also in brackets, or with a final dot) resolves to itself. The HTTPS record is
    /// queried only for [`HTTPS_PORT`]. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`DnsError::InvalidName`].
    pub fn resolve(&self, host: &str, port: u16) -> Result<Lookup, DnsError> {
        if let Some(literal) = address_literal(host) {
            return Ok(Lookup::known(vec![literal]));
        }
        let name = host_name(host)?;
        let in_hosts_file = self.source.in_hosts_file(&name);
        if !in_hosts_file.is_empty() {
            return Ok(Lookup::known(in_hosts_file));
        }
        let service = (port == HTTPS_PORT).then(|| self.source.ask_service(&name)).flatten();
        let mut lookup = Lookup::new(Assembly::new(port, service.is_some()), service);
        let [v4, v6] = self.source.ask_both(&name);
        (lookup.v4, lookup.v6) = (Some(v4), Some(v6));
        Ok(lookup)
    }

    /// Returns what `name` advertises for `literal`, if that is among the name's addresses.
    ///
    /// For connections known only by their address and the name in the ClientHello. Answers within
    /// [`ADVERT_DELAY`]; the connection to `literal` can start before.
    pub(crate) async fn advert_for(&self, name: &str, literal: SocketAddr) -> Option<EdgeAdvert> {
        let name = host_name(name).ok()?;
        if literal.port() != HTTPS_PORT || !self.source.in_hosts_file(&name).is_empty() {
            return None;
        }
        let lookup = self.lookup_for(&name, literal)?;
        timeout(ADVERT_DELAY, lookup.advert_covering(literal.ip())).await.ok().flatten()
    }

    /// Looks up the literal's own family only: addresses of the other one are of no use.
    fn lookup_for(&self, name: &str, literal: SocketAddr) -> Option<Lookup> {
        let service = self.source.ask_service(name)?;
        let mut lookup = Lookup::new(Assembly::new(literal.port(), true), Some(service));
        if literal.ip().to_canonical().is_ipv4() {
            lookup.assembly.on_v6(Err(DnsError::NoAddress));
            lookup.v4 = Some(self.source.ask(name, Family::V4));
        } else {
            lookup.assembly.on_v4(Err(DnsError::NoAddress), now());
            lookup.v6 = Some(self.source.ask(name, Family::V6));
        }
        Some(lookup)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// A running lookup; [`next`](Self::next) returns its events, and dropping it ends it.
///
/// The events come in this order: [`Event::Addresses`] once or twice (a slow address family comes
/// second), after the first of them [`Event::Advert`], repeated whenever further addresses widen
/// it. If there is no address, the only event is [`Event::Failed`].
#[derive(Debug)]
pub struct Lookup {
    assembly: Assembly,
    v4: Option<JoinHandle<Answer>>,
    v6: Option<JoinHandle<Answer>>,
    service: Option<JoinHandle<Discovered>>,
    filter: NameFilter,
}

impl Lookup {
    fn new(assembly: Assembly, service: Option<JoinHandle<Discovered>>) -> Self {
        Self { assembly, v4: None, v6: None, service, filter: NameFilter::default() }
    }

    /// Drops those addresses that DNS gives for `host` and `filter` does not permit. Literal
    /// addresses and those of the hosts file are not asked about.
    #[must_use]
    pub(crate) fn filtered(mut self, host: &str, filter: &AddressFilter) -> Self {
        self.filter = NameFilter::new(host, filter);
        self
    }

    /// Creates a lookup of addresses that need no query.
    pub(crate) fn known(addresses: Vec<IpAddr>) -> Self {
        Self::new(Assembly::known(addresses), None)
    }

    /// Returns the next event, or `None` after the last one.
    ///
    /// Cancel safe: an event is lost only if it was returned.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.assembly.step(now()) {
                Step::Event(event) => return Some(event),
                Step::Done => return None,
                Step::Wait(until) => self.wait(until).await,
            }
        }
    }

    async fn wait(&mut self, until: Option<Instant>) {
        tokio::select! {
            answer = joined(&mut self.v6) => {
                self.assembly.on_v6(self.filter.answer(settled(answer)));
            }
            answer = joined(&mut self.v4) => {
                self.assembly.on_v4(self.filter.answer(settled(answer)), now());
            }
            found = joined(&mut self.service) => {
                self.assembly.on_service(self.filter.discovered(found.unwrap_or_default()));
            }
            () = elapsed(until) => {}
        }
    }

    /// Returns true as soon as `wanted` is among the addresses; false if it is not.
    pub(crate) async fn finds(mut self, wanted: IpAddr) -> bool {
        while let Some(event) = self.next().await {
            let Event::Addresses(found) = event else { continue };
            if found.contains(&wanted.to_canonical()) {
                return true;
            }
        }
        false
    }

    async fn advert_covering(mut self, literal: IpAddr) -> Option<EdgeAdvert> {
        while let Some(event) = self.next().await {
            match event {
                Event::Advert(None) | Event::Failed(_) => return None,
                Event::Advert(Some(edge)) => {
                    if let Some(edge) = edge.only(literal) {
                        return Some(edge);
                    }
                }
                Event::Addresses(_) => {}
            }
        }
        None
    }
}

impl Drop for Lookup {
    /// Ends the address queries; the HTTPS query runs on, so that its answer is cached.
    fn drop(&mut self) {
        for handle in [&self.v4, &self.v6].into_iter().flatten() {
            handle.abort();
        }
    }
}

/// Result of a [`Lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Addresses not reported before, IPv6 first; never empty.
    Addresses(Vec<IpAddr>),
    /// The name's advertisement; replaces any earlier one. `None` if there is none, or not in time.
    Advert(Option<EdgeAdvert>),
    /// There is no address and there will be none.
    Failed(DnsError),
}

/// An edge behind a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeAdvert {
    /// Offer of the edge.
    pub advert: Advert,
    /// The TCP and UDP addresses for which the offer holds, and no others.
    pub addresses: Vec<SocketAddr>,
    /// The name that these are addresses of, without final dot.
    pub target: String,
    /// Time when the first of the underlying records expires.
    pub valid_until: Instant,
}

impl EdgeAdvert {
    /// Returns true if the offer holds for connections to `address`.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|known| known.ip() == address.to_canonical())
    }

    /// Returns the offer for `address` alone, if it holds for it.
    pub fn only(mut self, address: IpAddr) -> Option<Self> {
        self.addresses.retain(|known| known.ip() == address.to_canonical());
        (!self.addresses.is_empty()).then_some(self)
    }
}

fn host_name(text: &str) -> Result<String, DnsError> {
    name::host_name(text).ok_or(DnsError::InvalidName)
}

/// Waits for the result of a task, and clears the slot; waits forever if the slot is empty.
async fn joined<T>(slot: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    let Some(handle) = slot else {
        return std::future::pending().await;
    };
    let result = handle.await;
    *slot = None;
    result
}

fn settled(answer: Result<Answer, JoinError>) -> Answer {
    answer.unwrap_or(Err(DnsError::Unavailable))
}

async fn elapsed(until: Option<Instant>) {
    match until {
        Some(instant) => sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
