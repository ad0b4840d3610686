//! What loading pages costs, and what it could cost.
//!
//! * [`sharing`]: how many full TLS handshakes of a recording a shared session store would have saved.
//!
//! Nothing here opens a file or a socket: recordings come in through [`Read`](std::io::Read).
#![forbid(unsafe_code)]

pub mod sharing;
