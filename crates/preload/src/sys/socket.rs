//! The agent's socket. Nothing is kept of it from one request to the next, so a fork has nothing in common.

use std::ffi::{CStr, c_int};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::link::{Line, PATIENCE};

pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// A connection to the agent, if it takes one at once.
    pub(crate) fn connect(path: &CStr) -> Option<Self> {
        let bytes = path.to_bytes_with_nul();
        // SAFETY: an address of zeros is a valid one.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
        if bytes.len() > address.sun_path.len() {
            return None;
        }
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = libc::c_char::from_ne_bytes([*byte]);
        }
        // SAFETY: no memory is handed over.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: it is open, and nobody else's.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let length = libc::socklen_t::try_from(mem::size_of_val(&address)).ok()?;
        // SAFETY: the address is valid for its length.
        (unsafe { libc::connect(fd, ptr::from_ref(&address).cast(), length) } == 0).then_some(socket)
    }

    /// Waits until `events`, for [`PATIENCE`] at most.
    fn wait(&self, events: libc::c_short) -> Option<()> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events, revents: 0 };
        let patience = c_int::try_from(PATIENCE.as_millis()).ok()?;
        // SAFETY: one entry, as is said. A signal ends the wait, and with it the request.
        (unsafe { libc::poll(&raw mut poll, 1, patience) } == 1).then_some(())
    }
}

impl Line for Socket {
    fn send(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            self.wait(libc::POLLOUT)?;
            // SAFETY: the bytes are valid for their length. Without a signal if the agent is gone.
            let sent = unsafe {
                libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
            };
            bytes = bytes.get(usize::try_from(sent).ok().filter(|sent| *sent > 0)?..)?;
        }
        Some(())
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.wait(libc::POLLIN)?;
        // SAFETY: the room is valid for its length.
        let count = unsafe { libc::recv(self.0.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
        usize::try_from(count).ok()
    }
}
