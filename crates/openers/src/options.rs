//! Options of clients and servers.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::thread::available_parallelism;
use std::time::Duration;

use headstart_net::{AcceptorConfig, OpeningPolicy, Report};
use headstart_proto::Carrier;

use crate::arm::{Arm, Suite};
use crate::error::PeerError;

/// The server's name where none is given.
pub const NAME: &str = "peer.test";

/// The name of another virtual host of a server that is called [`NAME`]: its certificate has both.
pub const OTHER_NAME: &str = "other.peer.test";

/// Default time limit of a connection: curl's users wait as long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Opening of connections.
    pub arm: Arm,
    /// Cryptography; as the server's.
    pub suite: Suite,
    /// The server.
    pub to: SocketAddr,
    /// Further addresses of it, which a [`Visit`](crate::Visit) can ask for.
    pub more: Vec<SocketAddr>,
    /// Directory in which servers leave the trusted certificates.
    pub identity: PathBuf,
    /// The server's name.
    pub name: String,
    /// A SOCKS5 proxy, which is asked for the name and the port of `to`.
    pub proxy: Option<SocketAddr>,
    /// The server's ECHConfigList (RFC 9849 section 4) in base64, for arms that encrypt their
    /// ClientHello.
    pub ech: Option<String>,
    /// Openings that TurboTLS may use.
    pub policy: OpeningPolicy,
    /// Slots in a flight of TurboTLS, advertised and at most; by default as advertised usually.
    pub slots: Option<u8>,
    /// Time that TurboTLS waits for the first datagram, instead of what it learns.
    pub grace: Option<Duration>,
    /// Time limit of one connection.
    pub timeout: Duration,
    /// Threads of the program; one suffices but for load.
    pub threads: usize,
    /// Seed of the arrival times of [`Load::PerSecond`](crate::Load::PerSecond).
    pub seed: u64,
    /// Where the report of each connection by TurboTLS goes, and true if its response came whole.
    pub reports: Option<SyncSender<(Report, bool)>>,
}

impl ClientOptions {
    /// As usual.
    pub fn new(arm: Arm, suite: Suite, to: SocketAddr, identity: impl Into<PathBuf>) -> Self {
        Self {
            arm,
            suite,
            to,
            more: Vec::new(),
            identity: identity.into(),
            name: NAME.to_owned(),
            proxy: None,
            ech: None,
            policy: OpeningPolicy::default(),
            slots: None,
            grace: None,
            timeout: TIMEOUT,
            threads: 1,
            seed: 1,
            reports: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), PeerError> {
        let Self { arm, suite, proxy, slots, ech, .. } = self;
        supported(*arm, *suite)?;
        if arm.is_clear() {
            return Err(PeerError::new(format!("{arm} loads whole pages only"))
                .with_hint("use tls13 and its kin, or a client of pages"));
        }
        if arm.encrypts_hello() != ech.is_some() {
            return Err(PeerError::new(
                "an ECHConfigList belongs to arms with ECH, and they need one",
            )
            .with_hint("give --ech with arms that have ech in their name, and with no other"));
        }
        match (proxy, arm.carrier()) {
            (None, _) if arm.has_agent() => {
                Err(PeerError::new(format!("{arm} opens its connections through an agent"))
                    .with_hint("give the agent's address with --proxy IP:PORT"))
            }
            (Some(_), Carrier::FastOpen | Carrier::Fop | Carrier::TurboTls | Carrier::Quic) => {
                Err(PeerError::new(format!("{arm} does not go through a proxy"))
                    .with_hint("use turbo-agent or fop-agent, or tls13 and its kin"))
            }
            _ if !self.more.is_empty() && !arm.has_several_addresses() => {
                Err(PeerError::new(format!("a server of {arm} is at one address"))
                    .with_hint("give --also to clients of tls13, tfo, fop and their kin"))
            }
            _ if slots.is_some_and(|slots| slots == 0) => {
                Err(PeerError::new("a flight without slots brings no answer")
                    .with_hint("give 1 to 16 with --slots"))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn supported(arm: Arm, suite: Suite) -> Result<(), PeerError> {
    if arm.is_of_programs() {
        return Err(PeerError::new(format!("{arm} is an arm of other programs"))
            .with_hint("start them, or use tls13"));
    }
    match arm.supports(suite) {
        true => Ok(()),
        false => Err(PeerError::new(format!("there is no {arm} with {suite}"))
            .with_hint("QUIC and ECH are measured with p256 and x25519mlkem768")),
    }
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Opening of connections.
    pub arm: Arm,
    /// Cryptography.
    pub suite: Suite,
    /// Address to listen on; port 0 picks one.
    pub listen: SocketAddr,
    /// Further addresses to listen on, for arms that can be at several.
    pub more: Vec<SocketAddr>,
    /// Directory of the certificate and key, which other servers and clients may share.
    pub identity: PathBuf,
    /// The name that a new certificate is for.
    pub name: String,
    /// Bytes that its first flight should have, TLS records included.
    pub flight: Option<usize>,
    /// Threads of the program; by default one for each CPU.
    pub threads: usize,
    /// Threads that read the datagrams of TurboTLS.
    pub udp_workers: usize,
    /// Directory in which `headstart fastopen attach server` pinned its maps, for arms with private
    /// cookies.
    /// Without them cookies are handed out and open nothing.
    pub fast_open_maps: Option<PathBuf>,
    /// Life of private cookies, if not the default.
    pub cookie_life: Option<Duration>,
}

impl ServerOptions {
    /// As usual.
    pub fn new(arm: Arm, suite: Suite, listen: SocketAddr, identity: impl Into<PathBuf>) -> Self {
        Self {
            arm,
            suite,
            listen,
            more: Vec::new(),
            identity: identity.into(),
            name: NAME.to_owned(),
            flight: None,
            threads: available_parallelism().map_or(1, Into::into),
            udp_workers: AcceptorConfig::default().udp_workers,
            fast_open_maps: None,
            cookie_life: None,
        }
    }

    /// All addresses, the first one first.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen].into_iter().chain(self.more.iter().copied())
    }

    pub(crate) fn unusable(&self, error: &io::Error) -> PeerError {
        let all: Vec<_> = self.addresses().map(|address| address.to_string()).collect();
        PeerError::new(format!("cannot listen on {}: {error}", all.join(", ")))
            .with_hint("another program may have the port, or the address may not be here")
    }

    pub(crate) fn check(&self) -> Result<(), PeerError> {
        let Self { arm, suite, more, fast_open_maps, cookie_life, .. } = self;
        supported(*arm, *suite)?;
        match () {
            () if arm.encrypts_hello() => {
                Err(PeerError::new(format!("there is no server of {arm} in this program"))
                    .with_hint("start headstart-ech-server, of the package of this name"))
            }
            () if !more.is_empty() && !arm.loads_pages() => {
                Err(PeerError::new(format!("a server of {arm} is at one address"))
                    .with_hint("leave out --also, or name an arm without an agent"))
            }
            () if (fast_open_maps.is_some() || cookie_life.is_some())
                && arm.carrier() != Carrier::Fop =>
            {
                Err(PeerError::new(format!("{arm} has no private cookies"))
                    .with_hint("leave out --fast-open-maps and --cookie-life, or use fop"))
            }
            () => Ok(()),
        }
    }
}
