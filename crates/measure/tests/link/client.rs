//! A client of this test's own, where curl will not do: other key exchanges, raw bytes, many at
//! once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use headstart_emulation::Node;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVersion};
use socket2::{Domain, Socket, Type};

use crate::net::{Net, PATIENCE};

/// Time that a read waits: TCP that loses every fifth packet backs off for minutes.
const READ_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A connection by way of the agent, and when the agent took it.
pub(crate) struct Tunnel {
    pub(crate) tcp: TcpStream,
    pub(crate) accepted: Instant,
}

/// Asks the agent at `port` for `host`; to be called on the client's node.
pub(crate) fn socks(port: u16, host: &str, to: u16) -> io::Result<Tunnel> {
    let mut tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let accepted = Instant::now();
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(READ_PATIENCE))?;
    tcp.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    tcp.read_exact(&mut method)?;
    let mut request = vec![5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&to.to_be_bytes());
    tcp.write_all(&request)?;
    let mut head = [0; 4];
    tcp.read_exact(&mut head)?;
    if head[1] != 0 {
        return Err(io::Error::other(format!("SOCKS answered {}", head[1])));
    }
    let mut bound = [0; 18];
    tcp.read_exact(&mut bound[..if head[3] == 4 { 18 } else { 6 }])?;
    Ok(Tunnel { tcp, accepted })
}

/// Connects to `to` from a local port, by which a rule knows the connection.
pub(crate) fn from_port(local: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&local.into())?;
    socket.connect(&to.into())?;
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(PATIENCE))?;
    Ok(tcp)
}

/// TLS of this test's own OpenSSL, which knows X25519MLKEM768.
pub(crate) fn tls(net: &Net, groups: &str) -> SslConnector {
    crate::nginx::certificate(net);
    let mut tls = SslConnector::builder(SslMethod::tls_client()).unwrap();
    tls.set_ca_file(net.file("cert.pem")).unwrap();
    tls.set_groups_list(groups).unwrap();
    tls.build()
}

/// Makes a whole HTTP exchange; returns the time from the agent's reply to the end of the
/// handshake, and the body.
pub(crate) fn fetch(
    tls: &SslConnector,
    port: u16,
    host: &str,
    path: &str,
) -> io::Result<(Duration, Vec<u8>)> {
    fetch_by(tls, socks(port, host, 443)?, host, path)
}

/// Makes a whole HTTP exchange through an existing tunnel.
pub(crate) fn fetch_by(
    tls: &SslConnector,
    tunnel: Tunnel,
    host: &str,
    path: &str,
) -> io::Result<(Duration, Vec<u8>)> {
    let stream =
        tls.connect(host, tunnel.tcp).map_err(|error| io::Error::other(error.to_string()))?;
    let opening = tunnel.accepted.elapsed();
    Ok((opening, exchange(stream, host, path)?))
}

fn exchange(mut stream: SslStream<TcpStream>, host: &str, path: &str) -> io::Result<Vec<u8>> {
    assert_eq!(stream.ssl().version2(), Some(SslVersion::TLS1_3));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = head.ok_or_else(|| io::Error::other("no HTTP answer"))?;
    Ok(answer.split_off(head + 4))
}

/// Does `work` on a node; a panic goes on here.
pub(crate) fn on<T: Send>(node: &Node, work: impl FnOnce() -> T + Send) -> T {
    node.run(work).unwrap()
}
