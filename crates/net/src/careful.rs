//! Careful Resume (RFC 9959): connections begin with the window that their path has borne before.
//!
//! The edge remembers, by the address prefix of clients, how much an earlier connection had
//! acknowledged in a round trip. A TurboTLS connection has sent its initial data over UDP when its
//! join comes, and the join acknowledges it; TCP has sent nothing yet. That is the moment at which
//! Linux lets a BPF program set the window ([`attach_careful`]), and at which the RFC allows a jump
//! to half of what is saved. A [watch](CarefulWatch) then follows the connection through the
//! phases, and takes the window back if the path bears less.
//!
//! Connections that begin over TCP are observed and never jump: their initial data are
//! acknowledged when it is too late for the kernel.
//!
//! docs/careful-resume.md has the requirements of the RFC, and those that the kernel does not let
//! an edge meet.

mod kernel;
mod paths;
mod watch;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::timeline::EdgeTimeline;
use paths::Paths;

#[cfg(feature = "attach")]
pub use crate::fastopen::{
    CarefulOptions, CarefulStatus, attach_careful, careful_status, detach_careful,
};
pub use watch::CarefulWatch;
pub(crate) use watch::Watch;

/// Lengths of the prefixes of IPv4 and IPv6 by which addresses have one path: what networks give to
/// one site, or to the neighbours behind one exchange.
pub const PREFIXES: (u8, u8) = (24, 48);

/// Checks that this process may set the windows of connections to listeners that it opens.
///
/// # Errors
/// As [`CarefulResume::new`].
pub fn probe() -> io::Result<()> {
    kernel::probe(kernel::own_socket()?)
}

/// Careful Resume for the connections of an edge.
#[derive(Debug)]
pub struct CarefulResume {
    paths: Arc<Paths>,
}

impl CarefulResume {
    /// An edge that knows no path yet; addresses with a prefix of these lengths have one path.
    /// Accepts connections from these listeners.
    ///
    /// # Errors
    /// The reason why this process may not set their windows: `ENOPROTOOPT` where no program is
    /// attached to the cgroup of a listener, `EPERM` where it serves another user.
    pub fn new(prefixes: (u8, u8), listeners: impl IntoIterator<Item: AsFd>) -> io::Result<Self> {
        // Accepted sockets belong to the cgroup in which their listener was made: that of this
        // process, or of another that has handed it over.
        listeners.into_iter().try_for_each(kernel::probe)?;
        Ok(Self { paths: Arc::new(Paths::new(prefixes)) })
    }

    /// Returns the number of paths whose state is saved.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Watches a connection that began over TCP.
    pub(crate) fn observe(&self, tcp: &TcpStream) -> Option<Watch> {
        Watch::start(&self.paths, tcp, None).ok()
    }

    /// Watches a connection whose join came: it has sent nothing. The join acknowledges so many
    /// bytes of the initial data; `None` if not all. Notes a jump in the timeline.
    pub(crate) fn resume(
        &self,
        tcp: &TcpStream,
        acknowledged: Option<u32>,
        timeline: &EdgeTimeline,
    ) -> Option<Watch> {
        let watch = Watch::start(&self.paths, tcp, Some(acknowledged)).ok()?;
        watch.note_jump(timeline);
        Some(watch)
    }
}
