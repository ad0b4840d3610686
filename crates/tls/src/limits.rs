//! Every limit of the engine in one place: its unit, its reason, who could abuse it.
//!
//! Worst-case memory of one connection besides OpenSSL's own (about 70 KiB during the handshake):
//! on the way out [`UNSENT_MAX`] and answers to the bytes of one call, on the way in the bytes of
//! one call, and [`EARLY_DATA_MAX`] of early data not read yet. A client keeps [`SESSIONS_MAX`]
//! sessions: about 1-2 kB each, [`SESSION_MAX`] with a malicious server.

use std::time::Duration;

/// Ciphertext in bytes that may wait to be sent before [`Conn::write`](crate::Conn::write) takes no
/// more.
///
/// Four records: enough for a caller that sends large pieces, little for one whose peer reads
/// slowly.
pub const OUTPUT_MAX: usize = 64 * 1024;

/// Ciphertext in bytes that may wait to be sent, including answers to protocol messages.
///
/// Reading creates such answers, and no caller can hold them back: a peer that asks for key updates
/// (RFC 8446 section 4.6.3) and never reads could fill the memory. Beside the written bytes there
/// is room for more than a thousand of them.
pub const UNSENT_MAX: usize = 2 * OUTPUT_MAX;

/// Bytes of protocol messages that an open connection may receive without plain text among them.
///
/// A server's tickets have up to 64 KiB each, usually about 200 bytes. A key update takes about 10
/// microseconds for 27 bytes; a peer that sends nothing else is cut off after a tenth of a second.
pub const PROTOCOL_MAX: usize = 256 * 1024;

/// Time during which sessions may be resumed from each other without another full handshake.
///
/// A resumption verifies no certificate, and each one brings a new ticket: RFC 8446 section 4.6.1
/// recommends a limit. BoringSSL has the same one (`SSL_DEFAULT_SESSION_AUTH_TIMEOUT`).
pub const RESUMPTION_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum early data that a server may accept on one connection, in bytes.
///
/// It is decrypted before the client has proved its presence, and kept until it is read. An HTTP
/// request takes 1-2 kB; OpenSSL's default is 16 KiB.
pub const EARLY_DATA_MAX: u32 = 64 * 1024;

/// Maximum number of tickets a server may send after a full handshake.
///
/// Each costs an encryption and about 250 bytes; browsers open six connections to a host.
pub const TICKETS_MAX: usize = 8;

/// Sessions of one connection that a client keeps until they are polled; beyond that the oldest go.
///
/// A server may send tickets without end.
pub const SESSIONS_MAX: usize = 8;

/// Minimum time that a ClientHello with early data is remembered.
///
/// OpenSSL accepts early data only if the ticket's age as the client sees it is off by at most 10 s
/// (`TICKET_AGE_ALLOWANCE`), so it refuses a later copy anyway. This is twice that, to allow for
/// clocks.
pub const REPLAY_LIFE: Duration = Duration::from_secs(20);

/// Total amount the wall clock may go back before a [`MemoryFilter`](crate::MemoryFilter) disowns
/// earlier tickets.
///
/// A ClientHello that OpenSSL considers fresh is then still younger than [`REPLAY_LIFE`], by half
/// of the difference between the two. A leap second is one second.
pub const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// ClientHellos with early data that a [`MemoryFilter`](crate::MemoryFilter) remembers in each
/// [`REPLAY_LIFE`]; more are resumed without early data.
///
/// 3,276 a second. There are two such generations of at most about 5 MB.
pub const REPLAY_ENTRIES: usize = 65_536;

/// Length of an advertisement in a ticket, in bytes: that of one in DNS.
pub const ADVERT_MAX: usize = 255;

/// Maximum length of a host name in bytes (RFC 1035 section 2.3.4, without the root's dot).
pub const NAME_MAX: usize = 253;

/// Maximum length in bytes of all names of a certificate whose sessions are shared between them; a
/// server chooses the names, and they come with each of its tickets.
///
/// A hundred names of 40 bytes, as in certificates of content networks.
pub const CERTIFICATE_NAMES_MAX: usize = 4096;

/// Maximum size of an exported session in bytes: OpenSSL writes the length of a ticket with 16
/// bits, and adds a certificate. Larger sessions are not kept.
pub const SESSION_MAX: usize = 128 * 1024;

/// Maximum lifetime of a ticket (RFC 8446 section 4.6.1).
pub const TICKET_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
