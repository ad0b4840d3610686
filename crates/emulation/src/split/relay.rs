//! The work of both halves: carrying bytes, ends and resets between two connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::SockRef;

/// Bytes under way in one direction inside one half.
const BUFFER: usize = 32 * 1024;

/// Carries both directions until both have ended, or resets both connections.
pub(super) fn carry(one: &TcpStream, other: &TcpStream, stop: &OwnedFd) {
    if relay(one, other, stop).is_err() {
        reset(one);
        reset(other);
    }
}

fn relay(one: &TcpStream, other: &TcpStream, stop: &OwnedFd) -> io::Result<()> {
    for stream in [one, other] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let (mut there, mut back) = (Flow::new(one, other), Flow::new(other, one));
    loop {
        there.pump()?;
        back.pump()?;
        if there.ended && back.ended {
            return Ok(());
        }
        let interests = [there.interest(), back.interest()];
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(interests.into_iter().flatten());
        wait(&mut fds, None)?;
        if !fds[0].revents().is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

/// One direction of a connection.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    buffer: Vec<u8>,
    /// Part of the buffer still to be written.
    pending: std::ops::Range<usize>,
    /// The end was read, and has been written.
    ended: bool,
}

impl<'a> Flow<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream) -> Flow<'a> {
        Flow { from, to, buffer: vec![0; BUFFER], pending: 0..0, ended: false }
    }

    /// Moves bytes until one of the sockets is not ready.
    fn pump(&mut self) -> io::Result<()> {
        while !self.ended {
            if self.pending.is_empty() && self.read()?.is_none()
                || !self.pending.is_empty() && self.write()?.is_none()
            {
                break;
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<()>> {
        let Some(length) = if_ready(self.from.read(&mut self.buffer))? else {
            return Ok(None);
        };
        self.pending = 0..length;
        if length == 0 {
            self.to.shutdown(Shutdown::Write)?;
            self.ended = true;
        }
        Ok(Some(()))
    }

    fn write(&mut self) -> io::Result<Option<()>> {
        let pending = self.buffer.get(self.pending.clone()).unwrap_or_default();
        let Some(length) = if_ready(self.to.write(pending))? else {
            return Ok(None);
        };
        self.pending.start += length;
        Ok(Some(()))
    }

    /// The one event that lets this direction go on.
    fn interest(&self) -> Option<PollFd<'a>> {
        match (self.ended, self.pending.is_empty()) {
            (true, _) => None,
            (false, true) => Some(PollFd::new(self.from, PollFlags::IN)),
            (false, false) => Some(PollFd::new(self.to, PollFlags::OUT)),
        }
    }
}

fn if_ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for something to happen, at most `timeout`.
pub(super) fn wait(fds: &mut [PollFd<'_>], timeout: Option<Timespec>) -> io::Result<()> {
    loop {
        match poll(fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

/// Makes the other end see a reset, instead of an end in due form, once the stream is closed.
pub(super) fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}
