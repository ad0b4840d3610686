//! The client: one socket, one cookie, data in its SYN.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd;

use headstart_proto::cookie::{COOKIE_LEN, Cookie};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::TcpStream;

use super::layout::{SO_COOKIE, SO_STATE, SOL_FOP, STATE_READY, STATE_SENT};
use super::unavailable::{CLIENT_BIT, Unavailable, check_sysctl};
use crate::sys;
use crate::tcp_info::TcpInfo;

/// Most data bytes in a SYN, so that its packet has at most 1280 bytes, which every IPv6 path
/// carries whole: less 40 of IPv6 and 60 of TCP with all options.
///
/// A longer packet may be dropped silently, and its retransmission comes a second later, without
/// data.
pub const SYN_DATA_MAX: usize = 1280 - 40 - 60;

/// State of a socket's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieState {
    /// No cookie was set.
    None,
    /// The cookie was not sent: the SYN had no room, or no data.
    Unspent,
    /// The cookie was sent in this connection's first SYN, and must not be sent again.
    Spent,
}

/// Checks that [`connect`] works here; sends nothing and needs no privilege.
///
/// The result may change while a process runs, when programs are attached or detached.
///
/// # Errors
/// The reason why it does not work.
pub fn probe() -> Result<(), Unavailable> {
    check_sysctl(CLIENT_BIT)?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)))
        .map_err(Unavailable::system("opening a socket"))?;
    // The socket is dropped unconnected, and the cookie with it.
    set_cookie(&socket, &Cookie::new([0; COOKIE_LEN])).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => Unavailable::NotAttached,
        _ => Unavailable::System { what: "setting a cookie", source: error },
    })
}

/// Opens a connection with `cookie` and as much of `data` as fits the SYN; returns the number of
/// bytes that fit.
///
/// Returns immediately, like a non-blocking connect(2): the stream becomes writable when it is
/// connected, or fails. The bytes in the SYN count as written. If the server or the network does
/// not accept them, the kernel sends them again behind an ordinary handshake: they arrive once. At
/// most [`SYN_DATA_MAX`] bytes are sent; the caller writes the rest.
///
/// Must be called within a tokio runtime. The stream has TCP_NODELAY.
///
/// # Errors
/// `InvalidInput` without data, `ENOPROTOOPT` where no program is attached (see [`probe`]), and the
/// immediate errors of connect(2). After errors other than the first two, count the cookie as
/// spent.
pub fn connect(
    addr: SocketAddr,
    local: Option<IpAddr>,
    cookie: &Cookie,
    data: &[u8],
) -> io::Result<(TcpStream, usize)> {
    if data.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(local) = local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    set_cookie(&socket, cookie)?;
    // Else the kernel asks for a cookie of its own, and its option leaves no room for ours.
    sys::set_number(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE, 1)?;
    // F-SYN-1
    let first = data.get(..SYN_DATA_MAX).unwrap_or(data);
    let taken = match socket.send_to_with_flags(first, &addr.into(), libc::MSG_FASTOPEN) {
        Ok(taken) => taken,
        // The kernel chose to send the SYN without data, for example after seeing a network drop
        // them.
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => 0,
        Err(error) => return Err(error),
    };
    Ok((TcpStream::from_std(StdStream::from(socket))?, taken))
}

/// Returns true if the server accepted the data of the SYN, which saved a round trip.
///
/// Works at the client's end and the server's; false until the connection is established.
///
/// # Errors
/// Errors of getsockopt(2).
pub fn was_accepted(stream: &TcpStream) -> io::Result<bool> {
    Ok(TcpInfo::read(stream)?.has_syn_data())
}

/// Returns the cookie state of a stream from [`connect`], or of a socket after [`set_cookie`].
///
/// # Errors
/// Errors of getsockopt(2): `ENOPROTOOPT` if the program was detached since.
pub fn cookie_state(socket: impl AsFd) -> io::Result<CookieState> {
    let mut state = [0; 4];
    sys::option(socket.as_fd(), SOL_FOP, SO_STATE, &mut state)?;
    Ok(match u32::from_ne_bytes(state) {
        STATE_READY => CookieState::Unspent,
        STATE_SENT => CookieState::Spent,
        _ => CookieState::None,
    })
}

/// Sets the cookie of a TCP socket that is not connected yet, for callers that do themselves what
/// [`connect`] does. It goes out once, in the SYN, if that has data.
///
/// # Errors
/// `ENOPROTOOPT` where no program is attached, and for sockets that are not plain TCP.
pub fn set_cookie(socket: impl AsFd, cookie: &Cookie) -> io::Result<()> {
    sys::set_option(socket.as_fd(), SOL_FOP, SO_COOKIE, cookie.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connecting_without_data_fails() {
        let cookie = Cookie::new([0; COOKIE_LEN]);
        let error = connect(([127, 0, 0, 1], 9).into(), None, &cookie, b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn an_ordinary_connection_reports_no_accepted_data() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!was_accepted(&stream).unwrap());
    }

    #[test]
    fn a_syn_fits_every_path() {
        assert_eq!(SYN_DATA_MAX, 1180);
    }
}
