//! Pipes for splice(2), kept for reuse by the thread and limited in number for the process.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::net::TcpStream;

/// Capacity requested for a pipe, in bytes: the most that an unprivileged process may request by
/// default (pipe-max-size in proc_sys_fs(5)). If the kernel refuses, the pipe keeps its default
/// size.
pub(super) const PIPE_CAPACITY: usize = 1 << 20;

/// Most pipes in use in the process at one time.
///
/// 512 pipes are 1024 descriptors and, all full, 512 MB of pages that would otherwise lie in socket
/// buffers. A pipe is in use only while a burst passes through it.
pub(super) const PIPES_IN_USE: usize = 512;

/// Empty pipes kept by a thread: as many as bursts overlap in one thread when receivers
/// occasionally stall.
const PIPES_KEPT: usize = 16;

static QUOTA: Quota = Quota::new(PIPES_IN_USE);

thread_local! {
    static KEPT: RefCell<Vec<PipeEnds>> = const { RefCell::new(Vec::new()) };
}

struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// Limit on the pipes in use, and their current number.
pub(super) struct Quota {
    most: usize,
    used: AtomicUsize,
}

impl Quota {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, used: AtomicUsize::new(0) }
    }

    fn take(&self) -> bool {
        let taken = self.used.fetch_add(1, Ordering::Relaxed) < self.most;
        if !taken {
            self.give_back();
        }
        taken
    }

    fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pipe in use; returns to its thread's store when dropped empty.
pub(super) struct Pipe {
    ends: Option<PipeEnds>,
    held: usize,
    quota: &'static Quota,
}

impl Pipe {
    /// Takes a pipe, or `None` if the process has too many or no descriptor is left.
    pub(super) fn take() -> Option<Self> {
        Self::take_within(&QUOTA)
    }

    pub(super) fn take_within(quota: &'static Quota) -> Option<Self> {
        if !quota.take() {
            return None;
        }
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        let ends = kept.or_else(|| open().ok());
        if ends.is_none() {
            quota.give_back();
        }
        ends.map(|ends| Self { ends: Some(ends), held: 0, quota })
    }

    /// Returns the number of bytes in the pipe.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Moves bytes from the connection into the pipe, which must be empty: then `WouldBlock` can
    /// only mean that the connection has none. `Ok(0)` is the end of the stream.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0, "a full pipe and an empty connection look alike");
        let Some(ends) = &self.ends else { return Ok(0) };
        let moved = splice(from, None, &ends.write, None, PIPE_CAPACITY, FLAGS)?;
        self.held = moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe into the connection.
    pub(super) fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
        let Some(ends) = &self.ends else { return Ok(0) };
        let moved = splice(&ends.read, None, to, None, self.held, FLAGS)?;
        self.held = self.held.saturating_sub(moved);
        Ok(moved)
    }
}

/// MOVE is a hint; NONBLOCK applies to the pipe's end, since the connection is already
/// non-blocking.
const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl Drop for Pipe {
    fn drop(&mut self) {
        self.quota.give_back();
        let Some(ends) = self.ends.take() else { return };
        if self.held == 0 {
            // When the thread ends its store is gone, and the pipe is closed.
            let _ = KEPT.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.len() < PIPES_KEPT {
                    kept.push(ends);
                }
            });
        }
    }
}

fn open() -> io::Result<PipeEnds> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Fails beyond the user's share of pipe memory (pipe(7)): the smaller pipe works too.
    let _ = fcntl_setpipe_size(&write, PIPE_CAPACITY);
    Ok(PipeEnds { read, write })
}
