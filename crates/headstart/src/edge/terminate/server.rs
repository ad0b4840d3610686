//! The TLS server of an edge: certificates, keys and early data, reloaded as they change.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use headstart_net::fastopen::HiddenListener;
use headstart_net::hello::ClientHello;
use headstart_tls::{
    ClientAuth, Conn, CookiePolicy, FirstSeen, MemoryFilter, ReplayFilter, ServerConfig,
    ServerContext, SharedRing, TicketBinding, TlsError, Version,
};
use tokio::net::TcpListener;

use super::certificates::{self, Certificates};
use super::fast_open::FastOpen;
use super::files::{Complaint, LOOK_EVERY, Watch};
use crate::base::clock::wall_clock;
use crate::base::failure::Failure;
use crate::base::value::Service;
use crate::edge::keys::SiteKeys;
use crate::edge::options::{
    CertificateFiles, ClientCertificates, EarlyDataRequests, EdgeOptions, TicketPeers, TlsVersion,
};
use crate::fleet::filter::RedisFilter;
use crate::fleet::storage::FilterStorage;
use crate::listen::Sockets;
use crate::metrics::{self, Reloaded};

/// Early data of a connection at most, in bytes: what TurboTLS can carry of it
/// (docs/draft-headstart-turbotls.md#constants).
const EARLY_DATA_MAX: u32 = 16 * 1024;

/// Protocols that clients may speak, the best first (RFC 7301).
pub(super) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Groups for key exchange: those that Mozilla recommends ("intermediate"), behind the post-quantum
/// one where OpenSSL knows it, from 3.5 on. No browser needs the other groups of OpenSSL, such as
/// P-521, which cost the edge many times as much.
fn groups() -> &'static str {
    if openssl::version::number() >= 0x3050_0000 {
        "X25519MLKEM768 / X25519:P-256 / P-384"
    } else {
        "X25519:P-256:P-384"
    }
}

/// Speaks TLS for all origins that do not.
///
/// It lives as long as the edge. A reload changes it in place: connections go on, tickets stay
/// good, and what was seen of early data is not forgotten.
#[derive(Debug)]
pub(in crate::edge) struct TlsServer {
    /// For origins that speak HTTP.
    http: ServerContext,
    /// For all others: it agrees on no protocol, and takes early data only where all requests may
    /// come so.
    raw: ServerContext,
    ring: Arc<SharedRing>,
    replay: Replay,
    /// Apart from `state`, which is locked while files are read.
    early_data: Mutex<EarlyDataRequests>,
    state: Mutex<State>,
}

/// Replay cache of early data; the same as long as the edge lives.
#[derive(Clone, Debug)]
enum Replay {
    Memory(Arc<MemoryFilter>),
    Redis(Arc<RedisFilter>),
}

impl Replay {
    fn new(place: &FilterStorage) -> Result<Self, Failure> {
        match place {
            FilterStorage::Memory => {
                let filter = MemoryFilter::new().map_err(|error| unusable(&error))?;
                Ok(Self::Memory(Arc::new(filter)))
            }
            FilterStorage::Redis(address) => {
                Ok(Self::Redis(Arc::new(RedisFilter::new(address.clone()))))
            }
        }
    }

    fn filter(&self) -> Arc<dyn ReplayFilter> {
        match self {
            Self::Memory(filter) => Arc::<MemoryFilter>::clone(filter),
            Self::Redis(filter) => Arc::<RedisFilter>::clone(filter),
        }
    }

    fn is_at(&self, place: &FilterStorage) -> bool {
        match (self, place) {
            (Self::Memory(_), FilterStorage::Memory) => true,
            (Self::Redis(filter), FilterStorage::Redis(address)) => filter.address() == address,
            _ => false,
        }
    }
}

/// Inputs of the TLS contexts.
#[derive(Debug)]
struct State {
    policy: Policy,
    certificates: Certificates,
    watch: Watch,
    complaint: Complaint,
    /// Period of the ring when contexts were made, which is the lifetime in their tickets.
    period: Duration,
    fast_open: Option<FastOpen>,
}

impl State {
    /// Switches to other certificates; drops the expiry metrics of those that are gone.
    fn use_certificates(&mut self, fresh: Certificates) {
        for name in self.certificates.expiries.keys() {
            if !fresh.expiries.contains_key(name) {
                metrics::certificate_expiry(name, None);
            }
        }
        self.certificates = fresh;
    }
}

/// TLS options of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Policy {
    files: Vec<CertificateFiles>,
    /// File of the authorities of clients.
    client_ca: Option<PathBuf>,
    client_auth: Option<ClientCertificates>,
    early_data: EarlyDataRequests,
    min_version: Version,
    /// Binding of sessions.
    binding: TicketBinding,
    /// Fast Open cookies, if they are handed out.
    cookies: Option<CookiePolicy>,
    /// Advertisement in tickets.
    advert: Option<Arc<[u8]>>,
}

impl Policy {
    fn new(options: &EdgeOptions) -> Result<Self, Failure> {
        Ok(Self {
            files: options.certificates()?,
            client_ca: options.client_ca.clone(),
            client_auth: options.client_auth,
            early_data: options.early_data_requests,
            min_version: match options.min_tls {
                TlsVersion::V1_2 => Version::Tls12,
                TlsVersion::V1_3 => Version::Tls13,
            },
            binding: match options.ticket_peers {
                TicketPeers::None if options.resume_across_names => TicketBinding::Certificate,
                TicketPeers::None => TicketBinding::ServerName,
                TicketPeers::Nginx => TicketBinding::Nginx,
                TicketPeers::Haproxy => TicketBinding::Haproxy,
            },
            cookies: None,
            advert: options.advertise.map(|advert| advert.to_string().into_bytes().into()),
        })
    }

    fn watch(&self) -> Watch {
        Watch::new(certificates::paths(&self.files).chain(self.client_ca.clone()))
    }

    /// # Errors
    /// As [`Certificates::load`].
    fn load(&self) -> Result<Certificates, Failure> {
        Certificates::load(&self.files, self.client_ca.as_deref())
    }

    fn client_auth(&self, certificates: &Certificates) -> ClientAuth {
        match (self.client_auth, certificates.client_ca.clone()) {
            (_, None) => ClientAuth::None,
            (Some(ClientCertificates::Optional), Some(roots)) => ClientAuth::Optional(roots),
            (_, Some(roots)) => ClientAuth::Required(roots),
        }
    }

    /// Returns the configurations for origins that speak HTTP, and for others.
    fn configs(
        &self,
        certificates: &Certificates,
        ring: &Arc<SharedRing>,
        replay: &Replay,
    ) -> [ServerConfig; 2] {
        let (http, raw) = match self.early_data {
            EarlyDataRequests::Off => (0, 0),
            EarlyDataRequests::Safe => (EARLY_DATA_MAX, 0),
            EarlyDataRequests::On => (EARLY_DATA_MAX, EARLY_DATA_MAX),
        };
        let http = ServerConfig {
            alpn: vec![H2.to_vec(), HTTP_1_1.to_vec()],
            groups: Some(groups().to_owned()),
            min_version: self.min_version,
            client_auth: self.client_auth(certificates),
            early_data_max: http,
            replay: replay.filter(),
            ticket_binding: self.binding,
            cookies: self.cookies,
            advert: self.advert.clone(),
            ..ServerConfig::new(certificates.keys.clone(), Arc::clone(ring))
        };
        let raw = ServerConfig { alpn: Vec::new(), early_data_max: raw, ..http.clone() };
        [http, raw]
    }
}

impl TlsServer {
    /// Returns the server that `options` configure, with `keys` for its tickets; `None` if all
    /// origins speak TLS themselves. Changes the one of `before` in place, completely or not at
    /// all.
    ///
    /// # Errors
    /// Files that cannot be used, options that contradict each other.
    pub(in crate::edge) fn new(
        options: &EdgeOptions,
        keys: &SiteKeys,
        before: Option<&Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, Failure> {
        let policy = Policy::new(options)?;
        match before {
            _ if policy.files.is_empty() => Ok(None),
            None => Self::start(options, keys, policy).map(Some),
            Some(server) => {
                server.reload(options, policy)?;
                Ok(Some(Arc::clone(server)))
            }
        }
    }

    fn start(options: &EdgeOptions, keys: &SiteKeys, policy: Policy) -> Result<Arc<Self>, Failure> {
        let watch = policy.watch();
        let certificates = policy.load()?;
        let ring = Arc::clone(keys.ring());
        let replay = Replay::new(&options.early_data_filter)?;
        let [http, raw] = policy.configs(&certificates, &ring, &replay);
        let context =
            |config: &ServerConfig| ServerContext::new(config).map_err(|error| unusable(&error));
        let (http, raw) = (context(&http)?, context(&raw)?);
        warn_uncovered(options, &certificates);
        let early_data = Mutex::new(policy.early_data);
        let (complaint, period) = (Complaint::default(), ring.current().period);
        let state = State { policy, certificates, watch, complaint, period, fast_open: None };
        let state = Mutex::new(state);
        let server = Arc::new(Self { http, raw, ring, replay, early_data, state });
        tokio::spawn(look(Arc::downgrade(&server)));
        Ok(server)
    }

    /// Hands out cookies from now on, and accepts them, if `options` enable that. Call it before
    /// anything listens: the kernel gives SYNs to listeners that have to be served.
    ///
    /// # Errors
    /// Why Fast Open cannot be used here.
    pub(in crate::edge) fn start_fast_open(
        &self,
        options: &EdgeOptions,
        sockets: &mut Sockets,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        state.fast_open = FastOpen::start(options, &self.ring, sockets)?;
        state.policy.cookies = state.fast_open.as_ref().map(|_| CookiePolicy::default());
        self.take(&state.policy, &state.certificates)
    }

    fn reload(&self, options: &EdgeOptions, mut policy: Policy) -> Result<(), Failure> {
        let watch = policy.watch();
        let certificates = policy.load()?;
        let mut state = self.lock();
        // Fixed at startup.
        policy.cookies = state.policy.cookies;
        self.take(&policy, &certificates)?;
        if !self.replay.is_at(&options.early_data_filter) {
            tracing::warn!("--early-data-filter is settled at the start, and stays");
        }
        warn_uncovered(options, &certificates);
        (state.policy, state.watch) = (policy, watch);
        state.use_certificates(certificates);
        state.complaint.close();
        Ok(())
    }

    /// Returns the TLS of a connection that a client at `peer` has opened, for an origin of this
    /// service.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn accept(
        &self,
        service: Service,
        peer: IpAddr,
        first: Option<FirstSeen>,
    ) -> Result<Conn, TlsError> {
        let context = if service == Service::Http { &self.http } else { &self.raw };
        context.accept_first(peer, wall_clock(), first)
    }

    /// Queries the filter in Redis about the early data behind a ClientHello, which takes
    /// milliseconds at most. TLS itself queries a filter in memory.
    pub(super) async fn first_seen(
        &self,
        service: Service,
        hello: Option<&ClientHello>,
    ) -> Option<FirstSeen> {
        let Replay::Redis(filter) = &self.replay else { return None };
        let is_taken = match self.early_data() {
            EarlyDataRequests::Off => false,
            EarlyDataRequests::Safe => service == Service::Http,
            EarlyDataRequests::On => true,
        };
        let hello = hello.filter(|_| is_taken)?;
        filter.first(hello, &self.ring.current()).await
    }

    /// Returns when the certificates expire, in seconds since 1970, by name.
    pub(in crate::edge) fn expiries(&self) -> BTreeMap<String, i64> {
        self.lock().certificates.expiries.clone()
    }

    /// Returns the requests that are passed on before the handshake is done.
    pub(super) fn early_data(&self) -> EarlyDataRequests {
        *self.early_data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the listener for SYNs with valid cookies, beside the one at `address`.
    pub(in crate::edge) fn hidden_listener(
        &self,
        address: SocketAddr,
    ) -> Option<Arc<HiddenListener>> {
        self.lock().fast_open.as_ref().and_then(|fast_open| fast_open.listener(address))
    }

    /// Lets an acceptor on `public` that has its hidden listener serve Fast Open.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(in crate::edge) fn serve_fast_open(&self, public: &TcpListener) -> Result<(), Failure> {
        self.lock().fast_open.as_mut().map_or(Ok(()), |fast_open| fast_open.serve(public))
    }

    /// Stops updating the kernel's program, because another process has the hidden listener. Call
    /// it before that one begins: its ports are the same, and this process would take its keys for
    /// its own, and wipe them.
    pub(in crate::edge) fn leave_fast_open(&self) {
        self.lock().fast_open = None;
    }

    /// Reads files that have changed, and passes new keys to the kernel's program.
    fn look(&self) {
        let mut state = self.lock();
        if state.watch.changed() || state.complaint.is_open() {
            self.renew(&mut state);
        }
        self.heed_period(&mut state);
        // While a stopped edge drains, its successor may have started: it must not be overruled.
        state.fast_open.take_if(|fast_open| fast_open.is_over());
        if let Some(fast_open) = &mut state.fast_open {
            fast_open.look(&self.ring);
        }
        for (name, expiry) in &state.certificates.expiries {
            metrics::certificate_expiry(name, Some(*expiry));
        }
    }

    /// Applies the ring's period, which new keys may have changed: no ticket lives longer than one.
    fn heed_period(&self, state: &mut State) {
        let period = self.ring.current().period;
        if state.period != period && self.take(&state.policy, &state.certificates).is_ok() {
            state.period = period;
        }
    }

    /// Reloads the certificates. A certificate and its key are two files: while only one of them
    /// has changed, they do not match, and the old ones stay.
    fn renew(&self, state: &mut State) {
        let renewed =
            state.policy.load().and_then(|fresh| self.take(&state.policy, &fresh).map(|()| fresh));
        match renewed {
            Ok(fresh) => {
                tracing::info!("certificates read again");
                metrics::reloaded(Reloaded::Certificates, true);
                state.use_certificates(fresh);
                state.complaint.close();
            }
            Err(failure) if state.complaint.open(failure.message()) => {
                metrics::reloaded(Reloaded::Certificates, false);
                let hint = failure.advice();
                tracing::error!(hint, "certificates kept: {}", failure.message());
            }
            Err(_) => {}
        }
    }

    fn take(&self, policy: &Policy, certificates: &Certificates) -> Result<(), Failure> {
        let [http, raw] = policy.configs(certificates, &self.ring, &self.replay);
        // Both share any error, so the first one refuses it.
        self.http.replace(&http).map_err(|error| unusable(&error))?;
        self.raw.replace(&raw).map_err(|error| unusable(&error))?;
        *self.early_data.lock().unwrap_or_else(PoisonError::into_inner) = policy.early_data;
        Ok(())
    }

    /// Locks the state, poisoned or not: a panic under the lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unusable(error: &headstart_tls::ConfigError) -> Failure {
    Failure::usage(format!("cannot start TLS: {error}")).hint(error.hint())
}

/// Warns of names without a certificate: their clients get the first one, and refuse it.
fn warn_uncovered(options: &EdgeOptions, certificates: &Certificates) {
    for name in options.terminated_names().filter(|name| !certificates.cover(name)) {
        tracing::warn!(%name, "no certificate is for this name: clients will refuse the \
            connection");
    }
}

/// Checks the files as long as the server exists.
async fn look(server: Weak<TlsServer>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(server) = server.upgrade() else { return };
        let begun = Instant::now();
        // Reading files may block on a disk or a network.
        let looked = tokio::task::spawn_blocking(move || server.look()).await;
        if let Err(error) = looked {
            tracing::error!(%error, "cannot look at certificates");
        }
        report_slow(begun.elapsed());
    }
}

/// Warns of a slow file system, which delays reloads, but no connection.
fn report_slow(time: Duration) {
    if time > LOOK_EVERY {
        tracing::warn!(?time, "reading certificates took long");
    }
}
