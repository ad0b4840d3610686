//! One direction of a relay: bytes from one connection to the other, held briefly at most.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::pipe::Pipe;

/// Bytes copied at a time; also the most that one direction holds while it copies.
pub(super) const COPY_BUFFER: usize = 64 * 1024;

/// Piece size in bytes from which a direction splices, until a piece is smaller again.
///
/// A piece that fills the buffer shows that more is waiting. On loopback, splicing took 50 to 80 %
/// of the processor time of copying from there on, and saved nothing for pieces of up to 32 kB,
/// which arrive one at a time.
pub(super) const SPLICE_AFTER: usize = COPY_BUFFER;

/// Pieces moved before the task yields: 16 pieces of a full pipe are about 2 ms at 10 GB/s.
const PIECES_PER_POLL: usize = 16;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; COPY_BUFFER].into_boxed_slice());
}

/// A failed connection.
pub(crate) enum Fault {
    /// The connection being read.
    From(io::Error),
    /// The connection being written.
    To(io::Error),
}

/// Bytes under way in one direction.
#[derive(Default)]
pub(crate) struct Direction {
    held: PendingBytes,
    stage: Stage,
    /// True if the last piece was so large that the next is worth a pipe.
    bulk: bool,
    bytes: u64,
}

/// Bytes read and not yet written.
#[derive(Default)]
enum PendingBytes {
    #[default]
    Nothing,
    Copied {
        bytes: Vec<u8>,
        written: usize,
    },
    Piped(Pipe),
}

/// Progress of a direction.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Reading,
    /// The sender has ended; the held bytes go out first, then the end.
    Ended,
    /// The end was passed on.
    Done,
}

impl Direction {
    /// Resumes at `stage`: `held` was read and not yet written, `bytes` were written before.
    pub(crate) fn resumed(held: Vec<u8>, stage: Stage, bytes: u64) -> Self {
        let held = match held.len() {
            0 => PendingBytes::Nothing,
            _ => PendingBytes::Copied { bytes: held, written: 0 },
        };
        Self { held, stage, bulk: false, bytes }
    }

    /// Returns the number of bytes that the receiving connection took.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if reading from the sender would show its failure.
    pub(super) fn is_reading(&self) -> bool {
        self.stage == Stage::Reading && matches!(self.held, PendingBytes::Nothing)
    }

    /// Returns true once the sender has ended.
    pub(super) fn is_done(&self) -> bool {
        self.stage != Stage::Reading
    }

    /// Moves bytes; ready when the sender has ended and everything was written.
    /// [`Self::pass_end_on`] passes on the end itself.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
        count: &AtomicU64,
    ) -> Poll<Result<(), Fault>> {
        let before = self.bytes;
        let result = self.poll_pieces(cx, from, to);
        if self.bytes != before {
            count.fetch_add(self.bytes - before, Ordering::Relaxed);
        }
        result
    }

    /// Signals the receiver that no more will come.
    pub(super) fn pass_end_on(&mut self, to: &TcpStream) -> Result<(), Fault> {
        if self.stage == Stage::Done {
            return Ok(());
        }
        self.stage = Stage::Done;
        match SockRef::from(to).shutdown(Shutdown::Write) {
            // It was shut down before the relay started, and has since ended in the other direction
            // too.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result.map_err(Fault::To),
        }
    }

    fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
    ) -> Poll<Result<(), Fault>> {
        for _ in 0..PIECES_PER_POLL {
            ready!(self.poll_write_held(cx, to)).map_err(Fault::To)?;
            if self.stage != Stage::Reading {
                return Poll::Ready(Ok(()));
            }
            ready!(from.poll_read_ready(cx)).map_err(Fault::From)?;
            let piped = if self.bulk { Pipe::take() } else { None };
            match piped {
                Some(pipe) => self.splice_in(pipe, from).map_err(Fault::From)?,
                None => self.copy(from, to)?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write_held(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<()>> {
        loop {
            let result = match &mut self.held {
                PendingBytes::Nothing => return Poll::Ready(Ok(())),
                PendingBytes::Copied { bytes, written } => {
                    ready!(to.poll_write_ready(cx))?;
                    write(to, bytes.get(*written..).unwrap_or_default())
                        .inspect(|sent| *written += sent)
                }
                PendingBytes::Piped(pipe) => {
                    ready!(to.poll_write_ready(cx))?;
                    to.try_io(Interest::WRITABLE, || pipe.drain(to))
                }
            };
            match result {
                Ok(sent) => self.bytes += sent as u64,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            if self.held.is_written() {
                self.held = PendingBytes::Nothing;
            }
        }
    }

    fn splice_in(&mut self, mut pipe: Pipe, from: &TcpStream) -> io::Result<()> {
        match from.try_io(Interest::READABLE, || pipe.fill(from)) {
            Ok(0) => self.stage = Stage::Ended,
            Ok(moved) => {
                self.bulk = moved >= SPLICE_AFTER;
                self.held = PendingBytes::Piped(pipe);
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads one piece and writes it at once; keeps what the receiver does not accept.
    fn copy(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(), Fault> {
        BUFFER.with_borrow_mut(|buffer| {
            let read = match read(from, buffer) {
                Ok(0) => {
                    self.stage = Stage::Ended;
                    return Ok(());
                }
                Ok(read) => read,
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(Fault::From(error)),
            };
            self.bulk = read >= SPLICE_AFTER;
            let piece = buffer.get(..read).unwrap_or_default();
            let sent = match write(to, piece) {
                Ok(sent) => sent,
                Err(error) if is_transient(&error) => 0,
                Err(error) => return Err(Fault::To(error)),
            };
            self.bytes += sent as u64;
            if sent < read {
                self.held = PendingBytes::Copied {
                    bytes: piece.get(sent..).unwrap_or_default().to_vec(),
                    written: 0,
                };
            }
            Ok(())
        })
    }
}

impl PendingBytes {
    fn is_written(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Copied { bytes, written } => *written >= bytes.len(),
            Self::Piped(pipe) => pipe.held() == 0,
        }
    }
}

/// Reads what is there. A piece shorter than the buffer marks the connection as empty, which saves
/// the call that would report it (epoll is edge-triggered: later bytes are announced again).
fn read(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    let result = from.try_io(Interest::READABLE, || {
        (read, _) = recv(from, &mut *buffer, RecvFlags::empty())?;
        if read == 0 || read == buffer.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    });
    if read > 0 { Ok(read) } else { result.map(|()| 0) }
}

/// Writes what fits; a short write marks the connection as full.
fn write(to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    let result = to.try_io(Interest::WRITABLE, || {
        sent = send(to, bytes, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    });
    if sent > 0 { Ok(sent) } else { result.map(|()| 0) }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
