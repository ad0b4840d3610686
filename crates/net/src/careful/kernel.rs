//! Requests of the edge to the kernel, by the program of `bpf/careful.bpf.c` and by itself.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use headstart_proto::careful::Jump;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::sys;

/// Socket option level and names of the program: `bpf/layout.h`.
const SOL_CAREFUL: i32 = 0x43_5245;
const SO_JUMP: i32 = 1;
const SO_CLAMP: i32 = 2;
const SO_PROBE: i32 = 3;

/// Bound that bounds nothing: `TCP_INFINITE_SSTHRESH` of the kernel.
const UNBOUNDED: u32 = 0x7fff_ffff;

/// `SO_BUF_LOCK` of Linux 5.14, by which the size of buffers follows the connection again.
const SO_BUF_LOCK: i32 = 72;

/// The largest buffer that the kernel gives, once it was asked.
static LARGEST_BUFFER: OnceLock<usize> = OnceLock::new();

/// A pace that is no bound.
const UNPACED: u64 = u64::MAX;

/// Checks that this process may set the windows of a socket, and of those that it accepts.
///
/// # Errors
/// `ENOPROTOOPT` where no program is attached to the cgroup in which the socket was made, `EPERM`
/// where it serves another user.
pub(super) fn probe(socket: impl AsFd) -> io::Result<()> {
    sys::set_number(socket, SOL_CAREFUL, SO_PROBE, 0)
}

/// Opens a socket, which belongs to this process's cgroup.
pub(super) fn own_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)))
}

/// Gives a connection that has sent nothing the window, pace and buffer of a jump.
///
/// # Errors
/// The kernel refuses it: no program, data was sent, no BBR, by which the pace is set, or another
/// congestion control than cubic, reno and BBR. The connection is as it was.
pub(super) fn jump(socket: impl AsFd, jump: &Jump) -> io::Result<()> {
    // First the bound of the pace, with which the kernel begins to pace at all.
    set_pace(&socket, jump.rate)?;
    if let Err(error) = set_segments(&socket, SO_JUMP, jump.window) {
        let _ = unpace(&socket);
        return Err(error);
    }
    grow_buffer(&socket, jump.bytes);
    Ok(())
}

/// Bounds the window, and slow start, to so many segments.
///
/// # Errors
/// The same as for [`probe`].
pub(super) fn clamp(socket: impl AsFd, segments: u32) -> io::Result<()> {
    set_segments(socket, SO_CLAMP, segments)
}

/// Removes the bound of window and slow start.
///
/// # Errors
/// The same as for [`probe`].
pub(super) fn unclamp(socket: impl AsFd) -> io::Result<()> {
    clamp(socket, UNBOUNDED)
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

pub(super) fn set_pace(socket: impl AsFd, rate: u64) -> io::Result<()> {
    let value = rate.to_ne_bytes();
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &value)
}

/// Lets the send buffer hold the jump, as far as `net.core.wmem_max` allows: the kernel would let
/// it grow with the window only once something is acknowledged. It goes on growing by itself.
///
/// A buffer that is larger than the option could make it stays. Without any of this the answer
/// takes a little longer, and no more.
fn grow_buffer(socket: impl AsFd, bytes: u64) {
    let buffer = SockRef::from(&socket);
    let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
    let largest = *LARGEST_BUFFER.get_or_init(|| largest_buffer().unwrap_or_default());
    let is_larger = |size| size < wanted.min(largest);
    if buffer.send_buffer_size().is_ok_and(is_larger) {
        let _ = buffer.set_send_buffer_size(wanted);
        let _ = sys::set_number(&socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
    }
}

/// Asks the kernel for the largest buffer, and returns what it gives.
fn largest_buffer() -> io::Result<usize> {
    let socket = own_socket()?;
    socket.set_send_buffer_size(1 << 29)?;
    socket.send_buffer_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_and_never_shrinks() {
        let socket = own_socket().unwrap();
        socket.set_send_buffer_size(8192).unwrap();
        let small = socket.send_buffer_size().unwrap();
        grow_buffer(&socket, 100_000);
        let grown = socket.send_buffer_size().unwrap();
        assert!(grown > small, "{grown}");
        grow_buffer(&socket, 50_000);
        assert_eq!(socket.send_buffer_size().unwrap(), grown);
        // Larger than the option makes it: as the kernel lets it grow, and root by force.
        let force = i32::try_from(largest_buffer().unwrap()).unwrap();
        let _ = sys::set_number(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, force);
        let forced = socket.send_buffer_size().unwrap();
        grow_buffer(&socket, u64::MAX);
        assert!(socket.send_buffer_size().unwrap() >= forced);
    }
}
