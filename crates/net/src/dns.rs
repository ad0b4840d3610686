//! Discovery: a name's addresses, and whether an edge that speaks TurboTLS stands behind it.
//!
//! The A, AAAA and HTTPS queries run in parallel. Addresses are handed over as soon as Happy
//! Eyeballs (RFC 8305 section 3) allows; the HTTPS record may come later or not at all, and delays
//! nothing. Names are always treated as absolute: no search domain is ever appended.

mod assembly;
mod error;
mod filter;
mod follow;
mod hosts;
pub(crate) mod service;
#[cfg(test)]
mod tests;

pub use error::DnsError;
pub use filter::AddressFilter;

use assembly::{Assembly, Step};
use filter::NameFilter;
use follow::Discovered;
use headstart_proto::hello::address_literal;
use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::runtime::TokioRuntimeProvider,
    proto::{
        op::Query,
        rr::{Name, RData, Record, RecordType},
    },
    system_conf::read_system_conf,
};
use hosts::HostsFile;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinHandle},
    time::{sleep_until, timeout},
};

use crate::advert::Advert;
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

/// Responses kept until their TTL ends, three for each name; the least used are evicted.
///
/// Usual responses are smaller than 1 kB; if every one had the largest size, they would take 64 MB.
const CACHED_RESPONSES: u64 = 1024;

/// HTTPS queries open at one time. Beyond them, names resolve without one, that is, without
/// TurboTLS.
///
/// A query continues after its connection opened without it, to fill the cache for the next one.
const SERVICE_QUERIES: usize = 256;

/// Negative answers are kept as long as their SOA says (RFC 2308), within these bounds.
const NEGATIVE_TTL_MIN: Duration = Duration::from_secs(5);
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(900);

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

/// The system's hosts file (hosts(5)).
const HOSTS_FILE: &str = "/etc/hosts";

/// Resolves names; cheap to clone, clones share the cache.
///
/// Keeps answers as long as their TTL says. With the system's name servers, the hosts file as
/// it is now takes precedence; its entries are final and never have an advertisement.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

struct Inner {
    dns: TokioResolver,
    hosts: HostsFile,
    limit: Duration,
    service_queries: Arc<Semaphore>,
}

impl Resolver {
    /// Creates a resolver with an empty cache.
    ///
    /// # Errors
    /// [`DnsError::Unavailable`] if the system configures no name server.
    pub fn new(config: &DnsConfig) -> Result<Self, DnsError> {
        let (servers, options, hosts) = if config.name_servers.is_empty() {
            let (servers, options) = read_system_conf().map_err(|_| DnsError::Unavailable)?;
            (servers, options, Some(HOSTS_FILE.into()))
        } else {
            (explicit(&config.name_servers), ResolverOpts::default(), None)
        };
        let mut builder =
            TokioResolver::builder_with_config(servers, TokioRuntimeProvider::default());
        *builder.options_mut() = tuned(options, config.timeout);
        Ok(Self {
            inner: Arc::new(Inner {
                dns: builder.build().map_err(|_| DnsError::Unavailable)?,
                hosts: HostsFile::new(hosts),
                limit: config.timeout * (RETRIES + 1),
                service_queries: Arc::new(Semaphore::new(SERVICE_QUERIES)),
            }),
        })
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
        let in_hosts_file = self.inner.in_hosts_file(&name);
        if !in_hosts_file.is_empty() {
            return Ok(Lookup::known(in_hosts_file));
        }
        let service = (port == HTTPS_PORT).then(|| self.ask_service(name.clone())).flatten();
        let mut lookup = Lookup::new(Assembly::new(port, service.is_some()), service);
        lookup.v4 = Some(self.ask_addresses(name.clone(), RecordType::A));
        lookup.v6 = Some(self.ask_addresses(name, RecordType::AAAA));
        Ok(lookup)
    }

    /// Returns what `name` advertises for `literal`, if that is among the name's addresses.
    ///
    /// For connections known only by their address and the name in the ClientHello. Answers within
    /// [`ADVERT_DELAY`]; the connection to `literal` can start before.
    pub(crate) async fn advert_for(&self, name: &str, literal: SocketAddr) -> Option<EdgeAdvert> {
        let name = host_name(name).ok()?;
        if literal.port() != HTTPS_PORT || !self.inner.in_hosts_file(&name).is_empty() {
            return None;
        }
        let lookup = self.lookup_for(name, literal)?;
        timeout(ADVERT_DELAY, lookup.advert_covering(literal.ip())).await.ok().flatten()
    }

    /// Looks up the literal's own family only: addresses of the other one are of no use.
    fn lookup_for(&self, name: Name, literal: SocketAddr) -> Option<Lookup> {
        let service = self.ask_service(name.clone())?;
        let mut lookup = Lookup::new(Assembly::new(literal.port(), true), Some(service));
        if literal.ip().to_canonical().is_ipv4() {
            lookup.assembly.on_v6(Err(DnsError::NoAddress));
            lookup.v4 = Some(self.ask_addresses(name, RecordType::A));
        } else {
            lookup.assembly.on_v4(Err(DnsError::NoAddress), Instant::now());
            lookup.v6 = Some(self.ask_addresses(name, RecordType::AAAA));
        }
        Some(lookup)
    }

    fn ask_addresses(&self, name: Name, kind: RecordType) -> JoinHandle<Answer> {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            timeout(inner.limit, inner.addresses(&name, kind))
                .await
                .unwrap_or(Err(DnsError::Timeout))
        })
    }

    fn ask_service(&self, name: Name) -> Option<JoinHandle<Discovered>> {
        let permit = self.inner.service_queries.clone().try_acquire_owned().ok()?;
        let inner = self.inner.clone();
        Some(tokio::spawn(async move {
            let _permit = permit;
            timeout(inner.limit, follow::discover(&inner, name)).await.unwrap_or_default()
        }))
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
            match self.assembly.step(Instant::now()) {
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
                self.assembly.on_v4(self.filter.answer(settled(answer)), Instant::now());
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

fn host_name(text: &str) -> Result<Name, DnsError> {
    name::host_name(text).ok_or(DnsError::InvalidName)
}

/// Addresses of one family, or the reason why there are none.
type Answer = Result<FamilyAddresses, DnsError>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct FamilyAddresses {
    /// Name that owns them: the end of the CNAME chain, which may differ by family.
    owner: Name,
    addresses: Vec<IpAddr>,
    valid_until: Instant,
}

impl Inner {
    /// Looks up the addresses of `name` in one family; never empty.
    async fn addresses(&self, name: &Name, kind: RecordType) -> Answer {
        let lookup = self.dns.lookup(name.clone(), kind).await?;
        let owner = canonical(name, lookup.answers());
        let addresses: Vec<IpAddr> = lookup
            .answers()
            .iter()
            .filter(|record| record.name == owner && record.record_type() == kind)
            .filter_map(|record| record.data.ip_addr())
            .take(ADDRESSES_MAX)
            .collect();
        if addresses.is_empty() {
            return Err(DnsError::NoAddress);
        }
        Ok(FamilyAddresses { owner, addresses, valid_until: lookup.valid_until() })
    }

    /// Returns the addresses of `name` in the hosts file, IPv6 first.
    fn in_hosts_file(&self, name: &Name) -> Vec<IpAddr> {
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|kind| self.hosts.look_up(&Query::query(name.clone(), kind)))
            .flat_map(|lookup| {
                lookup.answers().iter().filter_map(|r| r.data.ip_addr()).collect::<Vec<_>>()
            })
            .take(ADDRESSES_MAX)
            .collect()
    }
}

/// Returns the name at the end of the chain of CNAME records that starts at `name`.
fn canonical(name: &Name, answers: &[Record]) -> Name {
    let mut owner = name.clone();
    // At most one round for each record, so a loop of aliases ends too.
    for _ in answers {
        let alias = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == owner => Some(&target.0),
            _ => None,
        });
        match alias {
            Some(target) => owner = target.clone(),
            None => break,
        }
    }
    owner
}

fn explicit(servers: &[SocketAddr]) -> ResolverConfig {
    ResolverConfig::from_name_servers(servers.iter().map(name_server).collect())
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    connections.iter_mut().for_each(|connection| connection.port = address.port());
    NameServerConfig::new(address.ip(), true, connections)
}

fn tuned(mut options: ResolverOpts, timeout: Duration) -> ResolverOpts {
    options.timeout = timeout;
    options.attempts = RETRIES as usize;
    // HTTPS records seldom fit 512 bytes; without EDNS each would cost a TCP connection.
    options.edns0 = true;
    options.cache_size = CACHED_RESPONSES;
    options.use_hosts_file = ResolveHosts::Never;
    options.negative_min_ttl = Some(NEGATIVE_TTL_MIN);
    options.negative_max_ttl = Some(NEGATIVE_TTL_MAX);
    options
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
