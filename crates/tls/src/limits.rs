//! Every bound of the engine in one place: its unit, its reason, who could abuse it.
//!
//! Worst-case memory of one connection beside OpenSSL's own (some 70 KiB while it shakes hands):
//! [`UNSENT_MAX`] and answers to what the caller handed in at once on the way out, what the caller
//! handed in on the way in, and [`EARLY_DATA_MAX`] of early data that nobody has read yet. A client
//! keeps [`SESSIONS_MAX`] sessions: some 1-2 kB each, [`SESSION_MAX`] if the server means harm.

use std::time::Duration;

/// Ciphertext that may wait to be sent before [`Conn::write`](crate::Conn::write) takes no more.
///
/// Four records: enough for a caller that sends in large pieces, little for one whose peer reads
/// slowly.
pub const OUTPUT_MAX: usize = 64 * 1024;

/// Ciphertext that may wait to be sent, with answers to the protocol's own messages.
///
/// Reading makes some, which no caller holds back: a peer that asks for key updates (RFC 8446
/// section 4.6.3) and never reads could fill the memory. Beside what is written there is room for
/// more than a thousand of them.
pub const UNSENT_MAX: usize = 2 * OUTPUT_MAX;

/// Bytes of the protocol's own messages that an open connection may bring without any plain text
/// among them.
///
/// A server's tickets have up to 64 KiB each, and mostly some 200 bytes. A key update takes some 10
/// microseconds for 27 bytes; a peer with no other aim is done for after a tenth of a second.
pub const PROTOCOL_MAX: usize = 256 * 1024;

/// Time that sessions may be resumed from each other without another full handshake.
///
/// A resumption checks no certificate, and every one brings a new ticket: RFC 8446 section 4.6.1
/// recommends a limit. BoringSSL has the same (`SSL_DEFAULT_SESSION_AUTH_TIMEOUT`).
pub const RESUMPTION_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Early data that a server may take of one connection, in bytes.
///
/// They are decrypted before the client has shown that it is there, and are kept until somebody
/// reads them. A request of HTTP takes 1-2 kB; 16 KiB is what OpenSSL takes by default.
pub const EARLY_DATA_MAX: u32 = 64 * 1024;

/// Tickets that a server may send after a full handshake.
///
/// Each costs an encryption and some 250 bytes; browsers open six connections to a host.
pub const TICKETS_MAX: usize = 8;

/// Sessions of one connection that a client keeps until they are polled; then the oldest go.
///
/// A server may send tickets without end.
pub const SESSIONS_MAX: usize = 8;

/// Least time that a ClientHello with early data is remembered.
///
/// OpenSSL takes early data only if the ticket's age as the client sees it is off by at most 10 s
/// (`TICKET_AGE_ALLOWANCE`), so a copy that comes later is refused anyway. Twice that, for clocks.
pub const REPLAY_LIFE: Duration = Duration::from_secs(20);

/// Time that the wall clock may go back in all before a [`MemoryFilter`](crate::MemoryFilter)
/// disowns the tickets of before.
///
/// What OpenSSL takes for fresh is then still less than [`REPLAY_LIFE`] old, by half of what the
/// two differ in. A leap second is one second.
pub const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// ClientHellos with early data that a [`MemoryFilter`](crate::MemoryFilter) remembers of each
/// [`REPLAY_LIFE`]; more are resumed without early data.
///
/// 3,276 a second. There are two such generations of at most some 5 MB.
pub const REPLAY_ENTRIES: usize = 65_536;

/// Bytes of a host name (RFC 1035 section 2.3.4, without the root's dot).
pub const NAME_MAX: usize = 253;

/// Bytes of an exported session: OpenSSL writes lengths of tickets with 16 bits, and a
/// certificate comes with it. Larger ones are not kept.
pub const SESSION_MAX: usize = 128 * 1024;

/// Longest life of a ticket (RFC 8446 section 4.6.1).
pub const TICKET_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
