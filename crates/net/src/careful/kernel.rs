//! Requests of the edge to the kernel, by the program of `bpf/careful.bpf.c` and by itself.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::phases::Jump;
use crate::sys;

/// Socket option level and names of the program: `bpf/layout.h`.
const SOL_CAREFUL: i32 = 0x43_5245;
const SO_JUMP: i32 = 1;
const SO_CLAMP: i32 = 2;
const SO_PROBE: i32 = 3;

/// `SO_BUF_LOCK` of Linux 5.14, by which the size of buffers follows the connection again.
const SO_BUF_LOCK: i32 = 72;

/// A pace that is no bound.
const UNPACED: u64 = u64::MAX;

/// Checks that this process may set windows.
///
/// # Errors
/// `ENOPROTOOPT` where no program is attached to this process's cgroup, `EPERM` where it serves
/// another user.
pub(super) fn probe() -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)))?;
    sys::set_number(&socket, SOL_CAREFUL, SO_PROBE, 0)
}

/// Gives a connection that has sent nothing the window, pace and buffer of a jump.
///
/// # Errors
/// The kernel refuses it: no program, data was sent, or no BBR, by which the pace is set.
pub(super) fn jump(socket: impl AsFd, jump: &Jump) -> io::Result<()> {
    // First the bound of the pace, with which the kernel begins to pace at all.
    set_pace(&socket, jump.rate)?;
    if let Err(error) = set_segments(&socket, SO_JUMP, jump.window) {
        set_pace(&socket, UNPACED)?;
        return Err(error);
    }
    grow_buffer(&socket, jump.bytes)
}

/// Bounds the window, and slow start, to so many segments.
///
/// # Errors
/// As [`probe`].
pub(super) fn clamp(socket: impl AsFd, segments: u32) -> io::Result<()> {
    set_segments(socket, SO_CLAMP, segments)
}

/// Removes the bound of the pace.
///
/// # Errors
/// Errors of setsockopt(2).
pub(super) fn unpace(socket: impl AsFd) -> io::Result<()> {
    set_pace(socket, UNPACED)
}

fn set_segments(socket: impl AsFd, name: i32, segments: u32) -> io::Result<()> {
    let segments = i32::try_from(segments).map_err(|_| io::ErrorKind::InvalidInput)?;
    sys::set_number(socket, SOL_CAREFUL, name, segments)
}

fn set_pace(socket: impl AsFd, rate: u64) -> io::Result<()> {
    let value = rate.to_ne_bytes();
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &value)
}

/// Lets the send buffer hold the jump, as far as `net.core.wmem_max` allows: the kernel would let
/// it grow with the window only once something is acknowledged. It goes on growing by itself.
fn grow_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    let buffer = SockRef::from(&socket);
    let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
    if buffer.send_buffer_size()? < wanted {
        buffer.set_send_buffer_size(wanted)?;
        // Before Linux 5.14 the buffer stays as large as it is.
        let _ = sys::set_number(&socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
    }
    Ok(())
}
