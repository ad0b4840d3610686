//! Content of bodies and frames: the byte at each offset is known, so that every one is checked.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use headstart_openers::fill;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::judge::WRONG;

/// Bytes that are made or read at a time.
const PIECE: usize = 16 * 1024;

/// Beginnings of a WebSocket's binary frame whose length is a number of 64 bits, from a server and
/// from a client (RFC 6455 section 5.2).
const FRAME: [u8; 2] = [0x82, 127];
const MASKED: [u8; 2] = [0x82, 127 | 0x80];

/// Content between two offsets, as a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    at: u64,
    end: u64,
}

impl Content {
    pub(super) const EMPTY: Self = Self::new(0, 0);

    pub(super) const fn new(from: u64, bytes: u64) -> Self {
        Self { at: from, end: from + bytes }
    }

    const fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Returns the next bytes of it; none at the end.
    fn next(&mut self) -> Vec<u8> {
        let length = usize::try_from(self.left()).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; length];
        fill(self.at, &mut piece);
        self.at += length as u64;
        piece
    }

    /// Returns the bytes at its beginning, whether they are part of it or not.
    pub(super) fn first(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        fill(self.at, &mut bytes);
        bytes
    }

    /// Takes bytes that should be the next of it.
    pub(super) fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.left() {
            return Err(io::Error::other(format!("{WRONG}: more than was sent")));
        }
        let mut expected = vec![0; bytes.len()];
        fill(self.at, &mut expected);
        match bytes.iter().zip(&expected).position(|(one, other)| one != other) {
            Some(at) => Err(io::Error::other(format!("{WRONG} at offset {}", self.at + at as u64))),
            None => {
                self.at += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Checks that all of it has come.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.left() {
            0 => Ok(()),
            left => Err(io::Error::other(format!("the end came {left} bytes early"))),
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.next();
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// Sends a frame of this content as a client does, and checks the one that comes back meanwhile.
pub(super) async fn exchange_frames(
    stream: impl AsyncRead + AsyncWrite,
    content: Content,
    mask: [u8; 4],
) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    let length = content.left().to_be_bytes();
    let send = async {
        let mut left = content;
        write.write_all(&[&MASKED[..], &length, &mask].concat()).await?;
        let mut at = 0;
        while left.left() > 0 {
            let mut piece = left.next();
            at = masked(&mut piece, mask, at);
            write.write_all(&piece).await?;
        }
        write.flush().await
    };
    let receive = async {
        let mut head = [0; 10];
        read.read_exact(&mut head).await?;
        if head != *[&FRAME[..], &length].concat() {
            return Err(io::Error::other(format!("{WRONG} of a frame's head")));
        }
        let (mut left, mut buffer) = (content, vec![0; PIECE]);
        while left.left() > 0 {
            let read = read.read(&mut buffer).await?;
            if read == 0 {
                break;
            }
            left.check(buffer.get(..read).unwrap_or_default())?;
        }
        left.finish()
    };
    tokio::try_join!(send, receive).map(drop)
}

/// Sends one frame of a client back, as a server does.
pub(super) async fn return_frame(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut head = [0; 14];
    stream.read_exact(&mut head).await?;
    let [0x82, 0xff, length @ .., m0, m1, m2, m3] = head else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut left = u64::from_be_bytes(length);
    stream.write_all(&[&FRAME[..], &length].concat()).await?;
    let (mut buffer, mut at) = (vec![0; PIECE], 0);
    while left > 0 {
        let read = stream.read(&mut buffer).await?;
        let piece = buffer.get_mut(..read).filter(|piece| !piece.is_empty());
        let piece = piece.ok_or(io::ErrorKind::UnexpectedEof)?;
        at = masked(piece, [m0, m1, m2, m3], at);
        stream.write_all(piece).await?;
        left = left.saturating_sub(read as u64);
    }
    stream.flush().await
}

/// Masks or unmasks bytes that begin `at` this place of a frame; returns the place behind them.
fn masked(piece: &mut [u8], mask: [u8; 4], at: usize) -> usize {
    let keys = mask.iter().cycle().skip(at % mask.len());
    piece.iter_mut().zip(keys).for_each(|(byte, key)| *byte ^= key);
    (at + piece.len()) % mask.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_checked_by_its_offset() {
        let (mut sent, whole) = (Content::new(7, 40_000), Content::new(7, 40_000));
        let mut came = whole;
        while sent.left() > 0 {
            let piece = sent.next();
            let mut wrong = piece.clone();
            wrong[3] ^= 1;
            let error = { came }.check(&wrong).unwrap_err().to_string();
            assert!(error.starts_with(WRONG), "{error}");
            assert!(came.finish().is_err());
            came.check(&piece).unwrap();
        }
        came.finish().unwrap();
        assert!(came.check(&[0]).is_err(), "one more");
        // As of another exchange.
        assert!({ whole }.check(&Content::new(8, 100).next()).is_err());
    }

    #[tokio::test]
    async fn a_frame_comes_back_unmasked() {
        let (near, far) = tokio::io::duplex(1_000);
        let (client, server) = tokio::join!(
            exchange_frames(near, Content::new(3, 50_001), [1, 2, 3, 4]),
            return_frame(far),
        );
        client.unwrap();
        server.unwrap();
        let (near, mut far) = tokio::io::duplex(200_000);
        far.write_all(&[&FRAME[..], &9_u64.to_be_bytes(), &[0; 9]].concat()).await.unwrap();
        let error = exchange_frames(near, Content::new(3, 9), [0; 4]).await.unwrap_err();
        assert!(error.to_string().starts_with(WRONG), "{error}");
    }
}
