//! Ports for programs that have to be told one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that the kernel gives out by itself (`net.ipv4.ip_local_port_range`, from 32768):
/// what nobody listens on now stays so.
const FIRST: u32 = 20_000;

/// Ports of one run at most, of a hundred runs that may be concurrent.
const RUN: u32 = 100;

/// Returns an address of loopback that nobody listens on, on TCP and UDP.
pub(crate) fn free() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::SeqCst) % RUN;
        let port = FIRST + process::id() % 100 * RUN + number;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap()));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
