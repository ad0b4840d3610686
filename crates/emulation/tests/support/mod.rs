//! Sockets on the nodes of a lab; a socket stays in the namespace it was made in.
#![allow(dead_code)] // each test uses a part

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use headstart_emulation::{Lab, Node};

/// Only bounds a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn ends(lab: &Lab) -> (&Node, &Node) {
    (lab.node("client").unwrap(), lab.node("server").unwrap())
}

pub(crate) fn addresses(node: &Node) -> [IpAddr; 2] {
    [node.ipv4().unwrap().into(), node.ipv6().unwrap().into()]
}

pub(crate) fn udp(node: &Node, address: impl Into<SocketAddr>) -> UdpSocket {
    let address = address.into();
    let socket = node.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn listen(node: &Node, address: impl Into<SocketAddr>) -> TcpListener {
    let address = address.into();
    node.run(|| TcpListener::bind(address)).unwrap().unwrap()
}

pub(crate) fn connect(node: &Node, address: SocketAddr) -> TcpStream {
    let stream = node.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}
