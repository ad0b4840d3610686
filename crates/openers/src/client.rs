use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use headstart_net::advert::Advert;
use headstart_net::dns::{DnsConfig, HTTPS_PORT, Resolver};
use headstart_net::{Connector, ConnectorConfig, Edge, EdgeLookup, Report, Target};
use headstart_proto::Carrier;
use openssl::error::ErrorStack;
use openssl::x509::X509;
use tokio::time::timeout_at;

use crate::arm::{Arm, Suite};
use crate::attempt::{Attempt, Exchange};
use crate::ech::EchTls;
use crate::error::PeerError;
use crate::fast_open::{self, FastOpenClient};
use crate::identity;
use crate::options::ClientOptions;
use crate::psk::{self, Opened, PskClient};
use crate::quic::{self, QuicClient};
use crate::tls::{Connection, Tls};
use crate::transport::{Transport, connect, connect_by};
use crate::trial::{Marks, Trial, out_of_time};
use crate::visit::Visit;

/// Opens connections of one arm, and remembers between them what that arm may.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Tcp(Secure),
    FastOpen(Box<FastOpenClient>),
    Turbo(Secure, Mutex<Connector>),
    Psk(Box<PskClient>),
    Quic(Box<QuicClient>),
}

/// TLS over a stream.
#[derive(Debug)]
enum Secure {
    OpenSsl(Separate),
    Ech(EchTls),
}

/// OpenSSL for each name and context, which share no sessions, as in browsers.
#[derive(Debug)]
struct Separate {
    suite: Suite,
    roots: Vec<X509>,
    resumes: bool,
    clients: Mutex<HashMap<(String, Option<String>), Tls>>,
}

impl Separate {
    /// The state of one connection to `name` in `context`.
    fn connection(&self, name: &str, context: Option<&str>) -> Result<Connection, ErrorStack> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.entry((name.to_owned(), context.map(str::to_owned))) {
            Entry::Occupied(known) => known.get().connection(),
            Entry::Vacant(new) => {
                let tls = Tls::client(self.suite, self.roots.clone(), name, self.resumes)?;
                new.insert(tls).connection()
            }
        }
    }

    fn forget(&self) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().for_each(Tls::forget);
    }
}

impl Secure {
    fn new(options: &ClientOptions, roots: Vec<X509>) -> Result<Self, PeerError> {
        let ClientOptions { arm, suite, name, ech, .. } = options;
        Ok(match ech {
            Some(list) => {
                let early = arm.sends_early_data();
                Self::Ech(EchTls::client(*suite, &roots, name, list, early)?)
            }
            None => {
                let (suite, resumes, clients) = (*suite, arm.resumes(), Mutex::default());
                let separate = Separate { suite, roots, resumes, clients };
                // Mistakes show at once, and the usual client is there.
                separate.connection(name, None)?;
                Self::OpenSsl(separate)
            }
        })
    }

    /// The state of one connection to `name` in `context`. rustls has none before its ClientHello.
    fn prepare(&self, name: &str, context: Option<&str>) -> Result<Prepared, PeerError> {
        Ok(match self {
            Self::OpenSsl(tls) => Prepared::OpenSsl(
                tls.connection(name, context)
                    .map_err(|error| PeerError::new(format!("cannot use OpenSSL: {error}")))?,
            ),
            Self::Ech(tls) => Prepared::Ech(tls.clone()),
        })
    }

    fn forget(&self) {
        match self {
            Self::OpenSsl(tls) => tls.forget(),
            Self::Ech(tls) => tls.forget(),
        }
    }
}

/// TLS's state of one connection.
pub(crate) enum Prepared {
    OpenSsl(Connection),
    Ech(EchTls),
}

/// State that [`Client::ready`] made for one connection.
pub(crate) enum Ready {
    /// Sockets are made as the connection is opened.
    Tls(Prepared),
    FastOpen(Box<fast_open::Ready>),
    Psk(Box<psk::Ready>),
    Quic(quic::Ready),
    Failed(PeerError),
}

impl Client {
    /// A client that remembers nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Options that do not go together, or no certificate to trust.
    pub fn new(options: ClientOptions) -> Result<Self, PeerError> {
        options.check()?;
        let ClientOptions { arm, suite, name, .. } = &options;
        let roots = identity::roots(&options.identity, *suite)?;
        let engine = match arm.carrier() {
            Carrier::Quic => Engine::Quic(Box::new(QuicClient::new(
                *suite,
                &roots,
                name,
                arm.sends_early_data(),
            )?)),
            _ if arm.exports_key() => Engine::Psk(Box::new(PskClient::new(&options, roots)?)),
            Carrier::TurboTls => {
                Engine::Turbo(Secure::new(&options, roots)?, Mutex::new(connector(&options)?))
            }
            Carrier::FastOpen | Carrier::Fop => {
                Engine::FastOpen(Box::new(FastOpenClient::new(&options, &roots)?))
            }
            Carrier::Tcp | Carrier::Spare | Carrier::Proxy { .. } => {
                Engine::Tcp(Secure::new(&options, roots)?)
            }
        };
        Ok(Self { options, engine })
    }

    /// Returns its options.
    pub const fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Opens one connection now and requests this many bytes on it.
    pub async fn open(&self, bytes: u64) -> Trial {
        self.visit(&Visit::new(bytes)).await
    }

    /// Makes any visit that the arm supports.
    pub async fn visit(&self, visit: &Visit) -> Trial {
        let ready = self.ready(visit);
        self.open_ready(ready, visit, Instant::now()).await
    }

    /// Prepares what one connection needs that is no part of opening it, before the clock starts.
    pub(crate) fn ready(&self, visit: &Visit) -> Ready {
        let Some(to) = self.address(visit.at) else {
            return Ready::Failed(PeerError::new(format!("there is no address {}", visit.at)));
        };
        if let Some(what) = self.cannot(visit) {
            let arm = self.options.arm;
            return Ready::Failed(PeerError::new(format!("{arm} knows no other {what}")));
        }
        match &self.engine {
            Engine::Tcp(tls) | Engine::Turbo(tls, _) => {
                let prepared = tls.prepare(self.name(visit), visit.context.as_deref());
                prepared.map_or_else(Ready::Failed, Ready::Tls)
            }
            Engine::FastOpen(client) => {
                let ready = client.ready(visit, to).map(Box::new);
                ready.map_or_else(Ready::Failed, Ready::FastOpen)
            }
            Engine::Psk(client) => {
                let ready = client.ready().map(Box::new);
                ready.map_or_else(|error| Ready::Failed(error.into()), Ready::Psk)
            }
            Engine::Quic(quic) => {
                quic.ready(self.options.to).map_or_else(Ready::Failed, Ready::Quic)
            }
        }
    }

    /// One of the server's addresses.
    fn address(&self, number: usize) -> Option<SocketAddr> {
        let ClientOptions { to, more, .. } = &self.options;
        [to].into_iter().chain(more).nth(number).copied()
    }

    fn name<'v>(&'v self, visit: &'v Visit) -> &'v str {
        visit.name.as_ref().unwrap_or(&self.options.name)
    }

    /// Returns what of a visit the arm cannot do; a proxy takes any name, and a context as user
    /// name.
    fn cannot(&self, visit: &Visit) -> Option<&'static str> {
        let Visit { name, context, .. } = visit;
        let any = matches!(self.engine, Engine::FastOpen(_)) || self.options.proxy.is_some();
        match () {
            () if any => None,
            () if name.is_some() => Some("name"),
            () if context.is_some() => Some("context"),
            () => None,
        }
    }

    /// Opens one connection, for which `ready` was made, with times from `start`.
    pub(crate) async fn open_ready(&self, ready: Ready, visit: &Visit, start: Instant) -> Trial {
        let mut trial = self.attempt(ready, visit, Marks::new(start)).await;
        if trial.ok && trial.reason.is_empty() {
            trial.reason = self.shortfall(&trial).to_owned();
        }
        trial
    }

    /// Drops sessions, tickets and path memory.
    ///
    /// The kernel's Fast Open cookies stay: `ip tcp_metrics flush` in the client's namespace drops
    /// them.
    ///
    /// # Errors
    /// Want of memory.
    pub fn forget(&self) -> Result<(), PeerError> {
        match &self.engine {
            Engine::Tcp(tls) => tls.forget(),
            Engine::FastOpen(client) => client.forget(),
            Engine::Turbo(tls, kept) => {
                tls.forget();
                let new = connector(&self.options)?;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = new;
            }
            Engine::Psk(client) => client.forget(),
            Engine::Quic(quic) => quic.forget(),
        }
        Ok(())
    }

    async fn attempt(&self, ready: Ready, visit: &Visit, marks: Marks) -> Trial {
        let ClientOptions { to, timeout, .. } = &self.options;
        let deadline = Instant::now() + *timeout;
        let name = self.name(visit);
        let exchange = Exchange::new(name, visit.bytes, marks);
        match (&self.engine, ready) {
            (_, Ready::Failed(error)) => marks.trial(Err(error.to_string())),
            (Engine::Quic(quic), Ready::Quic(ready)) => {
                quic.open(ready, *to, visit.bytes, marks, *timeout).await
            }
            (Engine::FastOpen(client), Ready::FastOpen(ready)) => {
                client.open(*ready, exchange, deadline).await
            }
            (Engine::Turbo(_, connector), Ready::Tls(tls)) => {
                let connector = connector.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // The port is that of names with edges; where it goes is up to the edge.
                match connector.connect(&Target::new(name, HTTPS_PORT)) {
                    Ok(stream) => self.over_tls(tls, stream, exchange, deadline).await,
                    Err(error) => marks.trial(Err(error.to_string())),
                }
            }
            (Engine::Psk(client), Ready::Psk(ready)) => {
                match timeout_at(deadline.into(), client.open(*ready)).await {
                    Ok(Ok(opened)) => self.over_key(opened, exchange, deadline).await,
                    Ok(Err(error)) => marks.trial(Err(format!("cannot connect: {error}"))),
                    Err(_) => marks.trial(Err(out_of_time(marks.stage()))),
                }
            }
            (Engine::Tcp(_), Ready::Tls(tls)) => {
                match timeout_at(deadline.into(), self.connect(visit)).await {
                    Ok(Ok(stream)) => self.over_tls(tls, stream, exchange, deadline).await,
                    Ok(Err(error)) => marks.trial(Err(format!("cannot connect: {error}"))),
                    Err(_) => marks.trial(Err(out_of_time(marks.stage()))),
                }
            }
            (_, Ready::Tls(_) | Ready::FastOpen(_) | Ready::Psk(_) | Ready::Quic(_)) => {
                marks.trial(Err("what is ready is another arm's".to_owned()))
            }
        }
    }

    async fn connect(&self, visit: &Visit) -> std::io::Result<tokio::net::TcpStream> {
        let ClientOptions { to, proxy, .. } = &self.options;
        let context = visit.context.as_deref();
        match proxy {
            Some(proxy) => connect_by(*proxy, self.name(visit), to.port(), context).await,
            None => connect(self.address(visit.at).unwrap_or(*to)).await,
        }
    }

    /// Goes on over TCP, by a key if there is one. It is of this connection, and so counts neither
    /// as a session nor as early data.
    async fn over_key(&self, opened: Opened, exchange: Exchange, deadline: Instant) -> Trial {
        let Opened { tcp, tls, reason } = opened;
        let mut trial = self.shake_hands(tls, tcp, true, exchange, deadline).await;
        if mem::take(&mut trial.resumed) {
            trial.opening = Carrier::TurboTls;
        } else if trial.ok {
            trial.reason = if reason.is_empty() { "key_refused" } else { reason }.to_owned();
        }
        trial.early_data = false;
        trial
    }

    async fn over_tls(
        &self,
        tls: Prepared,
        mut stream: impl Transport,
        exchange: Exchange,
        deadline: Instant,
    ) -> Trial {
        let tls = match tls {
            Prepared::OpenSsl(tls) => tls,
            Prepared::Ech(tls) => {
                let trial = tls.open(&mut stream, exchange, deadline).await;
                self.tell(stream.report(), trial.ok);
                return trial;
            }
        };
        let early = self.options.arm.sends_early_data();
        self.shake_hands(tls, stream, early, exchange, deadline).await
    }

    async fn shake_hands(
        &self,
        tls: Connection,
        stream: impl Transport,
        early: bool,
        exchange: Exchange,
        deadline: Instant,
    ) -> Trial {
        let marks = exchange.marks;
        let mut attempt = match Attempt::new(tls, stream, early, exchange) {
            Ok(attempt) => attempt,
            Err(error) => return marks.trial(Err(format!("cannot use OpenSSL: {error}"))),
        };
        let outcome = timeout_at(deadline.into(), attempt.run()).await;
        let outcome = outcome.unwrap_or_else(|_| Err(out_of_time(attempt.stage())));
        let trial = attempt.trial(outcome);
        self.tell(attempt.report(), trial.ok);
        if trial.ok {
            attempt.end().await;
        }
        trial
    }

    /// Passes a report on, unless too many wait.
    fn tell(&self, report: Option<&Report>, ok: bool) {
        if let (Some(report), Some(reports)) = (report, &self.options.reports) {
            let _ = reports.try_send((report.clone(), ok));
        }
    }

    /// Returns what is missing of the arm's best, where nobody gave a reason.
    fn shortfall(&self, trial: &Trial) -> &'static str {
        let arm = self.options.arm;
        match () {
            () if arm.has_agent() => "behind_agent",
            () if arm.resumes() && !trial.resumed => "no_session",
            () if arm.sends_early_data() && !trial.early_data => "no_early_data_allowed",
            () => "",
        }
    }
}

fn connector(options: &ClientOptions) -> Result<Connector, PeerError> {
    let slots = options.slots.unwrap_or(Advert::default().slots);
    let edge = edge(options.to, slots, options.arm);
    let mut config = connector_config(Arc::new(move |_| Some(edge.clone())))?;
    config.slots_max = options.slots.unwrap_or(config.slots_max);
    config.grace = options.grace;
    config.connect_timeout = options.timeout;
    config.opening = options.policy;
    Ok(Connector::new(config))
}

/// An edge at `to`, as one of `arm` would be advertised.
pub(crate) fn edge(to: SocketAddr, slots: u8, arm: Arm) -> Edge {
    let advert = Advert { slots, early_data: arm.sends_early_data(), ..Advert::default() };
    Edge { host: to.ip().to_string(), port: to.port(), advert }
}

/// A connector that knows edges by these alone.
pub(crate) fn connector_config(edges: EdgeLookup) -> Result<ConnectorConfig, PeerError> {
    // Never asked: the edge is known by its address. The system's may be none.
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 53));
    let dns = DnsConfig { name_servers: vec![nobody], ..DnsConfig::default() };
    let resolver = Resolver::new(&dns)
        .map_err(|error| PeerError::new(format!("cannot make a resolver: {error}")))?;
    let mut config = ConnectorConfig::new(resolver);
    config.edges = edges;
    Ok(config)
}
