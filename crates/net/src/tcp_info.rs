//! The kernel's account of a TCP connection: `struct tcp_info` of linux/tcp.h.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::sys;

/// `TCPI_OPT_SYN_DATA`.
const SYN_DATA: u8 = 32;

/// Offsets of fields, by their names there without `tcpi_`.
const CA_STATE: usize = 1;
const OPTIONS: usize = 5;
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const SACKED: usize = 28;
const LOST: usize = 32;
const RTT: usize = 68;
const SND_SSTHRESH: usize = 76;
const SND_CWND: usize = 80;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const MIN_RTT: usize = 148;
const DELIVERY_RATE: usize = 160;
const DELIVERED: usize = 192;
const DELIVERED_CE: usize = 196;
const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;

/// States of `enum tcp_ca_state`: those from the first on repair losses.
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;

/// The kernel's account of one connection, as far as `tcpi_bytes_retrans` (Linux 4.19).
pub(crate) struct TcpInfo([u8; 216]);

impl TcpInfo {
    /// Reads the account of a TCP socket.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub(crate) fn read(socket: impl AsFd) -> io::Result<Self> {
        let mut info = [0; 216];
        sys::option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        Ok(Self(info))
    }

    /// Returns true if the data of the SYN were accepted.
    pub(crate) fn has_syn_data(&self) -> bool {
        self.0.get(OPTIONS).is_some_and(|options| options & SYN_DATA != 0)
    }

    /// Returns true if a segment was sent again: until the connection is used, the SYN.
    pub(crate) fn has_retransmitted(&self) -> bool {
        u32::from_ne_bytes(self.field(TOTAL_RETRANS)) > 0
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

    /// Returns the least round trip; zero without a sample.
    pub(crate) fn min_rtt(&self) -> Duration {
        // Without a sample, all bits are set.
        let micros = Some(self.number(MIN_RTT)).filter(|micros| *micros != u32::MAX);
        Duration::from_micros(micros.unwrap_or_default().into())
    }

    /// Returns the payload of a segment.
    pub(crate) fn segment(&self) -> u32 {
        self.number(SND_MSS)
    }

    /// Returns the congestion window, in segments.
    pub(crate) fn window(&self) -> u32 {
        self.number(SND_CWND)
    }

    /// Returns the slow start threshold, in segments.
    pub(crate) fn threshold(&self) -> u32 {
        self.number(SND_SSTHRESH)
    }

    /// Returns the segments neither acknowledged nor declared lost.
    pub(crate) fn in_flight(&self) -> u32 {
        let left = self.number(UNACKED).saturating_sub(self.number(SACKED));
        left.saturating_sub(self.lost())
    }

    /// Returns the segments declared lost and not acknowledged since.
    pub(crate) fn lost(&self) -> u32 {
        self.number(LOST)
    }

    /// Returns the segments delivered, repeated ones included.
    pub(crate) fn delivered(&self) -> u32 {
        self.number(DELIVERED)
    }

    /// Returns those of them that the network has marked.
    pub(crate) fn delivered_ce(&self) -> u32 {
        self.number(DELIVERED_CE)
    }

    /// Returns the last measured rate of delivery, in bytes per second.
    pub(crate) fn delivery_rate(&self) -> u64 {
        u64::from_ne_bytes(self.field(DELIVERY_RATE))
    }

    /// Returns the bytes sent, each once.
    pub(crate) fn bytes_sent(&self) -> u64 {
        let [all, again] = [BYTES_SENT, BYTES_RETRANS].map(|at| u64::from_ne_bytes(self.field(at)));
        all.saturating_sub(again)
    }

    /// Returns true while the kernel repairs losses.
    pub(crate) fn is_recovering(&self) -> bool {
        self.0.get(CA_STATE).is_some_and(|state| *state >= RECOVERY)
    }

    /// Returns true after a retransmission timeout, until it is repaired.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.0.get(CA_STATE) == Some(&LOSS)
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.field(at))
    }

    /// Returns a field; zero where there is none.
    fn field<const LENGTH: usize>(&self, at: usize) -> [u8; LENGTH] {
        self.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; LENGTH])
    }
}
