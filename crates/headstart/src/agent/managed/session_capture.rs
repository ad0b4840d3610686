use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use headstart_net::{ClientStream, Connector, Handoff, Report, Target, TlsHandle, TlsStream};
use headstart_tls::{NewSession, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::visit::Visit;
use crate::base::forward::forward_writes;

/// The plain bytes of a connection whose sessions and cookies are kept as they come.
///
/// They come with reads, mostly before any plain byte: so each read stores them, and the next
/// connection finds them.
pub(super) struct SessionCapture {
    stream: TlsStream<ClientStream>,
    kept: Kept,
}

/// Destination of sessions and cookies.
struct Kept {
    handle: TlsHandle<ClientStream>,
    visit: Visit,
    /// Time at which the server's certificate was last verified.
    verified: Instant,
    connector: Connector,
    target: Target,
}

impl SessionCapture {
    /// Captures sessions of a connection to `target` whose handshake is done.
    pub(super) fn new(
        stream: TlsStream<ClientStream>,
        visit: Visit,
        verified: Instant,
        connector: Connector,
        target: Target,
    ) -> Self {
        let kept = Kept { handle: stream.handle(), visit, verified, connector, target };
        // In TLS 1.2 the session comes with the handshake.
        kept.collect();
        Self { stream, kept }
    }
}

impl Kept {
    fn collect(&self) {
        while let Some(new) = self.handle.take_session() {
            self.keep_cookies(&new);
            self.keep_advert(&new);
            self.visit.put(&new, self.verified);
        }
    }

    /// Keeps what the server advertises in its ticket: it has proven by then who it is. Where
    /// nobody has checked that, the context is one that keeps nothing.
    fn keep_advert(&self, new: &NewSession) {
        // TLS 1.2 has no place for it.
        if new.version != Some(Version::Tls13) {
            return;
        }
        if let Some(report) = self.report() {
            // W-TLS-1
            self.visit.unless_forgotten(&self.target.context, || {
                self.connector.keep_advert(&self.target, &report, new.advert.as_deref());
            });
        }
    }

    fn report(&self) -> Option<Report> {
        self.handle.with_transport(|stream| stream.report().cloned()).flatten()
    }

    fn keep_cookies(&self, new: &NewSession) {
        if new.cookies.is_empty() {
            return;
        }
        if let Some(report) = self.report() {
            let cookies = new.cookies.iter().map(|offer| (offer.cookie, offer.lifetime));
            self.visit.unless_forgotten(&self.target.context, || {
                self.connector.keep_cookies(&self.target, &report, cookies)
            });
        }
    }
}

impl AsyncRead for SessionCapture {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.kept.collect();
        read
    }
}

impl AsyncWrite for SessionCapture {
    forward_writes!(stream);
}

/// Never transparent, as TLS below it is not.
impl Handoff for SessionCapture {
    fn is_transparent(&self) -> bool {
        false
    }

    fn into_tcp(self) -> Option<TcpStream> {
        None
    }

    fn reset(self) {
        self.stream.reset();
    }
}
