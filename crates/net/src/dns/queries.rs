//! Queries to name servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{DnsError as ServerError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::{Query, ResponseCode},
        rr::{Name, RData, Record, RecordType},
    },
    system_conf::read_system_conf,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::offer::{Answer, Discovered, FamilyAddresses};
use super::{ADDRESSES_MAX, DnsConfig, DnsError, Family, RETRIES, hosts::HostsFile};
use crate::name::normalized;

/// Responses kept until their TTL ends, three for each name; the least used are evicted.
///
/// Usual responses are smaller than 1 kB; if every one had the largest size, they would take 64 MB.
const CACHED_RESPONSES: u64 = 1024;

/// HTTPS queries open at one time. Beyond them, names resolve without one, that is, without
/// TurboTLS.
///
/// A query continues after its connection opened without it, to fill the cache for the next one.
pub(super) const SERVICE_QUERIES: usize = 256;

/// Negative answers are kept as long as their SOA says (RFC 2308), within these bounds.
const NEGATIVE_TTL_MIN: Duration = Duration::from_secs(5);
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(900);

/// The system's hosts file (hosts(5)).
const HOSTS_FILE: &str = "/etc/hosts";

/// Asks name servers, and keeps their answers.
pub(super) struct Source {
    dns: TokioResolver,
    pub(super) hosts: HostsFile,
    limit: Duration,
    pub(super) service_queries: Arc<Semaphore>,
}

impl Source {
    pub(super) fn new(config: &DnsConfig) -> Result<Self, DnsError> {
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
            dns: builder.build().map_err(|_| DnsError::Unavailable)?,
            hosts: HostsFile::new(hosts),
            limit: config.limit(),
            service_queries: Arc::new(Semaphore::new(SERVICE_QUERIES)),
        })
    }

    /// Returns the addresses of `name` in the hosts file, IPv6 first.
    pub(super) fn in_hosts_file(&self, name: &str) -> Vec<IpAddr> {
        let Some(name) = absolute(name) else { return Vec::new() };
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|kind| self.hosts.look_up(&Query::query(name.clone(), kind)))
            .flat_map(|lookup| {
                lookup.answers().iter().filter_map(|r| r.data.ip_addr()).collect::<Vec<_>>()
            })
            .take(ADDRESSES_MAX)
            .collect()
    }

    /// Asks for the addresses of `name`, IPv4 and IPv6.
    pub(super) fn ask_both(self: &Arc<Self>, name: &str) -> [JoinHandle<Answer>; 2] {
        [Family::V4, Family::V6].map(|family| self.ask(name, family))
    }

    /// Asks for the addresses of `name` in one family.
    pub(super) fn ask(self: &Arc<Self>, name: &str, family: Family) -> JoinHandle<Answer> {
        let (source, name) = (Arc::clone(self), absolute(name));
        tokio::spawn(async move {
            let name = name.ok_or(DnsError::InvalidName)?;
            let kind = match family {
                Family::V4 => RecordType::A,
                Family::V6 => RecordType::AAAA,
            };
            timeout(source.limit, source.addresses(&name, kind))
                .await
                .unwrap_or(Err(DnsError::Timeout))
        })
    }

    /// Asks for the HTTPS records of `name` and what they lead to, unless too many such queries are
    /// open.
    pub(super) fn ask_service(self: &Arc<Self>, name: &str) -> Option<JoinHandle<Discovered>> {
        let name = absolute(name)?;
        let permit = self.service_queries.clone().try_acquire_owned().ok()?;
        let source = Arc::clone(self);
        Some(tokio::spawn(async move {
            let _permit = permit;
            timeout(source.limit, source.discover(name)).await.unwrap_or_default()
        }))
    }

    /// Sends one query, or finds its answer in the cache.
    pub(super) async fn look_up(&self, name: &Name, kind: RecordType) -> Result<Lookup, DnsError> {
        Ok(self.dns.lookup(name.clone(), kind).await?)
    }

    /// Looks up the addresses of `name` in one family; never empty.
    pub(super) async fn addresses(&self, name: &Name, kind: RecordType) -> Answer {
        let lookup = self.look_up(name, kind).await?;
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
        let owner = normalized(&owner.to_ascii());
        Ok(FamilyAddresses { owner, addresses, valid_until: lookup.valid_until() })
    }
}

impl From<NetError> for DnsError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Timeout => Self::Timeout,
            NetError::Dns(ServerError::NoRecordsFound(none)) => match none.response_code {
                ResponseCode::NXDomain => Self::NoSuchName,
                _ => Self::NoAddress,
            },
            NetError::Dns(_) => Self::Refused,
            NetError::Io(_) | NetError::NoConnections | NetError::Busy => Self::Unavailable,
            _ => Self::Malformed,
        }
    }
}

/// Returns `name` for a query: search domains never apply.
fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// Returns the name at the end of the chain of CNAME records that starts at `name`.
pub(super) fn canonical(name: &Name, answers: &[Record]) -> Name {
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
