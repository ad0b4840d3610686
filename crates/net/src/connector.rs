//! The client side on sockets: the best opening that a server offers, over one stream.

mod cookies;
mod kernel;
mod late;
mod offer;
mod opening;
mod spares;
mod stream;
#[cfg(test)]
#[cfg(feature = "dns")]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use cookies::Cookies;
use headstart_proto::cookie::Cookie;
use headstart_proto::hello::address_literal;
use headstart_sessions::{Context, OfferMemory, Visit, Whose};
use kernel::{Kernel, Linux};
use offer::{Learnt, Offer};
use opening::Opening;
use spares::Spares;
pub use stream::ClientStream;

use crate::advert::{Advert, SLOTS_MAX};
use crate::dns::{AddressFilter, DnsError, HTTPS_PORT, Resolver};
use crate::name::normalized;
use crate::netlink::{Change, Changes};
use crate::path::PathMemory;
use crate::report::{NotUsed, Report};
use crate::target::Target;
use crate::upstream::{self, Standings, Upstream};

/// Openings that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OpeningPolicy {
    /// The best opening that the server offers and the path supports as far as known.
    #[default]
    Auto,
    /// TLS over TCP, and nothing else.
    Plain,
    /// TurboTLS where it is offered, regardless of the path's record; no data in the SYN.
    Turbo,
    /// Like `Auto`, but sends data in the SYN regardless of the path's record, and at configured
    /// edges as if they offered it.
    Fop,
}

impl OpeningPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Plain, Self::Turbo, Self::Fop];

    /// Stable name, for options and experiments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Plain => "plain",
            Self::Turbo => "turbo",
            Self::Fop => "fop",
        }
    }

    /// Returns true if a SYN may carry data.
    pub(crate) const fn sends_syn_data(self) -> bool {
        matches!(self, Self::Auto | Self::Fop)
    }
}

impl fmt::Display for OpeningPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OpeningPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// Name of an unknown policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = OpeningPolicy::ALL.map(OpeningPolicy::name).join(", ");
        write!(f, "unknown policy {:?}; use one of {names}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

/// An edge known without DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Name or address of the edge.
    pub host: String,
    /// Its TCP port, and its UDP port unless it offers another.
    pub port: u16,
    /// Its offer.
    pub advert: Advert,
}

/// Returns the edge configured for a host name, which is in lower case and without final dot.
pub type EdgeLookup = Arc<dyn Fn(&str) -> Option<Edge> + Send + Sync>;

/// Configuration of a [`Connector`].
#[derive(Clone)]
pub struct ConnectorConfig {
    /// Edges by the name that applications connect to, on the HTTPS port.
    pub edges: EdgeLookup,
    /// Resolves names and their advertisements.
    pub resolver: Resolver,
    /// Decides where DNS may lead the names that applications connect to; not asked about those of
    /// configured edges and of the proxy.
    pub filter: AddressFilter,
    /// Openings that may be used.
    pub opening: OpeningPolicy,
    /// True if server bytes are taken over TCP alone, never over UDP.
    pub hold: bool,
    /// Most slots in one flight, not counting the one for the acknowledgement.
    pub slots_max: u8,
    /// Grace once TCP is connected, in place of the learnt value and its bound; for experiments.
    pub grace: Option<Duration>,
    /// Time limit for all attempts to connect together.
    pub connect_timeout: Duration,
    /// True if another SYN is sent where the first is not answered within two round trips; the
    /// first connection goes on, the other is closed.
    pub second_syn: bool,
    /// Most idle connections that [`Connector::keep_spares`] holds for the next openings; 0 for
    /// none.
    pub spares: usize,
    /// The proxy that all connections go through. The connector then resolves no name but the
    /// proxy's, and sends nothing but TCP to it.
    pub upstream: Option<Arc<Upstream>>,
}

impl ConnectorConfig {
    /// Uses everything as offered, with names resolved by `resolver`.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        Self {
            edges: Arc::new(|_| None),
            resolver,
            filter: Arc::new(|_, _| true),
            opening: OpeningPolicy::Auto,
            hold: false,
            slots_max: SLOTS_MAX,
            grace: None,
            // Linux gives up after about two minutes; curl's default is five minutes.
            connect_timeout: Duration::from_secs(30),
            second_syn: true,
            spares: 0,
            upstream: None,
        }
    }
}

impl fmt::Debug for ConnectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorConfig").field("opening", &self.opening).finish_non_exhaustive()
    }
}

/// Opens connections. Cheap to clone; clones share what was learnt about paths, and cookies.
#[derive(Clone, Debug)]
pub struct Connector {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ConnectorConfig,
    paths: Arc<PathMemory>,
    cookies: Arc<Cookies>,
    offers: Arc<Mutex<OfferMemory<Advert>>>,
    standings: Arc<Standings>,
    spares: Arc<Spares>,
}

impl Inner {
    /// Returns the offer for `literal`, whose server the ClientHello calls `name`.
    fn offer_for(&self, name: &str, literal: SocketAddr) -> Offer {
        match (self.config.edges)(&normalized(name)) {
            Some(edge) => self.configured(&edge, literal),
            None => self.advertised(name, literal, None),
        }
    }

    /// Returns the offer of a configured edge if `literal` is one of its addresses.
    fn configured(&self, edge: &Edge, literal: SocketAddr) -> Offer {
        let elsewhere = Offer::Never(NotUsed::OtherAddress);
        // Only addresses are looked up.
        let Ok(lookup) = self.config.resolver.resolve(&edge.host, 0) else { return elsewhere };
        if edge.port != literal.port() {
            return elsewhere;
        }
        let offer = Offer::Known(self.advert_of(edge));
        Offer::requested(
            async move { if lookup.finds(literal.ip()).await { offer } else { elsewhere } },
        )
    }

    /// Starts a search in DNS for what `name` advertises for `literal`; what the server itself has
    /// said stands where that finds nothing.
    fn advertised(&self, name: &str, literal: SocketAddr, learnt: Option<Learnt>) -> Offer {
        let (resolver, name) = (self.config.resolver.clone(), name.to_owned());
        Offer::requested(
            async move { Offer::new(resolver.advert_for(&name, literal).await, learnt) },
        )
    }

    /// Locks what servers have advertised. No call can leave it half changed.
    fn offers(&self) -> MutexGuard<'_, OfferMemory<Advert>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a configured edge offers, or is assumed to offer.
    fn advert_of(&self, edge: &Edge) -> Advert {
        let fop = edge.advert.fop || self.config.opening == OpeningPolicy::Fop;
        Advert { fop, ..edge.advert }
    }
}

impl Connector {
    /// Creates a connector that knows nothing about any path.
    #[must_use]
    pub fn new(config: ConnectorConfig) -> Self {
        Self::with_kernel(config, Box::new(Linux))
    }

    fn with_kernel(config: ConnectorConfig, kernel: Box<dyn Kernel>) -> Self {
        let (paths, cookies) = (Arc::default(), Arc::new(Cookies::new(kernel)));
        let (offers, standings) = (Arc::default(), Arc::default());
        let spares = Arc::new(Spares::new(config.spares));
        Self { inner: Arc::new(Inner { config, paths, cookies, offers, standings, spares }) }
    }

    /// Returns a connector that shares this one's memory under another configuration, for future
    /// connections. Spare connections are closed.
    #[must_use]
    pub fn reconfigured(&self, config: ConnectorConfig) -> Self {
        let (paths, cookies) = (Arc::clone(&self.inner.paths), Arc::clone(&self.inner.cookies));
        let offers = Arc::clone(&self.inner.offers);
        let standings = Arc::clone(&self.inner.standings);
        let spares = Arc::clone(&self.inner.spares);
        spares.reset(config.spares);
        Self { inner: Arc::new(Inner { config, paths, cookies, offers, standings, spares }) }
    }

    /// Returns true if contexts matter: only then does [`Target::context`] have to be determined.
    #[must_use]
    pub fn uses_contexts(&self) -> bool {
        let Inner { config, cookies, .. } = &*self.inner;
        match &config.upstream {
            Some(upstream) => upstream.login.is_by_context(),
            None => {
                config.spares > 0
                    || (config.opening.sends_syn_data() && cookies.is_available(cookies.now()))
            }
        }
    }

    /// Returns true if a connection to `target` should ask for cookies inside TLS, for
    /// [`keep_cookies`](Self::keep_cookies): the server hands them out, as far as that is known
    /// before connecting, and this machine can spend them.
    #[must_use]
    pub fn asks_for_cookies(&self, target: &Target) -> bool {
        if self.inner.config.upstream.is_some() {
            return false;
        }
        let offered = match self.edge_for(target) {
            Some(edge) => self.inner.advert_of(&edge).fop,
            None => {
                target.port == HTTPS_PORT
                    && self.inner.paths.expects_syn_offer(&normalized(target.name()))
            }
        };
        offered && target.context.is_shared() && self.uses_contexts()
    }

    /// Keeps Fast Open cookies, with their lifetimes, that arrived inside TLS over a connection to
    /// `target` that `report` describes. Drops those that cannot be used.
    ///
    /// For programs that do TLS themselves with an engine that knows the extension (docs/fop.md,
    /// section 4). For others, the connector finds the cookie in the ticket when they resume.
    pub fn keep_cookies(
        &self,
        target: &Target,
        report: &Report,
        cookies: impl IntoIterator<Item = (Cookie, Duration)>,
    ) {
        let Some(network) = report.network else { return };
        let visit = Visit { host: target.name(), context: &target.context, network };
        let (mut jar, now) = (self.inner.cookies.jar(), self.inner.cookies.now());
        for (cookie, lifetime) in cookies {
            if let Err(reason) = jar.put(&visit, cookie, lifetime, now) {
                tracing::debug!(host = target.name(), %reason, "cookie not kept");
            }
        }
    }

    /// Keeps what the server of `target` advertises in a ticket, over a connection that `report`
    /// describes and on which it has proven who it is; forgets what it does not advertise any more.
    ///
    /// Later connections of the same context to that address open by it, where DNS advertises
    /// nothing and no edge is configured. What does not hold is forgotten. Nothing is believed but
    /// the number of slots: another port would be a mark by which the network knows the client
    /// again, and early data or cookies are for DNS to offer, where operators withdraw them.
    pub fn keep_advert(&self, target: &Target, report: &Report, value: Option<&[u8]>) {
        let Some(address) = report.address else { return };
        if self.has_upstream() || self.edge_for(target).is_some() {
            return;
        }
        let advert = value.and_then(|value| Advert::from_value(value).ok());
        // W-TLS-3
        let advert = advert.filter(|advert| advert.udp.is_none() && !report.was_unanswered());
        // W-TLS-4
        let advert = advert.map(|Advert { slots, .. }| Advert { slots, ..Advert::default() });
        let (mut offers, now) = (self.inner.offers(), self.inner.cookies.now());
        match advert {
            Some(advert) => offers.put(&target.service(), address, advert, now),
            None => offers.remove(&target.service()),
        }
    }

    /// Drops the state kept for `context`, for example when it ends.
    pub fn forget_context(&self, context: &Context) {
        self.forget(Whose::Context(context));
    }

    /// Drops the state kept for any of these contexts.
    pub fn forget(&self, whose: Whose<'_>) {
        self.inner.cookies.jar().forget(whose);
        self.inner.offers().forget(whose);
        self.inner.spares.forget(whose);
    }

    /// Watches the machine's addresses and interfaces for as long as it is awaited, and drops what
    /// came from networks that the machine leaves.
    ///
    /// # Errors
    /// The kernel does not report changes, or stopped doing so. State from other networks still
    /// stays unused: every connection checks its route.
    pub async fn follow_networks(&self) -> io::Result<Infallible> {
        let mut changes = Changes::listen()?;
        loop {
            let news = changes.next().await;
            for change in news.as_deref().unwrap_or(&[Change::Anything]) {
                self.leave(*change);
            }
            news?;
        }
    }

    /// Holds spare connections for as long as it is awaited, and for all that share this
    /// connector's memory; closes them when it is dropped.
    pub async fn keep_spares(&self) -> Infallible {
        self.inner.spares.keep().await
    }

    fn leave(&self, change: Change) {
        self.inner.cookies.leave(change);
        // What was learnt on one network shows nothing on the next.
        self.inner.offers().forget(Whose::Everybody);
        self.inner.spares.leave(change);
        if let Change::Address(local) = change {
            self.inner.paths.forget_network(local);
        }
    }

    /// Starts to connect to `target`. Must be called within a tokio runtime.
    ///
    /// Awaits nothing: TLS can start at once, and the first bytes it writes become the UDP flight
    /// where an edge is known. Failures to connect appear when the stream is used, or through
    /// [`ClientStream::connected`].
    ///
    /// # Errors
    /// [`DnsError::InvalidName`].
    pub fn connect(&self, target: &Target) -> Result<ClientStream, DnsError> {
        let config = &self.inner.config;
        if let Some(upstream) = &config.upstream {
            return self.connect_through(upstream, target);
        }
        let edge = self.edge_for(target);
        let (host, port) = match &edge {
            Some(edge) => (edge.host.as_str(), edge.port),
            None => (target.host.as_str(), target.port),
        };
        // A configured edge needs no HTTPS record, so only addresses are looked up.
        let lookup_port =
            if edge.is_some() || config.opening == OpeningPolicy::Plain { 0 } else { port };
        let lookup = config.resolver.resolve(host, lookup_port)?;
        let lookup = match &edge {
            Some(_) => lookup,
            None => lookup.filtered(host, &config.filter),
        };
        let offer = match edge {
            _ if config.opening == OpeningPolicy::Plain => Offer::Never(NotUsed::Policy),
            Some(edge) => Offer::Known(self.inner.advert_of(&edge)),
            None => self.discovery(target),
        };
        let opening = Opening::new(Arc::clone(&self.inner), target, port, lookup, offer);
        Ok(ClientStream::new(Box::new(opening)))
    }

    /// Returns true if all connections go through a proxy.
    #[must_use]
    pub fn has_upstream(&self) -> bool {
        self.inner.config.upstream.is_some()
    }

    #[cfg(test)]
    #[cfg(feature = "dns")]
    pub(crate) fn standings(&self) -> &Standings {
        &self.inner.standings
    }

    fn connect_through(
        &self,
        upstream: &Arc<Upstream>,
        target: &Target,
    ) -> Result<ClientStream, DnsError> {
        let Inner { config, standings, .. } = &*self.inner;
        let (upstream, standings) = (Arc::clone(upstream), Arc::clone(standings));
        let (resolver, limit) = (config.resolver.clone(), config.connect_timeout);
        let opening = upstream::Opening::new(upstream, standings, resolver, limit, target)?;
        Ok(ClientStream::new(Box::new(opening)))
    }

    /// Returns the edge configured for the name. An edge serves the HTTPS port of its name.
    fn edge_for(&self, target: &Target) -> Option<Edge> {
        let name = Some(target.name()).filter(|_| target.port == HTTPS_PORT)?;
        (self.inner.config.edges)(&normalized(name))
    }

    /// Starts discovery by DNS where no edge is configured.
    fn discovery(&self, target: &Target) -> Offer {
        let learnt = self.inner.offers().get(&target.service(), self.inner.cookies.now());
        let learnt = learnt.map(|(advert, addresses)| Learnt { advert, addresses });
        let literal = address_literal(&target.host);
        let literal = literal.map(|address| SocketAddr::new(address, target.port));
        match (literal, &target.server_name) {
            _ if target.port != HTTPS_PORT => {
                learnt.map_or(Offer::Never(NotUsed::Port), Offer::Learnt)
            }
            (None, _) => Offer::Awaited(learnt),
            (Some(literal), None) => Offer::Unnamed(literal),
            (Some(literal), Some(name)) => self.inner.advertised(name, literal, learnt),
        }
    }
}
