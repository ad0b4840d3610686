//! Connections that a balancer passes on: a PROXY header says whose they are.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use headstart_net::{AcceptorConfig, ServerConfig};
use headstart_proto::join::Answer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::acceptor::{accept, bind, carries, establish_all, next, opened};
use crate::hello::{BEHIND_HELLO, hello};

/// The address of the balancer; clients have 127.0.0.1.
const BALANCER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A client's address of TCP, as the balancer saw it.
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 56_324);

/// Takes joins from the address of the datagrams alone.
pub(crate) fn config() -> AcceptorConfig {
    let server = ServerConfig { same_address: true, ..ServerConfig::default() };
    let balancers = vec![IpAddr::from(BALANCER).into()];
    AcceptorConfig { server, balancers, ..AcceptorConfig::default() }
}

async fn from_balancer(edge: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((BALANCER, 0).into()).unwrap();
    socket.connect(edge).await.unwrap()
}

/// Connects in the name of [`CLIENT`].
pub(crate) async fn connect(edge: SocketAddr) -> TcpStream {
    let mut tcp = from_balancer(edge).await;
    tcp.write_all(&header()).await.unwrap();
    tcp
}

/// The header of section 2.2 of HAProxy's doc/proxy-protocol.txt.
fn header() -> Vec<u8> {
    let ports = [CLIENT.port(), 443].map(u16::to_be_bytes).concat();
    let ips = [CLIENT.ip().octets(), BALANCER.octets()].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &ips[..], &ports].concat()
}

#[tokio::test]
async fn a_client_joins_through_a_balancer() {
    let (acceptor, client, mut stream) = opened(config()).await;
    establish_all(acceptor);
    let mut tcp = connect(client.edge).await;
    assert_eq!(client.join_over(&mut tcp, BEHIND_HELLO, 0).await, Answer::Accepted(0));
    carries(&mut tcp, &mut stream).await;
    assert_eq!(stream.proven_addr().get(), Some(CLIENT.into()));
}

#[tokio::test]
async fn a_plain_connection_has_the_address_of_the_header() {
    let mut acceptor = bind(config());
    let mut tcp = connect(acceptor.local_addr()).await;
    tcp.write_all(&hello(rand::random())).await.unwrap();
    let stream = next(&mut acceptor).await;
    assert!(stream.client_hello().is_some());
    assert_eq!(stream.peer_addr(), CLIENT.into());
}

#[tokio::test]
async fn a_balancer_has_to_send_a_header() {
    let mut acceptor = bind(config());
    let mut tcp = from_balancer(acceptor.local_addr()).await;
    tcp.write_all(&hello(rand::random())).await.unwrap();
    let refused = accept(&mut acceptor).await.establish().await;
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn nobody_else_may_send_one() {
    let mut acceptor = bind(config());
    let mut tcp = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    tcp.write_all(&header()).await.unwrap();
    let stream = next(&mut acceptor).await;
    assert_eq!(stream.peer_addr(), tcp.local_addr().unwrap());
}
