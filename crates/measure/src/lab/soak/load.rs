//! The load: workers that make one exchange after the other, each of a kind drawn from the seed.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_client::{Agent, Options, Policy, Verify};
use headstart_emulation::Node;
use headstart_net::TlsStream;
use headstart_openers::{Arm, Carrier, Client, ClientOptions, NAME, Suite, Trial, Visit};
use headstart_tls::{ClientConfig, ClientContext, Trust};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::{self, Use};
use super::judge::Way;
use super::spec::Experiment;
use crate::lab::topology::HTTPS;

/// Openings by programs without an agent, and one by SOCKS5.
const OPENINGS: [Arm; 6] = [
    Arm::TLS13,
    Arm::TLS13_RESUMED,
    Arm::TLS13_EARLY_DATA,
    Arm::TURBO,
    Arm::TURBO_RESUMED,
    Arm::TURBO_AGENT,
];

/// A kind of exchange.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A connection for one response.
    Opening(Arm),
    Http(Via, Use),
}

/// The way of an HTTP client to the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// TLS of its own, over TCP of its own.
    Tcp,
    /// TLS of its own, over a connection that the agent opens.
    Agent,
    /// TLS by the agent.
    Managed,
}

/// An exchange that is over. Times are since the load began.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) kind: Kind,
    pub(super) large: bool,
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) trial: Trial,
    /// Name of the opening, where the trial does not know.
    pub(super) opening: Option<String>,
}

/// Places that the clients need to know.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) site: SocketAddr,
    pub(super) proxy: SocketAddr,
    pub(super) socket: PathBuf,
    pub(super) identities: PathBuf,
    pub(super) roots: PathBuf,
}

/// Clients at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    forget: AtomicBool,
    done: Mutex<Vec<Exchange>>,
}

impl Kind {
    pub(super) fn all() -> Vec<Self> {
        let http = [Via::Tcp, Via::Agent, Via::Managed]
            .into_iter()
            .flat_map(|via| Use::ALL.map(|what| Self::Http(via, what)));
        OPENINGS.map(Self::Opening).into_iter().chain(http).collect()
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Opening(arm) => arm.name().to_owned(),
            Self::Http(via, what) => format!("{}-{}", via.name(), what.name()),
        }
    }

    pub(super) fn way(self) -> Way {
        match self {
            Self::Opening(arm) if arm.has_agent() => Way::Agent,
            Self::Opening(arm) if arm.opening().carrier == Carrier::TurboTls => Way::Turbo,
            Self::Opening(_) | Self::Http(Via::Tcp, _) => Way::Tcp,
            Self::Http(Via::Agent | Via::Managed, _) => Way::Agent,
        }
    }
}

impl Via {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Agent => "agent",
            Self::Managed => "managed",
        }
    }
}

impl Load {
    /// Starts the workers on a node; times are since `begun`.
    pub(super) fn start(
        node: &Node,
        soak: &Experiment,
        places: &Places,
        begun: Instant,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (all, soak, places) = (Arc::clone(&shared), soak.clone(), places.clone());
        let thread = node.spawn_thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(work(all, soak, &places, begun))
        })?;
        Ok(Self { shared, thread })
    }

    /// Returns what is over since the last call.
    pub(super) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.shared.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has clients forget sessions and paths before their next exchanges, as new programs would.
    pub(super) fn forget(&self) {
        self.shared.forget.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_broken(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the workers, each with its exchange.
    pub(super) fn end(self) -> io::Result<Vec<Exchange>> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let done = Arc::clone(&self.shared);
        self.thread.join().map_err(|_| io::Error::other("the load panicked"))???;
        Ok(std::mem::take(&mut *done.done.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

async fn work(
    shared: Arc<Shared>,
    soak: Experiment,
    places: &Places,
    begun: Instant,
) -> io::Result<()> {
    let clients = Arc::new(Clients::new(&soak, places)?);
    let soak = Arc::new(soak);
    let mut workers = JoinSet::new();
    for number in 0..soak.workers.get() {
        let (shared, soak, clients) =
            (Arc::clone(&shared), Arc::clone(&soak), Arc::clone(&clients));
        workers.spawn(async move {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(soak.seed + u64::from(number));
            while !shared.is_over.load(Ordering::Relaxed) {
                if shared.forget.swap(false, Ordering::Relaxed) {
                    clients.forget();
                }
                let done = clients.exchange(&soak, &mut random, begun).await;
                shared.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
                tokio::time::sleep(soak.pause).await;
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    Ok(())
}

/// State of all clients.
struct Clients {
    kinds: Vec<Kind>,
    openers: Vec<Client>,
    /// For HTTP/1.1, and for HTTP/2.
    contexts: [ClientContext; 2],
    agent: Agent,
    places: Places,
}

/// Plain bytes both ways.
trait Plain: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Plain for T {}

impl Clients {
    fn new(soak: &Experiment, places: &Places) -> io::Result<Self> {
        let roots = std::fs::read(&places.roots)?;
        let openers = OPENINGS.into_iter().map(|arm: Arm| {
            let mut options = ClientOptions::new(arm, Suite::P256, places.site, &places.identities);
            options.proxy = arm.has_agent().then_some(places.proxy);
            options.timeout = soak.timeout;
            Client::new(options).map_err(|error| io::Error::other(error.to_string()))
        });
        Ok(Self {
            kinds: Kind::all(),
            openers: openers.collect::<io::Result<_>>()?,
            contexts: [context(&roots, http::HTTP1)?, context(&roots, http::HTTP2)?],
            agent: Agent::socket(&places.socket).timeout(soak.timeout),
            places: places.clone(),
        })
    }

    fn forget(&self) {
        // Want of memory shows elsewhere.
        self.openers.iter().for_each(|client| drop(client.forget()));
    }

    /// Makes an exchange of any kind.
    async fn exchange(
        &self,
        soak: &Experiment,
        random: &mut Xoshiro256PlusPlus,
        begun: Instant,
    ) -> Exchange {
        let kind = self.kinds[random.random_range(0..self.kinds.len())];
        let large = random.random_range(0..soak.large_among.get()) == 0;
        let bytes = if large { soak.large } else { random.random_range(1..=soak.small) };
        let (offset, from) = (random.random_range(0..1 << 40), begun.elapsed());
        let (trial, opening) = match kind {
            Kind::Opening(arm) => (self.open(arm, bytes).await, None),
            Kind::Http(via, what) => {
                let exchange = self.http(via, what, [offset, bytes]);
                let outcome = timeout(soak.timeout, exchange).await;
                let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("out of time")));
                let to = begun.elapsed();
                account(outcome, bytes, to - from)
            }
        };
        // By SOCKS5 and on a bare connection, only the agent knows.
        let is_hidden = kind.way() == Way::Agent && opening.is_none();
        let opening = opening.or_else(|| is_hidden.then(|| "agent".to_owned()));
        Exchange { kind, large, from, to: begun.elapsed(), trial, opening }
    }

    async fn open(&self, arm: Arm, bytes: u64) -> Trial {
        let client = OPENINGS.iter().zip(&self.openers).find(|(own, _)| **own == arm);
        match client {
            Some((_, client)) => client.visit(&Visit::new(bytes)).await,
            None => Trial::default(),
        }
    }

    async fn http(&self, via: Via, what: Use, [offset, bytes]: [u64; 2]) -> io::Result<Told> {
        let (stream, told) = self.connect(via, what).await?;
        http::exchange(stream, what, offset, bytes).await?;
        Ok(told)
    }

    /// Speaks TLS itself.
    fn tls(&self, is_http2: bool, stream: impl Plain + 'static) -> io::Result<Box<dyn Plain>> {
        let context = &self.contexts[usize::from(is_http2)];
        let conn = context.connect(NAME, None, false).map_err(io::Error::other)?;
        Ok(Box::new(TlsStream::new(conn, stream)))
    }

    async fn connect(&self, via: Via, what: Use) -> io::Result<(Box<dyn Plain>, Told)> {
        let is_http2 = what == Use::Http2;
        match via {
            Via::Tcp => {
                let tcp = TcpStream::connect(self.places.site).await?;
                tcp.set_nodelay(true)?;
                Ok((self.tls(is_http2, tcp)?, Told::default()))
            }
            Via::Agent => {
                let bare = self.agent.connect_bare(NAME, HTTPS, None).await;
                Ok((self.tls(is_http2, bare.map_err(unopened)?)?, Told::default()))
            }
            Via::Managed => {
                let options = Options {
                    alpn: vec![if is_http2 { http::HTTP2 } else { http::HTTP1 }.to_owned()],
                    verify: Verify::Roots(self.places.roots.clone()),
                    policy: Some(Policy::Share),
                    context: Some("soak".to_owned()),
                    ..Options::default()
                };
                let stream = self.agent.connect(NAME, HTTPS, &options, &[]).await;
                let stream = stream.map_err(unopened)?;
                let facts = stream.facts();
                let opening = facts.map(|facts| facts.opening.clone());
                let resumed = facts.is_some_and(|facts| facts.resumed);
                Ok((Box::new(stream), Told { opening, resumed }))
            }
        }
    }
}

fn context(roots: &[u8], protocol: &str) -> io::Result<ClientContext> {
    let mut config = ClientConfig::new(Trust::Roots(roots.to_vec()));
    config.alpn = vec![protocol.into()];
    ClientContext::new(&config).map_err(io::Error::other)
}

/// Facts about a connection that the agent tells.
#[derive(Debug, Default)]
struct Told {
    opening: Option<String>,
    resumed: bool,
}

fn unopened(error: headstart_client::Error) -> io::Error {
    io::Error::other(format!("the agent: {error}"))
}

fn account(outcome: io::Result<Told>, bytes: u64, took: Duration) -> (Trial, Option<String>) {
    match outcome {
        Ok(Told { opening, resumed }) => {
            let last = Some(took.as_secs_f64() * 1e3);
            let trial =
                Trial { ok: true, ms_to_last_response_byte: last, bytes, ..Trial::default() };
            (Trial { resumed, ..trial }, opening)
        }
        Err(error) => (Trial { error: error.to_string(), ..Trial::default() }, None),
    }
}
