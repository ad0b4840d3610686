//! Limits of servers.

use std::time::Duration;

/// Time that one connection is served; longer than any client of an experiment waits.
pub(crate) const LIFE: Duration = Duration::from_secs(300);

/// Pause after accepting failed, as for want of file descriptors.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Bytes written at a time: one TLS record.
pub(crate) const WRITE: usize = 16 * 1024;

/// Bytes of a response in its first record: a client can read it when one packet is there, as it
/// can a stream of QUIC, and need not wait for 16 KiB. With the record's 22 bytes and IPv6 and TCP
/// options it is below 1,400. Servers with records of dynamic size begin so (Google's, Go's
/// crypto/tls, Cloudflare's nginx).
pub(crate) const FIRST_WRITE: usize = 1300;

/// Bytes answered to early data before the client's Finished: what TCP's initial window holds
/// (RFC 6928). More would wait for acknowledgements, and these come with the Finished.
pub(crate) const HALF_RTT_MAX: usize = 14 * 1024;

/// Bytes of such records: with its 22 each fills a datagram of TurboTLS
/// (docs/draft-headstart-turbotls.md#server-bytes) and fits a segment.
pub(crate) const HALF_RTT_WRITE: usize = 1185;
