//! Makes a network device of this process, for which there is no safe function here.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_short};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Makes a tun device in the network namespace of this thread; it ends with the file. Reading does
/// not block.
pub(crate) fn tun(name: &str) -> io::Result<File> {
    let device = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: `request` has the name and the flags, and is large enough for what the call writes.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if made == -1 { Err(io::Error::last_os_error()) } else { Ok(device) }
}
