//! The agent's socket. Requests share no state, so a fork shares nothing with its parent.

use std::ffi::c_int;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::clock;
use super::environment::Environment;
use crate::link::{AgentLink, REST};

/// First number above the standard streams, which a program may have closed.
const FIRST: c_int = 3;

pub(crate) struct Socket {
    fd: OwnedFd,
    end: Instant,
}

impl Socket {
    /// Connects to the agent, if it accepts at once and its user is trusted.
    pub(crate) fn connect(environment: &Environment) -> Option<Self> {
        if is_resting() {
            return None;
        }
        let bytes = environment.socket.to_bytes_with_nul();
        // SAFETY: an address of zeros is a valid one.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
        if bytes.len() > address.sun_path.len() {
            return None;
        }
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = libc::c_char::from_ne_bytes([*byte]);
        }
        let socket = Self { fd: socket()?, end: Instant::now() + environment.timeout };
        let length = libc::socklen_t::try_from(size_of_val(&address)).ok()?;
        // SAFETY: the address is valid for its length.
        let done =
            unsafe { libc::connect(socket.fd.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
        (done == 0 && environment.is_trusted(socket.user()?)).then_some(socket)
    }

    /// Returns the user who listens there.
    fn user(&self) -> Option<libc::uid_t> {
        let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
        let mut length = libc::socklen_t::try_from(size_of_val(&peer)).ok()?;
        // SAFETY: the buffer is valid for its length.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            )
        };
        (done == 0).then_some(peer.uid)
    }

    /// Waits for `events`, until the deadline.
    fn wait(&self, events: libc::c_short) -> Option<()> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            let time = libc::timespec {
                tv_sec: left.as_secs().try_into().ok()?,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
            // SAFETY: one entry, as stated; the time is only read.
            match unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, ptr::null()) } {
                1 => return Some(()),
                0 => {
                    rest();
                    return None;
                }
                // A signal of the program, which has its own handler; the deadline stays.
                _ if is_interrupted() => {}
                _ => return None,
            }
        }
    }
}

impl AgentLink for Socket {
    fn send(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            self.wait(libc::POLLOUT)?;
            // SAFETY: the bytes are valid for their length. The flag suppresses SIGPIPE if the
            // agent is gone.
            let sent = unsafe {
                libc::send(
                    self.fd.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            bytes = bytes.get(usize::try_from(sent).ok().filter(|sent| *sent > 0)?..)?;
        }
        Some(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.wait(libc::POLLIN)?;
        // SAFETY: the buffer is valid for its length.
        let count =
            unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(count).ok()
    }
}

fn socket() -> Option<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call gets no pointers.
    let fd = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    if fd.as_raw_fd() >= FIRST {
        return Some(fd);
    }
    // Otherwise another thread's standard output could go to the agent.
    // SAFETY: as above.
    owned(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) })
}

fn owned(fd: c_int) -> Option<OwnedFd> {
    // SAFETY: a call that makes descriptors has just made it, so it is open and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_interrupted() -> bool {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() == libc::EINTR }
}

/// Milliseconds since boot until which the agent is not asked.
static RESTS_UNTIL: AtomicU64 = AtomicU64::new(0);

fn is_resting() -> bool {
    let until = RESTS_UNTIL.load(Ordering::Relaxed);
    until != 0 && clock::now().is_none_or(|now| now < until)
}

fn rest() {
    let time = clock::now()
        .unwrap_or(0)
        .saturating_add(u64::try_from(REST.as_millis()).unwrap_or(u64::MAX));
    RESTS_UNTIL.store(time, Ordering::Relaxed);
}
