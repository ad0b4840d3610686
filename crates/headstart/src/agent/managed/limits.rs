//! Every bound of the socket in one place: its unit, its reason, who could abuse it. All of it is
//! for programs of this machine, which may be hostile; servers are bounded in headstart-net, -tls
//! and -sessions.

use std::time::Duration;

/// Bytes of a request's head: early data of [`EARLY_DATA_MAX`] bytes in base64, and 10 kB beside
/// it.
pub(super) const HEAD_MAX: usize = 32 * 1024;

/// Fields of a request's head. Programs send a dozen.
pub(super) const FIELDS_MAX: usize = 64;

/// Bytes of early data: what TurboTLS can carry of it (docs/draft-headstart-turbotls.md#constants),
/// and servers mostly allow.
pub(super) const EARLY_DATA_MAX: usize = 16 * 1024;

/// Bytes of the body of a policy: some hundred, and spaces.
pub(super) const BODY_MAX: usize = 4 * 1024;

/// Time that a client may say nothing, and that its request may take from then on, body and all: it
/// is a few hundred bytes from this machine.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Time that a client may take to read an answer: a list of all sessions has some 500 kB.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Bytes of a file of roots: those of a distribution or of Mozilla have 200 to 300 kB.
pub(super) const ROOTS_MAX: u64 = 1024 * 1024;

/// Files of roots of one user that are in use or ready for it, some 5 MB each if they are as long
/// as they may be.
///
/// Programs of a user have a handful. While all of these are in use, the user gets no more.
pub(super) const ROOTS_OF_USER: usize = 8;

/// Plain bytes copied at a time, either way: two records, as many as TLS reads from the network at
/// a time.
pub(super) const PIECE: usize = 32 * 1024;
