//! Costs of loading pages, as they are and as they could be.
//!
//! * [`page`]: a page as a tree of resources; [`blast`] and [`cs244`]: such pages as they were
//!   published; [`har`]: as browsers record them.
//! * [`tree`]: how its resources hang together, and where the time of a recorded load went.
//! * [`sim`]: what loading it takes, in simulated time.
//! * [`plan`]: what each technique would save on a page, and what the page waits for.
//! * [`devtools`]: HAR files of what Chromium's DevTools protocol says of a load.
//! * [`db`]: what many recordings of pages tell a browser before it asks.
//! * [`policy`]: what databases should say of a page, as it wins on loads that were held out.
//! * [`hits`]: how much of loads the others of their page tell, load by load.
//! * [`statistics`]: how values hang together, and how far simulated times are from measured ones.
//! * [`sharing`]: how many full TLS handshakes of a recording a shared session store would have
//!   saved.
//!
//! Nothing here opens a file or a socket: recordings come in through [`Read`](std::io::Read).
#![forbid(unsafe_code)]

pub mod blast;
pub mod cs244;
pub mod db;
pub mod devtools;
pub mod har;
pub mod hits;
mod input;
pub mod page;
pub mod plan;
pub mod policy;
mod printable;
pub mod sharing;
pub mod sim;
pub mod statistics;
pub mod tree;

pub use printable::printable;
