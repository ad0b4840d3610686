//! Every bound of the transport in one place: its unit, its reason, who could abuse it.
//!
//! The core reassembles bytes that anybody on the internet can send, so the limits come first.
//!
//! Worst-case memory of one [`Server`](crate::Server) (tested in `server::tests`):
//! [`SESSIONS`] x ([`CLIENT_BYTES`] + [`SERVER_BYTES`]) = 1,024 x 36 KiB = 37.7 MB, plus
//! [`RECENT_ENTRIES`] x about 100 B x 2 tables = 13 MB when 6,500 connections a second arrive.
//!
//! The driver has the client bytes a second time until the origin took them: [`SESSIONS`] x
//! [`CLIENT_BYTES`] = 16.8 MB, and whatever buffers it copies with. An edge has a server for each
//! address it listens on.

use core::time::Duration;

/// Bytes in a UDP payload at most: the IPv6 minimum MTU of 1280 less 40 (IPv6) and 8 (UDP).
pub const DATAGRAM_MAX: usize = 1232;

/// Factor by which a response may be larger than the request it answers (RFC 9000 section 8.1).
///
/// A spoofer gains nothing over other reflectors.
pub const AMPLIFICATION: usize = 3;

/// Bytes in a client datagram at least, so that one response can fill [`DATAGRAM_MAX`].
pub const REQUEST_MIN: usize = DATAGRAM_MAX.div_ceil(AMPLIFICATION);

/// Client datagrams of one session: sequence numbers are below this, each answered at most once.
pub const SEQUENCES: u8 = 16;

/// Slots a client sends by default at most, the one for the acknowledgement not counted.
///
/// Ten segments are TCP's initial window (RFC 6928): more would be unfair to the path. The other
/// [`SEQUENCES`] are reached only by configuration.
pub const SLOTS_DEFAULT_MAX: u8 = 10;

/// Client bytes stored for one session before it is joined.
///
/// A ClientHello of today has 0.3-2.3 kB; with large tickets and early data 16 KiB hold it.
pub const CLIENT_BYTES: usize = 16 * 1024;

/// Server bytes stored for one session before it is joined; then the origin has to wait.
///
/// All [`SEQUENCES`] responses together carry 19.3 kB.
pub const SERVER_BYTES: usize = 20 * 1024;

/// Sessions of one edge that are not joined, all addresses together.
pub const SESSIONS: usize = 1024;

/// Share of [`SESSIONS`] for incomplete ClientHellos; the oldest gives way to the newest.
///
/// Unlike running sessions these have promised nothing, so a flood of fragments displaces
/// fragments first.
pub const SESSIONS_GATHERING: usize = 256;

/// Unjoined sessions of one IPv4 address or IPv6 /64: a host, a household.
pub const SESSIONS_PER_ADDRESS: usize = 16;

/// Unjoined sessions of one IPv4 /24 or IPv6 /48: a spoofer or botnet inside one network.
pub const SESSIONS_PER_NETWORK: usize = 64;

/// Time that fragments of an incomplete ClientHello are kept (the paper's 2 s).
pub const GATHERING_LIFE: Duration = Duration::from_secs(2);

/// Time that a session waits for its join, counted from its first answer.
///
/// A client may rely on it: within this time nothing else evicts the session. It outlives TCP's
/// SYN retransmissions at 1 s, 3 s and 7 s.
pub const SESSION_LIFE: Duration = Duration::from_secs(10);

/// Time that a session waits while nobody else needs its place; at most half of all do so.
///
/// After a lost SYN, TCP sends a lost join again at 3 s, 9 s, 21 s, 45 s and 93 s: where a fifth of
/// all packets is lost, one join in a hundred takes longer than [`SESSION_LIFE`].
pub const SESSION_LIFE_SPARE: Duration = Duration::from_secs(120);

/// So long before the end of [`SESSION_LIFE`] a client that is not connected yet gives a session
/// up.
///
/// Covers the grace and a join's way to the edge. A client that shows bytes of an expired session
/// to the application would be refused, and the application reset, where plain TLS works.
pub const JOIN_MARGIN: Duration = Duration::from_secs(2);

/// Time that a client waits for the answer to its join before it counts as refused.
///
/// As long as an edge may know the session. After that, a network that swallows what is not TLS is
/// more likely than one that loses every copy of a segment.
pub const JOIN_ANSWER_LIFE: Duration = SESSION_LIFE_SPARE;

/// Time that a SYN waits for the data that it could carry, and only where the server takes cookies.
///
/// An application on this machine has its ClientHello ready in about a millisecond once it may
/// write. What the wait can cost a slow one is this; what it can save is a round trip.
pub const SYN_DATA_WAIT: Duration = Duration::from_millis(10);

/// Least time that a SYN with data is waited for before plain TCP goes beside it; or two round
/// trips.
///
/// The kernel sends a SYN again after a second, then without cookie and data. A network that drops
/// SYNs with data would cost that second; a usual round trip, however, must not look like one.
pub const SYN_SILENCE: Duration = Duration::from_millis(300);

/// Bytes in a session ticket at least that may begin with a cookie: name (16), IV (16), MAC (32).
///
/// What is shorter comes from elsewhere: a key agreed on otherwise, or the number of a session that
/// the server keeps.
pub const TICKET_MIN: usize = 64;

/// Time that ended sessions and started ClientHellos are remembered, so that none runs twice.
pub const HELLO_MEMORY: Duration = Duration::from_secs(10);

/// Age that early data may have when it is sent again by a join: as long as the edge surely knows
/// that it had it, running or ended, less [`JOIN_MARGIN`].
pub const EARLY_DATA_LIFE: Duration =
    SESSION_LIFE.saturating_add(HELLO_MEMORY).saturating_sub(JOIN_MARGIN);

/// Entries in each table of [`HELLO_MEMORY`]; beyond it the oldest is forgotten early.
///
/// Holds 6,500 connections a second for 10 s. The harm of forgetting is a ClientHello that runs
/// twice, of which one handshake cannot be completed.
pub const RECENT_ENTRIES: usize = 65_536;

/// Share of the server's concurrent work that unproven sessions may take: one in this many.
pub const UNPROVEN_SHARE: usize = 4;

/// Bytes that the client's outgoing TCP queue may hold before it stops taking application bytes.
pub const STREAM_BUFFER: usize = 64 * 1024;

/// Default life of a Fast Open cookie.
///
/// It bounds how long option 34 shows a returning client, how long a cookie that leaked may be
/// spent from the client's address, and the number of spent cookies a server has to remember.
pub const COOKIE_LIFE: Duration = Duration::from_secs(60 * 60);

/// Longest life of a Fast Open cookie; one that claims to live longer counts as expired.
///
/// The expiry travels modulo 2^16 seconds (18.2 h), of which the past needs the larger part: else a
/// cookie that expired long ago would look like one that expires late.
pub const COOKIE_LIFE_MAX: Duration = Duration::from_secs(8 * 60 * 60);
