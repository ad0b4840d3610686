//! Every bound in one place: its unit, its reason, who could abuse it.
//!
//! Worst case of one jar: [`HOSTS`] x about 1 kB = 1 MB for the entries (names and labels of the
//! greatest length), and 9 MB for the cookies that were spent.
//!
//! Worst case of one store, 30 MB: [`STORE_BYTES`] of tickets, 3 MB for their origins (names,
//! labels and protocols of the greatest length) and 8 MB more if all of these are certificates with
//! as many names as there may be, 1.5 MB of policies, and 1 MB to know tickets again.

use std::time::Duration;

/// Pairs of host name and context that are remembered.
///
/// When they are all taken, the one not used for longest gives way, of the user that has most: a
/// user with many hosts displaces its own entries first.
pub const HOSTS: usize = 1024;

/// Cookies for one host and context.
///
/// A connection brings two by default, and a page opens six to one host. When they are too many,
/// the one that ends first gives way.
pub const COOKIES_PER_HOST: usize = 8;

/// Spent cookies remembered in each of two generations, 17 bytes each with what a hash table leaves
/// empty: 4.5 MB.
///
/// A generation lasts as long as a cookie may live, 8 h: this is for four and a half openings a
/// second, day and night, and half as many of one user alone ([`SeenCookies`](crate::SeenCookies)
/// says how users share it). When they are too many, no cookie is spent until the generation ends:
/// openings go on without.
pub const SPENT_COOKIES: usize = 1 << 17;

/// Bytes in a label of a context: a user name of SOCKS5 has no more (RFC 1929).
pub const LABEL_MAX: usize = 255;

/// Bytes in a host name (RFC 1035 section 2.3.4).
pub const HOST_MAX: usize = 253;

/// So long before its end a cookie is not given out any more.
///
/// It has to get to the server, whose clock may be ahead by a little; a late one is a cookie shown
/// for nothing.
pub const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Origins that tickets are kept for: pairs of server and context, mostly.
///
/// A user of a desktop visits some hundreds of servers a day. [`SessionStore`](crate::SessionStore)
/// says what gives way where there are more of this, or of the next two.
pub const SERVERS: usize = 2048;

/// Tickets of all origins.
///
/// Most servers send two after a full handshake and one after a resumption.
pub const TICKETS: usize = 4096;

/// Bytes of all tickets: 4 KiB for each.
///
/// A session of OpenSSL is a ticket, some 200 bytes, and the server's certificate: mostly 1-2 kB,
/// 4-8 kB with ML-DSA.
pub const STORE_BYTES: usize = 16 << 20;

/// Tickets of one origin.
///
/// For six connections of a page at once and some to spare. A server may send tickets without end.
pub const TICKETS_PER_SERVER: usize = 8;

/// Tickets that a client asks for after a full handshake (RFC 9149).
///
/// Each costs the server an encryption and both some 250 bytes. OpenSSL's default is two; browsers
/// open six connections to a host, of which the later ones mostly can wait for tickets of the
/// first.
pub const TICKETS_WANTED: u8 = 4;

/// Bytes of one ticket.
///
/// A certificate of ML-DSA-87 with its 7.5 kB fits twice. A server decides about the length of its
/// tickets, up to 64 kB.
pub const TICKET_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the application protocols that a client offers, with their lengths.
///
/// That of browsers has 12. They are kept with each origin, and a local program chooses them.
pub const ALPN_MAX: usize = 256;

/// Bytes of all names of one certificate.
///
/// A hundred names of 40 bytes, as certificates of content networks have. They are kept with each
/// origin, and a server chooses them.
pub const NAMES_BYTES_MAX: usize = 4096;

/// Tickets that came last, in each of two generations, of which it is known that they did: 8 bytes
/// each with what a hash table leaves empty, 1 MB together.
///
/// So that a ticket that is put twice by mistake is given once. More than there can be at a time.
pub const RECENT_TICKETS: usize = 1 << 15;

/// For how long sessions can be offered after the last full handshake, unless the policy says
/// otherwise: as long as a Fast Open cookie may live at most, since one server gets both.
///
/// It counts for all that came of resuming the same session: otherwise a server could tell a client
/// that visits it every hour for ever (Sy et al., *Tracking Users across the Web via TLS Session
/// Resumption*, 2018).
pub const SESSION_LIFE: Duration = Duration::from_secs(8 * 60 * 60);

/// The longest such time that a policy may have, and the longest life of a ticket (RFC 8446 section
/// 4.6.1).
pub const SESSION_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Life of a TLS 1.2 session if the server does not tell (RFC 5246 section F.1.4).
pub const SESSION_LIFE_UNKNOWN: Duration = Duration::from_secs(24 * 60 * 60);

/// After so long, tickets that are over are looked for and wiped.
pub const SWEEP: Duration = Duration::from_secs(10);

/// Policies of contexts, of all users.
pub const POLICIES: usize = 4096;

/// Policies of contexts of one user, so that 64 users have room.
///
/// A policy is small, but none may give way: what it forbids would be allowed again.
pub const POLICIES_PER_USER: usize = 64;

/// Contexts of which it is known when they were last forgotten, 16 bytes each.
///
/// A user that forgets more has all of them taken for forgotten, everybody's: connections that are
/// open then bring no tickets.
pub const FORGOTTEN: usize = 1024;
