//! The kernel's account of a TCP connection: `struct tcp_info` of linux/tcp.h.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::sys;

/// `TCPI_OPT_SYN_DATA`.
const SYN_DATA: u8 = 32;

/// Offsets of the fields `tcpi_options`, `tcpi_rtt`, `tcpi_total_retrans` and `tcpi_bytes_acked`.
const OPTIONS: usize = 5;
const RTT: usize = 68;
const RETRANSMITTED: usize = 100;
const BYTES_ACKED: usize = 120;

/// The kernel's account of one connection, as far as `tcpi_bytes_acked`.
pub(crate) struct TcpInfo([u8; 128]);

impl TcpInfo {
    /// Reads the account of a TCP socket.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub(crate) fn read(socket: impl AsFd) -> io::Result<Self> {
        let mut info = [0; 128];
        sys::option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        Ok(Self(info))
    }

    /// Returns true if the data of the SYN were accepted.
    pub(crate) fn has_syn_data(&self) -> bool {
        self.0.get(OPTIONS).is_some_and(|options| options & SYN_DATA != 0)
    }

    /// Returns true if a segment was sent again: until the connection is used, the SYN.
    pub(crate) fn has_retransmitted(&self) -> bool {
        u32::from_ne_bytes(self.field(RETRANSMITTED)) > 0
    }

    /// Returns the smoothed round trip; `None` without a sample. For a SYN sent again, the sample
    /// comes from timestamps (RFC 7323 section 4).
    pub(crate) fn rtt(&self) -> Option<Duration> {
        let micros = u32::from_ne_bytes(self.field(RTT));
        (micros > 0).then(|| Duration::from_micros(micros.into()))
    }

    /// Returns the number of bytes that the peer's kernel has acknowledged.
    pub(crate) fn bytes_acked(&self) -> u64 {
        u64::from_ne_bytes(self.field(BYTES_ACKED))
    }

    /// Returns a field; zero where there is none.
    fn field<const LENGTH: usize>(&self, at: usize) -> [u8; LENGTH] {
        self.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; LENGTH])
    }
}
