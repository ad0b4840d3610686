//! Every bound of page databases in one place: files come over the network, and are made from
//! recordings of anywhere.
//!
//! A file that is read takes [`BODY_BYTES`] for its columns, [`TEXT_BYTES`] for its names, and its
//! entries: each has at least a byte in the columns and at most about 100 bytes in memory. A
//! hostile file that is signed so takes a few GB at the very worst, one of 10,000 pages about 100
//! MB, most of it for prefetching.

/// Bytes of a file. 10,000 pages with all four databases have about 10 MB.
pub const FILE_BYTES: usize = 32 << 20;

/// Bytes of the columns of a file, uncompressed: three to four times what they are compressed.
pub const BODY_BYTES: usize = 64 << 20;

/// Bytes of the names and paths of a file: front coding makes long names of few bytes, so that
/// [`BODY_BYTES`] does not bound them.
pub const TEXT_BYTES: usize = 256 << 20;

/// Memory that the decoder of zstd may use for its window, as a power of two: 8 MiB, what RFC 8878
/// section 3.1.1.1.2 recommends decoders to support.
pub const WINDOW_LOG: u32 = 23;

/// Pages of a file: ten times those that the size is promised for.
pub const PAGES: usize = 100_000;

/// Hosts of a file. 10,000 pages have about 80,000.
pub const HOSTS: usize = 1 << 20;

/// Entries of one database for one page. The largest published pages have 60 hosts and 430 URLs
/// that come again.
pub const ENTRIES_PER_PAGE: usize = 4096;

/// Redirects of a chain: browsers follow 20 (Fetch, section 4.4).
pub const HOPS: usize = 20;

/// Bytes of a path with its query: most servers and proxies take 8 kB for a whole request line, few
/// URLs that come again have more than 200.
pub const PATH_BYTES: usize = 2048;

/// Bytes of a host name (RFC 1035 section 2.3.4: 255 on the wire, which is 253 in text).
pub const HOST_BYTES: usize = 253;

/// Connections to one server: browsers open 6 with HTTP/1.1.
pub const CONNECTIONS: u8 = 6;

/// Recordings that are learned from: 100 each of 10,000 pages.
pub const RECORDINGS: usize = 1_000_000;

/// Requests of all recordings that are learned from, at 16 bytes: 100 of each of [`RECORDINGS`].
pub const REQUESTS: usize = 100_000_000;

/// Different URLs of all recordings that are learned from, at about 200 bytes each.
pub const URLS: usize = 10_000_000;
