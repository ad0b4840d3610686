//! Transports for TLS, and the way in which they were opened.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fast_socks5::client::{Config, Socks5Stream};
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{AuthenticationMethod, Socks5Command, SocksError};
use headstart_net::{ClientEvent, ClientStream, OpeningEvent, Report, TimelineEntry};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use headstart_proto::Carrier;

/// A byte stream that reports how it was opened.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// Returns the carrier, and the reason why it is not a better one, if that is known.
    fn account(&self) -> (Carrier, &'static str);

    /// Returns the time at which the last byte before `end` of the client's stream was sent, in the
    /// copy that arrived.
    fn left(&self, end: u64) -> Left;

    /// Returns the report of the opening, if there is one.
    fn report(&self) -> Option<&Report> {
        None
    }
}

/// Time at which a byte of TLS was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// When it was written.
    AsWritten,
    /// This long after the connection was requested.
    After(Duration),
    /// It was not sent.
    NotYet,
}

impl Transport for TcpStream {
    fn account(&self) -> (Carrier, &'static str) {
        (Carrier::Tcp, "")
    }

    fn left(&self, _: u64) -> Left {
        Left::AsWritten
    }
}

impl Transport for ClientStream {
    fn account(&self) -> (Carrier, &'static str) {
        let Some(report) = self.report() else { return (Carrier::Tcp, "") };
        // Early data that was lost goes with a join, so that the opening counts as TurboTLS's.
        let reset = report.reset.map(|reset| reset.name());
        let reason = reset.or(report.not_used.map(|reason| reason.name())).or_else(|| {
            report.timeline.iter().find_map(|moment| match moment.event {
                OpeningEvent::Transport(ClientEvent::GivenUp(reason)) => Some(reason.name()),
                _ => None,
            })
        });
        (report.opened_by, reason.unwrap_or_default())
    }

    fn left(&self, end: u64) -> Left {
        let timeline = self.report().map(|report| report.timeline.as_slice());
        left(timeline.unwrap_or_default(), end).map_or(Left::NotYet, Left::After)
    }

    fn report(&self) -> Option<&Report> {
        self.report()
    }
}

/// Returns the time at which a byte was sent: with the datagrams if the server has acknowledged it;
/// else on TCP, which starts when the opening is decided.
///
/// Every datagram of the server acknowledges a prefix of the client's stream. If that datagram is
/// lost, or there was no slot for it, the result is a round trip too late, and never too early.
fn left(timeline: &[TimelineEntry], end: u64) -> Option<Duration> {
    let events = timeline.iter().filter_map(|moment| match moment.event {
        OpeningEvent::Transport(event) => Some((moment.at, event)),
        _ => None,
    });
    let by_udp = events.clone().any(|(_, event)| match event {
        ClientEvent::DatagramReceived { ack, .. } => u64::from(ack) >= end,
        _ => false,
    });
    let mut carriers = events.filter(|(_, event)| match *event {
        ClientEvent::FlightSent { offset, bytes, .. } => {
            by_udp && u64::from(offset) + u64::try_from(bytes).unwrap_or(0) >= end
        }
        ClientEvent::JoinSent { .. } | ClientEvent::Plain(_) => !by_udp,
        _ => false,
    });
    carriers.next().map(|(at, _)| at)
}

/// Opens a TCP connection.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens a TCP connection by Fast Open: if the kernel has a cookie for `to`, the SYN carries as
/// much of `data` as fits; returns how much that is. Without a cookie the SYN requests one and
/// carries nothing. Returns at once: the stream becomes writable when it is connected.
///
/// Makes the same calls as `headstart_net::fastopen::connect`, but for those that set a cookie.
pub(crate) fn connect_fast(to: SocketAddr, data: &[u8]) -> io::Result<(TcpStream, usize)> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let taken = match socket.send_to_with_flags(data, &to.into(), libc::MSG_FASTOPEN) {
        Ok(taken) => taken,
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => 0,
        Err(error) => return Err(error),
    };
    Ok((TcpStream::from_std(socket.into())?, taken))
}

/// Opens a TCP connection to `name` through a SOCKS5 proxy, which resolves the name; sends it the
/// user, if there is one.
pub(crate) async fn connect_by(
    proxy: SocketAddr,
    name: &str,
    port: u16,
    user: Option<&str>,
) -> io::Result<TcpStream> {
    let stream = connect(proxy).await?;
    // As Tor Browser does it: the user name keeps contexts apart, and nobody checks a password.
    let user = user.map(|user| AuthenticationMethod::Password {
        username: user.to_owned(),
        password: "-".to_owned(),
    });
    let conversation = async {
        let mut stream = Socks5Stream::use_stream(stream, user, Config::default()).await?;
        let target = TargetAddr::Domain(name.to_owned(), port);
        stream.request(Socks5Command::TCPConnect, target).await?;
        Ok(stream.get_socket())
    };
    let connected: Result<_, SocksError> = conversation.await;
    connected.map_err(|error| io::Error::other(format!("proxy {proxy}: {error}")))
}

#[cfg(test)]
mod tests {
    use headstart_net::PlainReason;

    use super::*;

    const HELLO: ClientEvent = ClientEvent::FlightSent { seq: 0, offset: 0, bytes: 300 };
    const EARLY: ClientEvent = ClientEvent::FlightSent { seq: 4, offset: 300, bytes: 100 };
    const JOIN: ClientEvent = ClientEvent::JoinSent { client_offset: 0, server_offset: 0 };

    const fn received(ack: u32) -> ClientEvent {
        ClientEvent::DatagramReceived { seq: 0, ack, offset: 0, bytes: 0 }
    }

    /// Returns the millisecond at which byte 400 of the client's stream was sent, of events at 1
    /// ms, 2 ms and so on.
    fn when(events: &[ClientEvent]) -> Option<u64> {
        let at = (1..).map(Duration::from_millis);
        let moments = at
            .zip(events)
            .map(|(at, event)| TimelineEntry { at, event: OpeningEvent::Transport(*event) });
        let left = left(&moments.collect::<Vec<_>>(), 400)?;
        u64::try_from(left.as_millis()).ok()
    }

    #[test]
    fn early_data_that_udp_delivered_was_sent_with_its_datagram() {
        let events = [HELLO, EARLY, ClientEvent::TcpConnected, received(300), received(400), JOIN];
        assert_eq!(when(&events), Some(2));
        // The acknowledgement may arrive after the join.
        let events = [HELLO, EARLY, ClientEvent::TcpConnected, received(300), JOIN, received(400)];
        assert_eq!(when(&events), Some(2));
    }

    #[test]
    fn early_data_that_was_lost_was_sent_with_the_join() {
        let silence = ClientEvent::GivenUp(PlainReason::Silence);
        assert_eq!(when(&[HELLO, EARLY, ClientEvent::TcpConnected, silence, JOIN]), Some(5));
        // The ClientHello alone arrived.
        assert_eq!(when(&[HELLO, EARLY, ClientEvent::TcpConnected, received(300), JOIN]), Some(5));
        assert_eq!(when(&[HELLO, EARLY, ClientEvent::TcpConnected, received(399), JOIN]), Some(5));
    }

    #[test]
    fn early_data_without_a_slot_was_sent_with_the_join() {
        assert_eq!(when(&[HELLO, ClientEvent::TcpConnected, received(300), JOIN]), Some(4));
    }

    #[test]
    fn early_data_of_a_plain_connection_was_sent_once_tcp_was_connected() {
        let plain = ClientEvent::Plain(PlainReason::NotOffered);
        assert_eq!(when(&[ClientEvent::TcpConnected, plain]), Some(2));
        assert_eq!(when(&[HELLO, EARLY]), None);
        assert_eq!(when(&[]), None);
    }
}
