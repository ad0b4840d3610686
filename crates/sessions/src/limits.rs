//! Every bound in one place: its unit, its reason, who could abuse it.
//!
//! Worst case of one jar: [`HOSTS`] x about 1 kB = 1 MB for the entries (names and labels of the
//! greatest length), and 9 MB for the cookies that were spent.

use std::time::Duration;

/// Pairs of host name and context that are remembered.
///
/// When they are all taken, the one not used for longest gives way, of the user that has most: a user
/// with many hosts displaces its own entries first.
pub const HOSTS: usize = 1024;

/// Cookies for one host and context.
///
/// A connection brings two by default, and a page opens six to one host. When they are too many, the
/// one that ends first gives way.
pub const COOKIES_PER_HOST: usize = 8;

/// Spent cookies remembered in each of two generations, 17 bytes each with what a hash table leaves
/// empty: 4.5 MB.
///
/// A generation lasts as long as a cookie may live, 8 h: this is for four and a half openings a second,
/// day and night, and half as many of one user alone ([`SeenCookies`](crate::SeenCookies) says how users
/// share it). When they are too many, no cookie is spent until the generation ends: openings go on without.
pub const SPENT_COOKIES: usize = 1 << 17;

/// Bytes in a label of a context: a user name of SOCKS5 has no more (RFC 1929).
pub const LABEL_MAX: usize = 255;

/// Bytes in a host name (RFC 1035 section 2.3.4).
pub const HOST_MAX: usize = 253;

/// So long before its end a cookie is not given out any more.
///
/// It has to get to the server, whose clock may be ahead by a little; a late one is a cookie shown for
/// nothing.
pub const LAST_MOMENT: Duration = Duration::from_secs(2);
