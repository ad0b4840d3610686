//! Every bound of reading HAR files: they come from anywhere, and may be larger than memory.
//!
//! What is kept of one file takes at most [`ENTRIES`] x 6 kB = 0.3 GB, most of it URLs and scripts
//! of stacks; pages of 100 resources take 0.1 MB.

use std::time::Duration;

/// Bytes of a HAR file, read in one pass: with the content of all answers, a day has some hundred
/// million.
pub const HAR_BYTES: u64 = 4 << 30;

/// Bytes of a string of a HAR file that are read: of a URL only the host counts, and contents do
/// not.
pub const HAR_STRING: usize = 64 << 10;

/// Lists and objects within each other in a HAR file; real ones have ten. Each takes a byte of
/// memory.
pub const HAR_DEPTH: usize = 1 << 20;

/// Entries of a file that become resources; those after them are counted. As many as a page may
/// have.
pub const ENTRIES: usize = crate::page::RESOURCES_MAX;

/// Pages of a file, and names of pages that entries say they are of; further entries are counted.
pub const PAGES: usize = 1024;

/// Bytes of a URL, a page's name or its title that are kept. Servers refuse requests with more than
/// 8 kB.
pub const URL_MAX: usize = 2048;

/// Bytes of the name of a host (RFC 1035 section 2.3.4); what is longer is none.
pub const HOST_MAX: usize = 253;

/// Bytes of the name of a connection; real ones are numbers. What is longer names none.
pub const CONNECTION_MAX: usize = 64;

/// Scripts of the stack of a request that it waits for. The first ones are those that asked for it.
pub const STACK_SCRIPTS: usize = 16;

/// Stacks of asynchronous calls that led to one; Chromium records 32. Below the depth that the JSON
/// reader takes.
pub const STACK_PARENTS: usize = 32;

/// Window before a request in which a response may have triggered it (BLAST, appendix C.2).
pub const TRIGGER_WINDOW: Duration = Duration::from_millis(50);

/// Responses at the same time that may have triggered a request: four times as many as Chromium has
/// sockets.
pub const CANDIDATES: usize = 1024;

/// Time by which a response may seem to end late: HAR files begin requests at whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(2);

/// A page is loaded when nothing was on the wire for so long after its load event (as WebPageTest
/// has it).
pub const QUIET: Duration = Duration::from_secs(2);

/// No time of a page is longer.
pub const LONGEST: Duration = Duration::from_secs(86_400);
