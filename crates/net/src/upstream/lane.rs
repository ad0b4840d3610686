use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use zeroize::Zeroizing;

use super::exchange::Exchange;
use super::{Step, Timeouts, UpstreamError};
use crate::dns::{Event, Lookup};
use crate::race::{ATTEMPT_DELAY, Race, RaceWinner};

/// Initial capacity for queued bytes: a greeting, a login, a request and a typical ClientHello.
const CAPACITY_MIN: usize = 3 * 1024;

/// Future that connects to the proxy.
pub(super) type Dial = Pin<Box<dyn Future<Output = Result<RaceWinner, io::ErrorKind>> + Send>>;

/// One connection to the proxy, and the bytes sent on it.
pub(super) struct Lane {
    dial: Option<Dial>,
    tcp: Option<TcpStream>,
    exchange: Exchange,
    timeouts: Timeouts,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes being written to the socket.
    out: Zeroizing<Vec<u8>>,
    written: usize,
    /// Number of the application's bytes given to this lane.
    pub(super) sent: usize,
    /// Number of these bytes given before the proxy had connected.
    pub(super) sent_early: usize,
    pub(super) address: Option<SocketAddr>,
    pub(super) rtt: Option<Duration>,
    /// When the proxy connection opened, or when the proxy last replied.
    pub(super) last_reply: Option<Instant>,
    /// True once the target has answered.
    pub(super) answered: bool,
    /// True if that answer was TLS, that is, an answer to a ClientHello.
    pub(super) answered_by_tls: bool,
}

impl Lane {
    pub(super) fn new(dial: Dial, exchange: Exchange, timeouts: Timeouts) -> Self {
        Self {
            dial: Some(dial),
            tcp: None,
            exchange,
            timeouts,
            deadline: None,
            out: Zeroizing::default(),
            written: 0,
            sent: 0,
            sent_early: 0,
            address: None,
            rtt: None,
            last_reply: None,
            answered: false,
            answered_by_tls: false,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.exchange.is_granted()
    }

    /// Returns true once the proxy is connected and the request queued, so that bytes may follow.
    pub(super) fn has_requested(&self) -> bool {
        self.tcp.is_some() && self.exchange.has_requested()
    }

    /// Returns true once all bytes queued on the lane have been written to the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.written == self.out.len()
    }

    /// Queues the application's bytes behind the request.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.queue(bytes);
        self.sent += bytes.len();
        if !self.is_granted() {
            self.sent_early += bytes.len();
        }
    }

    /// Connects, and reads the proxy's replies; returns true on progress.
    ///
    /// # Errors
    /// The reason why this lane failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut progress = self.poll_dial(cx)?;
        if self.tcp.is_some() {
            self.queue_messages();
            progress |= self.poll_replies(cx)?;
            self.poll_deadline(cx)?;
        }
        Ok(progress)
    }

    /// Writes the bytes queued on the lane; messages queued together go out together.
    ///
    /// # Errors
    /// See [`poll`](Self::poll).
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let before = self.written;
        while let (Some(tcp), Some(rest)) =
            (&mut self.tcp, self.out.get(self.written..).filter(|rest| !rest.is_empty()))
        {
            match Pin::new(tcp).poll_write(cx, rest) {
                Poll::Pending => break,
                Poll::Ready(Ok(count)) => self.written += count,
                // A reply that arrived before the error says more about the cause.
                Poll::Ready(Err(_)) => {
                    self.poll_replies(cx)?;
                    match self.exchange.awaits() {
                        Some(step) => return Err(UpstreamError::Closed(step)),
                        // The proxy has connected to the target, which accepts no more bytes but
                        // may have sent the reason.
                        None => self.give_up_writing(),
                    }
                }
            }
        }
        Ok(self.written > before)
    }

    /// Drops queued bytes, as TCP would, because the target takes no more; bytes from the target
    /// stay readable.
    pub(super) fn give_up_writing(&mut self) {
        self.written = self.out.len();
    }

    /// Checks for an answer from the target without consuming a byte. End of stream before the
    /// first byte is an error of the proxy, which may have closed because of early bytes.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let Some(tcp) = self.tcp.as_mut().filter(|_| self.exchange.is_granted() && !self.answered)
        else {
            return Ok(false);
        };
        let mut first = [0];
        let peeked = tcp.poll_peek(cx, &mut ReadBuf::new(&mut first));
        match peeked {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(1..)) => {
                self.answered = true;
                // Alert or handshake (RFC 8446 section 5.1): a target that speaks first sends
                // something else.
                self.answered_by_tls = matches!(first, [21 | 22]);
                Ok(true)
            }
            Poll::Ready(Ok(0) | Err(_)) => Err(UpstreamError::Closed(Step::Request)),
        }
    }

    /// Shuts down writing, after the application's last byte has been sent.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tcp {
            Some(tcp) => Pin::new(tcp).poll_shutdown(cx),
            None => Poll::Pending,
        }
    }

    pub(super) fn into_tcp(self) -> Option<TcpStream> {
        self.tcp
    }

    fn poll_dial(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let Some(dial) = &mut self.dial else { return Ok(false) };
        let Poll::Ready(dialled) = dial.as_mut().poll(cx) else { return Ok(false) };
        self.dial = None;
        let winner = dialled.map_err(UpstreamError::Unreachable)?;
        // Each message is small, and the proxy waits for it.
        let _ = winner.stream.set_nodelay(true);
        self.address = Some(winner.addr);
        self.rtt = Some(winner.rtt);
        self.tcp = Some(winner.stream);
        self.note_reply(self.timeouts.negotiation);
        Ok(true)
    }

    /// Notes that the proxy has connected or replied, and sets the deadline for its next reply.
    fn note_reply(&mut self, timeout: Duration) {
        let now = Instant::now();
        self.last_reply = Some(now);
        self.deadline = Some(Box::pin(sleep_until(now + timeout)));
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut progress = false;
        while let Some(step) = self.exchange.awaits() {
            let Some(tcp) = &mut self.tcp else { break };
            let mut buffer = [0; super::Credentials::LENGTH_MAX];
            let wanted = buffer.len().min(self.exchange.wants());
            let mut read = ReadBuf::new(buffer.get_mut(..wanted).unwrap_or_default());
            match Pin::new(tcp).poll_read(cx, &mut read) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                Poll::Ready(_) => return Err(UpstreamError::Closed(step)),
            }
            self.exchange.handle_bytes(read.filled())?;
            progress = true;
            if self.exchange.awaits() != Some(step) {
                let Timeouts { negotiation, reply, .. } = self.timeouts;
                let is_requesting = self.exchange.awaits() == Some(Step::Request);
                self.note_reply(if is_requesting { reply } else { negotiation });
            }
            self.queue_messages();
        }
        Ok(progress)
    }

    /// Queues the messages that may be sent now.
    fn queue_messages(&mut self) {
        while let Some(message) = self.exchange.poll_bytes() {
            self.queue(&message);
        }
    }

    /// Appends bytes without leaving a copy of the login behind in freed memory.
    fn queue(&mut self, bytes: &[u8]) {
        let length = self.out.len() + bytes.len();
        if length > self.out.capacity() {
            let mut grown =
                Zeroizing::new(Vec::with_capacity(length.next_power_of_two().max(CAPACITY_MIN)));
            grown.extend_from_slice(&self.out);
            self.out = grown;
        }
        self.out.extend_from_slice(bytes);
    }

    /// Enforces the timeout of the proxy's replies, until the proxy has connected to the target.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Result<(), UpstreamError> {
        let Some(step) = self.exchange.awaits() else { return Ok(()) };
        match self.deadline.as_mut().map(|deadline| deadline.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(UpstreamError::Silent(step)),
            Some(Poll::Pending) | None => Ok(()),
        }
    }
}

/// Connects to whichever of the proxy's addresses answers first.
pub(super) fn dial(lookup: Lookup, port: u16, limit: Duration) -> Dial {
    Box::pin(connect(lookup, port, limit))
}

async fn connect(
    mut lookup: Lookup,
    port: u16,
    limit: Duration,
) -> Result<RaceWinner, io::ErrorKind> {
    let mut race = Race::new([], ATTEMPT_DELAY).with_limit(limit);
    race.expect_more(true);
    let mut lookup_runs = true;
    loop {
        tokio::select! {
            event = lookup.next(), if lookup_runs => match event {
                Some(Event::Addresses(found)) => {
                    race.add(found.into_iter().map(|address| SocketAddr::new(address, port)));
                }
                Some(Event::Failed(error)) => return Err(io::Error::from(error).kind()),
                Some(Event::Advert(_)) => {}
                None => {
                    lookup_runs = false;
                    race.expect_more(false);
                }
            },
            winner = race.winner() => return winner.map_err(|error| error.kind()),
        }
    }
}
