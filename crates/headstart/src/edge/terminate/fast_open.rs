//! Fast Open with private cookies at the edge: the listeners that get SYNs with valid cookies, and
//! the keys and the time by which the kernel's program checks them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use headstart_net::fastopen::{HiddenListener, REFRESH, ServerMaps, Unavailable};
use headstart_tls::keyring::KeyRing;
use headstart_tls::{CookiePolicy, SharedRing};
use tokio::net::TcpListener;

use super::files::Complaint;
use crate::base::failure::Failure;
use crate::edge::options::EdgeOptions;
use crate::listen::Sockets;

/// The program's maps, and this edge's entries in them.
pub(super) struct FastOpen {
    maps: ServerMaps,
    listeners: Vec<Arc<HiddenListener>>,
    /// The ring whose keys the program has.
    keys: Arc<KeyRing>,
    complaint: Complaint,
    refreshed: Instant,
    /// True if the program was attached at the last check.
    attached: bool,
    /// True if an acceptor has one of the listeners.
    serving: bool,
}

impl FastOpen {
    /// Opens the maps of the attached program if `options` ask for that.
    ///
    /// # Errors
    /// No program, or one for another port; a kernel that does not let servers use Fast Open.
    pub(super) fn start(
        options: &EdgeOptions,
        ring: &SharedRing,
        sockets: &mut Sockets,
    ) -> Result<Option<Self>, Failure> {
        if !options.fast_open {
            return Ok(None);
        }
        let maps = ServerMaps::open(&options.fast_open_maps).map_err(|error| unusable(&error))?;
        let listeners = listeners(&options.listen, maps.port(), sockets)?;
        let keys = ring.current();
        let (complaint, refreshed) = (Complaint::default(), Instant::now());
        let attached = true;
        Ok(Some(Self { maps, listeners, keys, complaint, refreshed, attached, serving: false }))
    }

    /// Returns the listener for an acceptor at `address`, if the program checks its port.
    pub(super) fn listener(&self, address: SocketAddr) -> Option<Arc<HiddenListener>> {
        let same =
            |listener: &&Arc<HiddenListener>| listener.local_addr().is_ipv4() == address.is_ipv4();
        let found = self.listeners.iter().find(same);
        found.filter(|_| address.port() == self.maps.port()).cloned()
    }

    /// Directs SYNs with valid cookies from this listener to the hidden one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn serve(&mut self, public: &TcpListener) -> Result<(), Failure> {
        let local = public.local_addr().map_err(|error| untold(&error))?;
        if local.port() != self.maps.port() {
            return Ok(());
        }
        if !self.serving {
            self.announce().map_err(|error| untold(&error))?;
            self.serving = true;
            tracing::info!(port = self.maps.port(), "Fast Open");
        }
        self.maps.set_public(public).map_err(|error| untold(&error))
    }

    /// Returns true if all acceptors have stopped: nobody would accept from the listeners.
    pub(super) fn is_over(&self) -> bool {
        self.serving && self.listeners.iter().all(|listener| Arc::strong_count(listener) == 1)
    }

    /// Passes new keys to the program, and the time now and then.
    pub(super) fn look(&mut self, ring: &SharedRing) {
        if let Err(error) = self.maps.publish() {
            tracing::error!(%error, "Fast Open: cannot read the counters");
        }
        self.take_keys(ring.current());
        if self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            if let Err(error) = self.maps.refresh() {
                tracing::error!(%error, "Fast Open: cannot tell the kernel the time");
            }
            self.look_whether_attached();
        }
    }

    fn look_whether_attached(&mut self) {
        let attached = self.maps.is_attached();
        if self.attached && !attached {
            tracing::warn!(
                hint = "`headstart fastopen attach server`, and start the edge again",
                "Fast Open: the program was detached; connections are ordinary ones"
            );
        }
        self.attached = attached;
    }

    /// Retried until it works: cookies are minted with these keys already.
    fn take_keys(&mut self, current: Arc<KeyRing>) {
        if Arc::ptr_eq(&current, &self.keys) {
            return;
        }
        match self.set_keys(&current) {
            Ok(()) => {
                self.keys = current;
                self.complaint.close();
            }
            Err(error) if self.complaint.open(&error.to_string()) => {
                tracing::error!(%error, "Fast Open: cookies of the new keys are not taken");
            }
            Err(_) => {}
        }
    }

    fn announce(&mut self) -> std::io::Result<()> {
        self.set_keys(&Arc::clone(&self.keys))?;
        for listener in &self.listeners {
            self.maps.set_hidden(listener)?;
        }
        Ok(())
    }

    fn set_keys(&mut self, keys: &KeyRing) -> std::io::Result<()> {
        self.maps.set_keys(&keys.cookies(), CookiePolicy::default().life)
    }
}

/// Returns one listener for each address family of the program's port: the predecessor's, if this
/// process takes over from one, as connections may wait there.
fn listeners(
    listen: &[SocketAddr],
    port: u16,
    sockets: &mut Sockets,
) -> Result<Vec<Arc<HiddenListener>>, Failure> {
    let mut found: Vec<SocketAddr> =
        listen.iter().copied().filter(|at| at.port() == port).collect();
    if found.is_empty() {
        return Err(Failure::usage(format!(
            "Fast Open is attached to port {port}, which is not listened on"
        ))
        .hint("attach it to the port of --listen: headstart fastopen attach server --port PORT"));
    }
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup_by_key(|at| at.is_ipv6());
    found
        .into_iter()
        .map(|at: SocketAddr| {
            let listener = match sockets.take_hidden(at) {
                Some(listener) => HiddenListener::adopt(listener),
                None => HiddenListener::bind(at),
            };
            let listener = listener.map_err(|error| unusable(&error))?;
            sockets.copy_hidden(&listener)?;
            Ok(Arc::new(listener))
        })
        .collect()
}

fn untold(error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot use Fast Open: {error}"))
        .hint("`headstart fastopen status` shows what is attached")
}

fn unusable(error: &Unavailable) -> Failure {
    Failure::usage(format!("cannot use Fast Open: {error}")).hint(error.hint())
}

impl fmt::Debug for FastOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastOpen").field("maps", &self.maps).finish_non_exhaustive()
    }
}
