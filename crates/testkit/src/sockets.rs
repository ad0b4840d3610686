//! TCP connections and addresses on loopback.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream as StdStream};

use socket2::{Domain, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::PATIENCE;

/// Returns both ends of a connection: the client's and the server's.
pub async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(client, listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

/// Reads until the peer resets the connection.
pub async fn expect_reset(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let error = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// An address that drops SYNs: its accept queue, of length 0 + 1, is full.
#[derive(Debug)]
pub struct BlackHole {
    /// The address.
    pub address: SocketAddr,
    /// Its listener: accepting a connection makes room for a SYN.
    pub listener: Socket,
    _filler: StdStream,
}

/// Makes an address that drops SYNs.
pub fn black_hole() -> BlackHole {
    let (listener, address) = bound();
    listener.listen(0).unwrap();
    BlackHole { address, listener, _filler: StdStream::connect(address).unwrap() }
}

/// Returns an address that nobody listens on: as long as this process runs, the kernel gives its
/// port to nobody else.
pub fn closed() -> SocketAddr {
    let (socket, address) = bound();
    std::mem::forget(socket);
    address
}

fn bound() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}
