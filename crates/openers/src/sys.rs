//! The system calls and OpenSSL functions that have no safe wrapper.
#![allow(unsafe_code)]

mod keys;

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ssl::{SslRef, SslSession, SslSessionRef};

pub(crate) use keys::{FindKey, find_keys, key_session, offer_key};

unsafe extern "C" {
    /// From openssl/ssl.h; in no Rust binding.
    fn SSL_get_early_data_status(ssl: *const c_void) -> c_int;

    /// From openssl/ssl.h; in no Rust binding.
    fn SSL_SESSION_dup(session: *const c_void) -> *mut c_void;

    /// From openssl/ssl.h; not in the safe binding.
    fn SSL_get_wbio(ssl: *const c_void) -> *mut c_void;

    /// From openssl/bio.h; in no Rust binding.
    fn BIO_number_written(bio: *mut c_void) -> u64;
}

/// `SSL_EARLY_DATA_ACCEPTED` of openssl/ssl.h.
const EARLY_DATA_ACCEPTED: c_int = 2;

/// `TCPI_OPT_SYN_DATA` of linux/tcp.h: data in the SYN was acknowledged by the SYN-ACK.
const SYN_DATA: u8 = 32;

/// Resumes `session`, which must come from a connection with the same context as `ssl`.
pub fn set_session(ssl: &mut SslRef, session: &SslSessionRef) -> Result<(), ErrorStack> {
    // SAFETY: OpenSSL itself takes any session here; that the context be the same is about what it
    // means, and `Tls` keeps sessions of its one context only.
    unsafe { ssl.set_session(session) }
}

/// Returns a copy of a session: OpenSSL marks that of a connection that ends without a close_notify
/// as not resumable, and a ClientHello with early data of such a session fails. `None` if memory is
/// short.
pub(crate) fn copy_session(session: &SslSessionRef) -> Option<SslSession> {
    // SAFETY: the call only reads the session, and its result is the caller's.
    unsafe {
        let copy = SSL_SESSION_dup(session.as_ptr().cast_const().cast());
        (!copy.is_null()).then(|| SslSession::from_ptr(copy.cast()))
    }
}

/// Returns true if the server took the early data of a finished handshake.
pub fn early_data_accepted(ssl: &SslRef) -> bool {
    // SAFETY: the pointer is valid as long as the reference; the function only reads a field.
    let status = unsafe { SSL_get_early_data_status(ssl.as_ptr().cast_const().cast()) };
    status == EARLY_DATA_ACCEPTED
}

/// Bytes that TLS has written to what is below it.
pub(crate) fn bytes_written(ssl: &SslRef) -> u64 {
    // SAFETY: the pointer is valid as long as the reference; the function only reads a field.
    let bio = unsafe { SSL_get_wbio(ssl.as_ptr().cast_const().cast()) };
    if bio.is_null() {
        return 0;
    }
    // SAFETY: the BIO is the connection's own and lives as long; the function only reads a field.
    unsafe { BIO_number_written(bio) }
}

/// Lets a listener take data in SYNs, of at most `length` connections not yet established.
pub(crate) fn fast_open_queue(socket: &impl AsFd, length: c_int) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<c_int>()).map_err(io::Error::other)?;
    let length = ptr::from_ref(&length).cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the value is an int that lives through the call.
    match unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, length, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the connection's SYN had data that the server took (tcp(7), TCP_INFO).
pub(crate) fn syn_data_acknowledged(socket: &impl AsFd) -> io::Result<bool> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length =
        libc::socklen_t::try_from(size_of::<libc::tcp_info>()).map_err(io::Error::other)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes into `info`.
    let outcome = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a valid value of this struct of integers, whatever part was written.
    let info = unsafe { info.assume_init() };
    Ok(info.tcpi_options & SYN_DATA != 0)
}
