//! Every bound of reading HAR files: they come from anywhere, and may be larger than memory.
//!
//! What is kept of one file takes at most [`ENTRIES`] x 6 kB = 0.3 GB, most of it URLs and scripts
//! of stacks; pages of 100 resources take 0.1 MB.

use std::time::Duration;

/// Maximum bytes of a HAR file, read in one pass: a day of browsing with the content of all
/// responses has some hundred million.
pub const HAR_BYTES: u64 = 4 << 30;

/// Maximum bytes read of a string: only the host of a URL counts, and contents do not.
pub const HAR_STRING: usize = 64 << 10;

/// Maximum nesting of lists and objects; real files have ten. Each level takes a byte of memory.
pub const HAR_DEPTH: usize = 1 << 20;

/// Maximum entries of a file that become resources; further ones are counted. As many as a page may
/// have.
pub const ENTRIES: usize = crate::page::RESOURCES_MAX;

/// Maximum pages of a file, and names of pages that entries refer to; further entries are counted.
pub const PAGES: usize = 1024;

/// Maximum bytes kept of a URL, and of a page's name or title. Servers refuse requests of more than
/// 8 kB.
pub const URL_MAX: usize = 2048;

/// Maximum bytes of a host name (RFC 1035 section 2.3.4); longer ones are invalid.
pub const HOST_MAX: usize = 253;

/// Maximum bytes of a connection's name; real ones are numbers. Longer ones are ignored.
pub const CONNECTION_MAX: usize = 64;

/// Maximum scripts of a request's stack that it waits for, the innermost first.
pub const STACK_SCRIPTS: usize = 16;

/// Maximum asynchronous stacks that led to one; Chromium records 32. Below the depth that the JSON
/// reader accepts.
pub const STACK_PARENTS: usize = 32;

/// Window before a request in which a response may have triggered it (BLAST, appendix C.2).
pub const TRIGGER_WINDOW: Duration = Duration::from_millis(50);

/// Maximum simultaneous responses that may have triggered a request: four times as many as Chromium
/// has sockets.
pub const CANDIDATES: usize = 1024;

/// Time by which a response may seem to end late: HAR files start requests at whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(2);

/// Quiet time on the wire after the load event, after which a page counts as loaded (as in
/// WebPageTest).
pub const QUIET: Duration = Duration::from_secs(2);

/// Maximum time of a page.
pub const LONGEST: Duration = Duration::from_secs(86_400);
