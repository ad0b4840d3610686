use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use headstart_proto::cookie::Cookie;
use headstart_sessions::{Context, CookieJar, Network};
use headstart_tls::{NewSession, Session};

/// Sessions kept for one key: two come with each connection, and one is taken; 1 kB each.
const SESSIONS_MAX: usize = 4096;

/// Keys whose sessions are kept. An experiment has four; whoever has more gets none for the
/// further ones.
const KEYS_MAX: usize = 64;

/// Memory of what connections have brought that later ones may use: cookies and sessions, by name,
/// context and network.
#[derive(Default)]
pub(super) struct Memory {
    cookies: CookieJar,
    sessions: HashMap<VisitKey, VecDeque<Kept>>,
}

/// Name, context and network of a connection, under which sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VisitKey {
    pub(super) name: String,
    pub(super) context: Context,
    pub(super) network: Network,
}

/// A session, and whether it allows early data.
pub(super) struct Kept {
    pub(super) session: Session,
    pub(super) early_data: bool,
}

impl VisitKey {
    /// For a connection to `to`, by this user.
    pub(super) fn new(name: &str, label: Option<&str>, to: SocketAddr) -> io::Result<Self> {
        let uid = Some(rustix::process::geteuid().as_raw());
        let context = Context { uid, label: label.map(str::to_owned) };
        Ok(Self { name: name.to_owned(), context, network: network(to)? })
    }

    fn visit(&self) -> headstart_sessions::Visit<'_> {
        headstart_sessions::Visit {
            host: &self.name,
            context: &self.context,
            network: self.network,
        }
    }
}

/// The way to `to`, as far as the source address shows it: in the lab, a client that moves has
/// another one.
fn network(to: SocketAddr) -> io::Result<Network> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Sends nothing: the kernel only chooses the address.
    socket.connect(to)?;
    Ok(Network { local: socket.local_addr()?.ip(), interface: 0, gateway: None })
}

impl Memory {
    /// A cookie for this place, which is spent with that.
    pub(super) fn take_cookie(&mut self, key: &VisitKey, now: Instant) -> Option<Cookie> {
        self.cookies.take(&key.visit(), now)
    }

    /// A session for this place, the newest: the others may be past their time.
    pub(super) fn take_session(&mut self, key: &VisitKey) -> Option<Kept> {
        self.sessions.get_mut(key)?.pop_back()
    }

    /// Keeps cookies for their time.
    pub(super) fn put_cookies(&mut self, key: &VisitKey, new: &NewSession, now: Instant) {
        for offered in &new.cookies {
            // Dropping one that is already here, or ends too soon, costs nothing.
            let _ = self.cookies.put(&key.visit(), offered.cookie, offered.lifetime, now);
        }
    }

    pub(super) fn put_session(&mut self, key: &VisitKey, new: NewSession) {
        if self.sessions.len() >= KEYS_MAX && !self.sessions.contains_key(key) {
            return;
        }
        let kept = self.sessions.entry(key.clone()).or_default();
        if kept.len() == SESSIONS_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { session: new.session, early_data: new.max_early_data > 0 });
    }

    /// Everything goes, but which cookies were spent.
    pub(super) fn forget(&mut self) {
        self.cookies.clear();
        self.sessions.clear();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions: usize = self.sessions.values().map(VecDeque::len).sum();
        write!(f, "{} cookies, {sessions} sessions", self.cookies.cookies())
    }
}
