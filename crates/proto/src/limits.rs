//! Every limit of the transport in one place: its unit, its reason, who could abuse it.
//!
//! The core reassembles bytes that anybody on the internet can send, so the limits come first.
//!
//! Worst-case memory of one [`Server`](crate::Server) (tested in `server::tests`):
//! [`SESSIONS`] x ([`CLIENT_BYTES`] + [`SERVER_BYTES`]) = 1,024 x 36 KiB = 37.7 MB, plus
//! [`RECENT_ENTRIES`] x about 100 B x 3 tables = 20 MB when 6,500 connections a second arrive.
//!
//! Until the origin has taken them, the driver holds the client bytes a second time: [`SESSIONS`] x
//! [`CLIENT_BYTES`] = 16.8 MB, plus its copy buffers. An edge has one server per listening address.

use core::time::Duration;

/// Maximum UDP payload in bytes: the IPv6 minimum MTU of 1280 less 40 (IPv6) and 8 (UDP).
pub const DATAGRAM_MAX: usize = 1232;

/// Maximum ratio of a response's size to that of the request it answers (RFC 9000 section 8.1).
///
/// A spoofer gains nothing over other reflectors.
pub const AMPLIFICATION: usize = 3;

/// Minimum size of a client datagram in bytes, so that one response can fill [`DATAGRAM_MAX`].
pub const REQUEST_MIN: usize = DATAGRAM_MAX.div_ceil(AMPLIFICATION);

/// Client datagrams per session: sequence numbers are below this, each answered at most once.
pub const SEQUENCES: u8 = 16;

/// Maximum number of slots for a server flight: what a flight of one datagram leaves of
/// [`SEQUENCES`], and one for the acknowledgement.
///
/// A flight of 17 kB, of a long certificate chain, takes fourteen.
pub const SLOTS_MAX: u8 = SEQUENCES - 2;

/// Client bytes stored for one session before it is joined.
///
/// A ClientHello today has 0.3-2.3 kB; 16 KiB hold one with large tickets and early data.
pub const CLIENT_BYTES: usize = 16 * 1024;

/// Server bytes stored for one session before it is joined; beyond them the origin has to wait.
///
/// All [`SEQUENCES`] responses together carry 19.3 kB.
pub const SERVER_BYTES: usize = 20 * 1024;

/// Unjoined sessions of one edge, over all addresses.
pub const SESSIONS: usize = 1024;

/// Sessions among [`SESSIONS`] with an incomplete ClientHello; the newest evicts the oldest.
///
/// Unlike running sessions, the edge has promised these nothing, so a flood of fragments evicts
/// fragments first.
pub const SESSIONS_GATHERING: usize = 256;

/// Unjoined sessions per IPv4 address or IPv6 /64: a host, a household.
pub const SESSIONS_PER_ADDRESS: usize = 16;

/// Unjoined sessions per IPv4 /24 or IPv6 /48: a spoofer or botnet inside one network.
pub const SESSIONS_PER_NETWORK: usize = 64;

/// Most unjoined sessions of an address, and of its network, that joins what it begins: one more
/// than [`SESSIONS_PER_ADDRESS`] for each session joined, until it joins none for [`HELLO_MEMORY`].
///
/// An agent opens a hundred connections at once. Spoofers cannot join; one who can has an eighth of
/// all sessions, as long as it goes on joining.
pub const SESSIONS_PER_JOINER: usize = 128;

/// Time an edge keeps the fragments of an incomplete ClientHello (the paper's 2 s).
pub const GATHERING_LIFE: Duration = Duration::from_secs(2);

/// Time a session waits for its join, counted from its first answer.
///
/// A client may rely on it: nothing evicts the session within this time. It outlives TCP's SYN
/// retransmissions at 1 s, 3 s and 7 s.
pub const SESSION_LIFE: Duration = Duration::from_secs(10);

/// Time a session waits while no other needs its slot; at most half of all slots are held so.
///
/// After a lost SYN, TCP retransmits a lost join at 3 s, 9 s, 21 s, 45 s and 93 s: with 20 % packet
/// loss, one join in a hundred takes longer than [`SESSION_LIFE`].
pub const SESSION_LIFE_SPARE: Duration = Duration::from_secs(120);

/// Safety margin: a client abandons a session this long before the edge may drop it.
///
/// Covers the join's travel time, and a retransmission of it. A client that shows bytes of an
/// expired session to the application would be refused, and the application reset, where plain TLS
/// works.
pub const JOIN_MARGIN: Duration = Duration::from_secs(2);

/// Time a client waits for the answer to its join before the join counts as refused.
///
/// Equals the longest time an edge may know the session. After that, a middlebox that
/// swallows joins is more likely than the loss of every copy of a segment.
pub const JOIN_ANSWER_LIFE: Duration = SESSION_LIFE_SPARE;

/// Shortest grace: below it a busy receiver's scheduling would pass for a blocked network.
pub const GRACE_MIN: Duration = Duration::from_millis(2);

/// The longest grace is half a round trip, but at least this: on short paths it costs little.
pub const GRACE_MAX_FLOOR: Duration = Duration::from_millis(10);

/// Longest grace on a new path, which may not carry datagrams at all.
pub const GRACE_MAX_FIRST: Duration = Duration::from_millis(25);

/// Least deviation that is assumed after a path's first answer: one that came early does not show
/// that the next will.
pub const DEVIATION_FIRST: Duration = Duration::from_millis(3);

/// Largest lag that counts as a sample; a later datagram predicts nothing about the next.
pub const LAG_MAX: Duration = Duration::from_secs(2);

/// An answer has to save one round trip in this many to be waited for.
///
/// Waiting for an answer that is lost costs up to a round trip. At an eighth, one loss in nine
/// connections is paid for by the others.
pub const WORTHWHILE: u32 = 8;

/// Time a SYN waits for data to carry; only if the server takes cookies.
///
/// A local application has its ClientHello ready about a millisecond after it may write. A slow
/// application loses at most this time; the data in the SYN saves a round trip.
pub const SYN_DATA_WAIT: Duration = Duration::from_millis(10);

/// Minimum time without a SYN-ACK before plain TCP starts beside a SYN with data; two round trips
/// if those take longer.
///
/// The kernel retransmits a SYN after a second, without cookie and data. A network that drops SYNs
/// with data would cost that second; an ordinary round trip must not look like such a network.
pub const SYN_SILENCE: Duration = Duration::from_millis(300);

/// Minimum length of a session ticket that may begin with a cookie: name (16), IV (16), MAC (32).
///
/// Anything shorter is an external PSK, or an id of server-side session state.
pub const TICKET_MIN: usize = 64;

/// Time an edge remembers ended sessions and started ClientHellos, so that none runs twice.
pub const HELLO_MEMORY: Duration = Duration::from_secs(10);

/// Maximum age of early data that a join may send again: the time the edge surely remembers having
/// had it, running or ended, less [`JOIN_MARGIN`]. Clients that give up connecting sooner, as the
/// agent does by default, never come to it.
pub const EARLY_DATA_LIFE: Duration =
    SESSION_LIFE.saturating_add(HELLO_MEMORY).saturating_sub(JOIN_MARGIN);

/// Entries in each table of [`HELLO_MEMORY`], and of addresses that joined lately; beyond that the
/// oldest is forgotten early.
///
/// Holds 6,500 connections a second for 10 s. A forgotten ClientHello may run twice; one of the two
/// handshakes then cannot complete, and its early data waits for the join.
pub const RECENT_ENTRIES: usize = 65_536;

/// Share of the server's concurrent work open to unproven sessions: one in this many.
pub const UNPROVEN_SHARE: usize = 4;

/// Share of the processors' time open to handshakes of unproven sessions: one in this many.
///
/// Sessions that join cost nothing of it. Spoofed ClientHellos leave proven clients 95 % of the
/// processors, however costly the site's key is.
pub const UNPROVEN_WORK_SHARE: u32 = 20;

/// Handshakes of unproven sessions that may start at once, in seconds of their share.
///
/// Together with the share, 100 ms of all processors: what clients at a round trip of 100 ms have
/// started and not joined while an edge does nothing but handshakes. Where an origin takes
/// handshakes in turn, others wait so long behind a burst of spoofed ones at most.
pub const UNPROVEN_WORK_BURST: u32 = 2;

/// Processor time of a handshake that nobody has measured yet, such as one at another origin: a
/// signature with RSA-2048. One with P-256 takes a third of it.
pub const HANDSHAKE_COST: Duration = Duration::from_micros(500);

/// Time for which the costliest handshake is what others are expected to cost, at least; twice as
/// long at most.
pub const COST_MEMORY: Duration = Duration::from_secs(10);

/// Size in bytes at which the client's outgoing TCP queue stops taking application bytes.
pub const STREAM_BUFFER: usize = 64 * 1024;

/// Default lifetime of a Fast Open cookie.
///
/// Bounds how long option 34 reveals a returning client, how long a leaked cookie can be spent from
/// the client's address, and how many spent cookies a server has to remember.
pub const COOKIE_LIFE: Duration = Duration::from_secs(60 * 60);

/// Maximum lifetime of a Fast Open cookie; one that claims a longer life counts as expired.
///
/// The expiry travels modulo 2^16 seconds (18.2 h). Most of that range has to mean the past, or a
/// cookie that expired long ago would look like one that expires late.
pub const COOKIE_LIFE_MAX: Duration = Duration::from_secs(8 * 60 * 60);
