//! One HTTP/1.1 exchange on a stream of its own, with the moments that are measured.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::http::{request, response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::forward::forward_ends;

/// A stream that remembers when it was first written to and first read from.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    pub(crate) stream: S,
    /// The first byte of the application was taken.
    pub(crate) written: Option<Instant>,
    /// The first byte for the application was given.
    pub(crate) read: Option<Instant>,
}

impl<S> Timed<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, written: None, read: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.read.get_or_insert_with(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let started = Instant::now();
        let taken = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.written.get_or_insert(started);
        Poll::Ready(Ok(taken))
    }

    forward_ends!(stream);
}

/// Reason for an incomplete answer.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The connection, or what came on it.
    Http(hyper::Error),
    /// The body cannot be put where it belongs.
    Sink(io::Error),
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}

/// Sends `request` and passes the body of the response to `sink`, piece by piece; returns the head.
///
/// # Errors
/// A failure before the last byte of the body; `stream` has the times that were reached.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut Timed<S>,
    request: request::Parts,
    mut sink: impl FnMut(&response::Parts, &[u8]) -> io::Result<()>,
) -> Result<response::Parts, ExchangeError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::from_parts(request, Empty::<Bytes>::new());
    let talk = async move {
        let (head, mut body) = sender.send_request(request).await?.into_parts();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame?.data_ref() {
                sink(&head, data).map_err(ExchangeError::Sink)?;
            }
        }
        Ok(head)
    };
    let (mut talk, mut connection) = (pin!(talk), pin!(connection));
    let mut broken = None;
    let mut over = false;
    loop {
        tokio::select! {
            biased;
            // The cause tells more than the fact that the connection broke.
            answer = &mut talk => return match (answer, broken) {
                (Err(ExchangeError::Http(_)), Some(cause)) => Err(ExchangeError::Http(cause)),
                (answer, _) => answer,
            },
            ended = &mut connection, if !over => {
                over = true;
                broken = ended.err();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    async fn against(
        answer: &'static [u8],
    ) -> (Timed<tokio::io::DuplexStream>, Result<String, ExchangeError>) {
        let (near, mut far) = duplex(1 << 16);
        let server = tokio::spawn(async move {
            let read = far.read(&mut [0; 1024]).await.unwrap();
            far.write_all(answer).await.unwrap();
            read
        });
        let mut stream = Timed::new(near);
        let mut body = Vec::new();
        let request = Request::get("/").header("host", "x").body(()).unwrap().into_parts().0;
        let head = exchange(&mut stream, request, |_, piece| {
            body.extend_from_slice(piece);
            Ok(())
        })
        .await;
        assert!(server.await.unwrap() > 0);
        (stream, head.map(|head| format!("{} {}", head.status, String::from_utf8_lossy(&body))))
    }

    #[tokio::test]
    async fn a_whole_answer_and_its_moments() {
        let (stream, answer) = against(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        assert_eq!(answer.unwrap(), "200 OK hello");
        assert!(stream.written.unwrap() <= stream.read.unwrap());
    }

    #[tokio::test]
    async fn a_cut_answer_is_an_error() {
        let (_, answer) = against(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello").await;
        assert!(matches!(answer, Err(ExchangeError::Http(_))), "{answer:?}");
        let (_, answer) = against(b"220 mail.example ESMTP\r\n").await;
        assert!(matches!(answer, Err(ExchangeError::Http(error)) if error.is_parse()));
    }
}
