//! What TLS is spoken over, and what is known of how it was opened.

use std::io;
use std::net::SocketAddr;

use fast_socks5::Socks5Command;
use fast_socks5::client::{Config, Socks5Stream};
use fast_socks5::util::target_addr::TargetAddr;
use headstart_net::{ClientStream, OpenedBy};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::sys;
use crate::trial::Opening;

/// A byte stream that can tell how it was opened, and why not better where it knows.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    fn account(&self) -> (Opening, &'static str);
}

impl Transport for TcpStream {
    fn account(&self) -> (Opening, &'static str) {
        match sys::syn_data_acknowledged(self) {
            Ok(true) => (Opening::Tfo, ""),
            _ => (Opening::Plain, ""),
        }
    }
}

impl Transport for ClientStream {
    fn account(&self) -> (Opening, &'static str) {
        let Some(report) = self.report() else { return (Opening::Plain, "") };
        let opening = match report.opened_by {
            OpenedBy::TurboTls => Opening::Turbo,
            OpenedBy::Plain => Opening::Plain,
        };
        let reset = report.reset.map(|reset| reset.name());
        (opening, reset.or(report.not_used.map(|reason| reason.name())).unwrap_or_default())
    }
}

/// TCP after its handshake.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TCP that sends its SYN with the first bytes written, if the kernel has a cookie for `to`; without one
/// it asks for one.
pub(crate) async fn connect_fast(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    sys::fast_open_connect(&socket)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    // At once where the SYN waits for bytes.
    stream.writable().await?;
    stream.take_error()?.map_or(Ok(stream), Err)
}

/// TCP to `name` by way of a SOCKS5 proxy, which finds the address.
pub(crate) async fn connect_by(proxy: SocketAddr, name: &str, port: u16) -> io::Result<TcpStream> {
    let stream = connect(proxy).await?;
    let refused = |error| io::Error::other(format!("proxy {proxy}: {error}"));
    let mut stream =
        Socks5Stream::use_stream(stream, None, Config::default()).await.map_err(refused)?;
    let target = TargetAddr::Domain(name.to_owned(), port);
    stream.request(Socks5Command::TCPConnect, target).await.map_err(refused)?;
    Ok(stream.get_socket())
}
