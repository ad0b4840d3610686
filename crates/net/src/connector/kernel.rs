use std::io;
use std::net::{IpAddr, SocketAddr};

use headstart_proto::cookie::Cookie;
use headstart_sessions::Network;
use tokio::net::TcpStream;

use crate::{fastopen, netlink};

pub(super) use crate::fastopen::SYN_DATA_MAX;

/// The kernel's part in sending data in the SYN. A trait so that tests need no eBPF program.
pub(super) trait Kernel: Send + Sync {
    /// Checks that the kernel supports it; otherwise explains why not.
    fn probe(&self) -> Result<(), String>;

    /// Returns the network through which a connection to `destination` would leave now; an error if
    /// there is no route.
    fn network_to(&self, destination: IpAddr) -> io::Result<Network>;

    /// Sends a SYN with a cookie and as much of `data` as fits. Returns the pending connection and
    /// the number of bytes sent: 0 if the kernel sent the SYN without data. The connection becomes
    /// writable once it is established, and has TCP_NODELAY.
    fn connect(
        &self,
        to: SocketAddr,
        cookie: &Cookie,
        data: &[u8],
    ) -> io::Result<(TcpStream, usize)>;

    /// Returns true if the SYN-ACK acknowledged data.
    fn was_accepted(&self, stream: &TcpStream) -> io::Result<bool>;
}

/// The kernel of this machine.
pub(super) struct Linux;

impl Kernel for Linux {
    fn probe(&self) -> Result<(), String> {
        fastopen::probe().map_err(|unavailable| unavailable.to_string())
    }

    fn network_to(&self, destination: IpAddr) -> io::Result<Network> {
        netlink::network_to(destination)
    }

    fn connect(
        &self,
        to: SocketAddr,
        cookie: &Cookie,
        data: &[u8],
    ) -> io::Result<(TcpStream, usize)> {
        fastopen::connect(to, None, cookie, data)
    }

    fn was_accepted(&self, stream: &TcpStream) -> io::Result<bool> {
        fastopen::was_accepted(stream)
    }
}
