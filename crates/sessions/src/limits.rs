//! Every limit in one place: its unit, its reason, who could abuse it.
//!
//! Worst case of one jar: [`HOSTS`] x about 1 kB = 1 MB for the entries (names and labels of
//! maximum length), and 9 MB for spent cookies.
//!
//! Worst case of all offers: [`OFFERS`] x 0.8 kB = 0.4 MB.
//!
//! Worst case of one store, 30 MB: [`STORE_BYTES`] of tickets, 3 MB for their origins (names,
//! labels and protocols of maximum length), 8 MB more if all of these are certificates with the
//! maximum number of names, 1.5 MB of policies, and 1 MB to recognize recent tickets.

use std::time::Duration;

/// Pairs of host name and context kept.
///
/// When all are taken, the least recently used pair of the user with most pairs is evicted: a user
/// with many hosts evicts its own entries first.
pub const HOSTS: usize = 1024;

/// Cookies per host and context.
///
/// A connection brings two by default, and a page opens six to one host. Beyond the limit, the
/// cookie that expires first is evicted.
pub const COOKIES_PER_HOST: usize = 8;

/// Spent cookies kept in each of two generations: 17 bytes each, 4.5 MB with a hash table's spare
/// room.
///
/// A generation lasts as long as a cookie may live, 8 h: enough for four and a half connections a
/// second, day and night, and half as many by one user alone (`SeenCookies` describes how users
/// share it). Once full, no cookie is spent until the generation ends: connections open without
/// cookies.
pub const SPENT_COOKIES: usize = 1 << 17;

/// Offers kept, over all services and contexts; with names, labels and addresses of maximum length
/// 0.4 MB.
///
/// Somebody with many servers can evict offers of the same user's other services: these then open
/// once as without.
pub const OFFERS: usize = 512;

/// Addresses of a service whose offer is kept. The latest displaces the first.
pub const OFFER_ADDRESSES: usize = 8;

/// Time for which an offer is believed: a server that has withdrawn it meets clients that still
/// believe it for as long.
pub const OFFER_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Length of a context's label in bytes: the maximum of a SOCKS5 user name (RFC 1929).
pub const LABEL_MAX: usize = 255;

/// Length of a host name in bytes (RFC 1035 section 2.3.4).
pub const HOST_MAX: usize = 253;

/// Time before its end at which a cookie or ticket is no longer given out.
///
/// It has to reach the server, whose clock may be slightly ahead; sending an expired cookie reveals
/// it for nothing.
pub const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Origins with tickets: mostly pairs of server and context.
///
/// A desktop user visits some hundreds of servers a day. [`SessionStore`](crate::SessionStore)
/// describes what is evicted beyond this limit or the next two.
pub const SERVERS: usize = 2048;

/// Tickets over all origins.
///
/// Most servers send two after a full handshake and one after a resumption.
pub const TICKETS: usize = 4096;

/// Bytes over all tickets: 4 KiB for each.
///
/// A session of OpenSSL is a ticket, some 200 bytes, and the server's certificate: mostly 1-2 kB,
/// or 4-8 kB with ML-DSA.
pub const STORE_BYTES: usize = 16 << 20;

/// Tickets per origin.
///
/// Enough for a page's six simultaneous connections, and some to spare. A server may send tickets
/// without end.
pub const TICKETS_PER_SERVER: usize = 8;

/// Tickets a client asks for after a full handshake (RFC 9149).
///
/// Each costs the server an encryption, and both sides about 250 bytes. OpenSSL's default is two;
/// browsers open six connections to a host, the later of which can mostly wait for tickets of the
/// first.
pub const TICKETS_WANTED: u8 = 4;

/// Maximum size of a ticket in bytes.
///
/// Twice the size of an ML-DSA-87 certificate of 7.5 kB. A server chooses the length of its
/// tickets, up to 64 kB.
pub const TICKET_BYTES_MAX: usize = 16 * 1024;

/// Maximum length in bytes of the application protocols a client offers, with their length bytes.
///
/// A browser's list has 12. The store keeps it with each origin, and a local program chooses it.
pub const ALPN_MAX: usize = 256;

/// Maximum length in bytes of all names of one certificate.
///
/// A hundred names of 40 bytes, as in certificates of content networks. The store keeps them with
/// each origin, and a server chooses them.
pub const NAMES_BYTES_MAX: usize = 4096;

/// Recent tickets recognized, in each of two generations: 8 bytes each, 1 MB in all with a hash
/// table's spare room.
///
/// Ensures that a ticket put twice by mistake is given out once. Larger than the number of tickets
/// held.
pub const RECENT_TICKETS: usize = 1 << 15;

/// Default time after the last full handshake during which sessions can be offered: the maximum
/// life of a Fast Open cookie, since one server gets both.
///
/// Resuming a session does not extend it: otherwise a server could recognize a client that visits
/// every hour for ever (Sy et al., *Tracking Users across the Web via TLS Session Resumption*,
/// 2018).
pub const SESSION_LIFE: Duration = Duration::from_secs(8 * 60 * 60);

/// Maximum of that time in a policy, and maximum lifetime of a ticket (RFC 8446 section 4.6.1).
pub const SESSION_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Lifetime of a TLS 1.2 session if the server gives none (RFC 5246 section F.1.4).
pub const SESSION_LIFE_UNKNOWN: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval at which the store looks for expired tickets and wipes them.
pub const SWEEP: Duration = Duration::from_secs(10);

/// Policies of contexts, over all users.
pub const POLICIES: usize = 4096;

/// Policies of contexts per user, so that 64 users have room.
///
/// A policy is small, but none may be evicted: what it forbids would be allowed again.
pub const POLICIES_PER_USER: usize = 64;

/// Contexts whose last forgetting is known, 16 bytes each.
///
/// Beyond that, everybody's contexts count as forgotten: open connections then bring no tickets.
pub const FORGOTTEN: usize = 1024;

/// Pairs of host and context whose openings are remembered for spares: about 10 kB each with all
/// its [`FOLLOWERS`], 5 MB; most have few.
pub const SPARE_HOSTS: usize = 512;

/// Contexts with a balance of spares, 100 bytes each.
pub const SPARE_CONTEXTS: usize = 512;

/// Spares for one host and context.
///
/// HTTP/1.1 opens up to six connections at once, of which the first is not expected.
pub const SPARES_PER_HOST: usize = 4;

/// Time for which a spare is held unless the server closes it sooner.
///
/// nginx closes a connection without a byte after 60 s by default. Where a server does so sooner,
/// the first spare is in vain, and later ones are held for three quarters of what it lived.
pub const SPARE_HOLD: Duration = Duration::from_secs(45);

/// Least time for which spares are held: a server that closes them sooner gets none.
pub const SPARE_HOLD_MIN: Duration = Duration::from_secs(4);

/// Time without spares for a host that closed them at once or refused one.
pub const SPARE_RETRY: Duration = Duration::from_secs(6 * 60 * 60);

/// Time after which a context with too many spares in vain may try another one.
pub const SPARE_REFILL: Duration = Duration::from_secs(10 * 60);

/// Spares that a context may have in vain before one is used.
pub const SPARE_BALANCE: u8 = 4;

/// Spares that a context may have in vain after many were used, and have open at a time.
pub const SPARE_BALANCE_MAX: u8 = 250;

/// Time within which an opening counts as a consequence of another.
///
/// The hosts of a page are mostly asked within seconds of its own.
pub const FOLLOW: Duration = Duration::from_secs(10);

/// Hosts remembered to follow one.
pub const FOLLOWERS: usize = 16;

/// Openings remembered that others may follow.
pub const RECENT_OPENINGS: usize = 16;
