//! Listening sockets, opened so that a failure says what to do.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::base::failure::Failure;

/// Connections the kernel may hold before they are accepted; capped by net.core.somaxconn,
/// 4096 by default since Linux 5.4.
const BACKLOG: i32 = 4096;

/// A TCP listener at `address`. An IPv6 address takes IPv6 only, so that `0.0.0.0` and `[::]` can
/// be given side by side whatever net.ipv6.bindv6only says.
///
/// # Errors
/// A [`Failure`] with a hint, for example when the port is in use.
pub fn tcp(address: SocketAddr) -> Result<TcpListener, Failure> {
    open(address).map_err(|error| Failure::bind(address, &error))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A restart must not wait for connections of the last run in TIME-WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_a_way_to_find_its_user() {
        let first = tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let text = tcp(address).unwrap_err().to_string();
        let port = address.port();
        assert_eq!(
            text,
            format!(
                "error: cannot listen on 127.0.0.1:{port}: Address already in use (os error 98)\n\
                 hint: another program uses port {port}; `ss -ltunp 'sport = :{port}'` shows which"
            )
        );
    }

    #[tokio::test]
    async fn both_families_may_have_the_same_port() {
        let v6 = tcp("[::]:0".parse().unwrap()).unwrap();
        let port = v6.local_addr().unwrap().port();
        tcp(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    }

    #[tokio::test]
    async fn a_foreign_address_is_explained() {
        let text = tcp("192.0.2.1:0".parse().unwrap()).unwrap_err().to_string();
        assert!(text.contains("not an address of this machine"), "{text}");
    }
}
