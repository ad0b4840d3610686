//! One TurboTLS connection in its plainest form (docs/draft-headstart-turbotls.md), for attackers
//! to replay.

use std::io;
use std::net::SocketAddr;

use headstart_proto::hello::ClientHello;
use headstart_proto::join::{ACCEPTANCE_LEN, Answer, Join};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{JoinKey, RouteTag};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::tcp::{FLIGHT, Hello, TIMEOUT, Wanted};
use super::work::{Place, ended};

/// Slots behind the ClientHello: three for the server flight, one for the acknowledgement.
const SLOTS: u8 = 4;

/// Opens a connection from `from`, and returns its datagrams.
pub(super) fn open_once(
    place: Place<'_>,
    from: SocketAddr,
    edge: SocketAddr,
) -> io::Result<Vec<Vec<u8>>> {
    ended(place.spawn(async move { timeout(TIMEOUT, open(from, edge)).await? })?)
}

async fn open(from: SocketAddr, edge: SocketAddr) -> io::Result<Vec<Vec<u8>>> {
    let (mut hello, key) = (Hello::new()?, rand::random());
    let hello = hello.renew(Wanted::Flight);
    let id = JoinKey::new(key).session_id();
    let requests = (0..=SLOTS).map(|seq| Request { id, seq, offset: 0, payload: hello });
    let flight: Vec<_> = requests.map(|request| request.emit()).collect();
    let udp = UdpSocket::bind(from).await?;
    for datagram in &flight {
        udp.send_to(datagram, edge).await?;
    }
    let mut bytes = 0;
    let mut buffer = [0; 2048];
    while bytes < FLIGHT {
        let length = udp.recv(&mut buffer).await?;
        let response = Response::parse(buffer.get(..length).unwrap_or_default());
        bytes += response.map_err(|_| io::ErrorKind::InvalidData)?.payload.len();
    }
    let client_offset = u32::try_from(hello.len()).map_err(io::Error::other)?;
    let server_offset = u32::try_from(FLIGHT).map_err(io::Error::other)?;
    let join =
        Join { key: JoinKey::new(key), tag: RouteTag::default(), client_offset, server_offset };
    let mut tcp = TcpStream::connect(edge).await?;
    tcp.write_all(&join.emit(&ClientHello::default())).await?;
    let mut answer = [0; ACCEPTANCE_LEN];
    tcp.read_exact(&mut answer).await?;
    match Answer::read(&join.key, &answer) {
        Answer::Accepted(_) => Ok(flight),
        _ => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}
