//! State that the machines of a site share through Redis: the key ring, and the replay cache of
//! early data.
//!
//! Redis is trusted with neither: the ring is sealed there, and whatever is wrong with it (away,
//! slow, malformed, older than before) leaves the keys at hand in use and refuses early data.
//! `docs/fleet.md` has the table.
//!
//! `redis` speaks with it, within bounds; `ring` keeps the keys up to date; `filter` asks about
//! early data.

mod clock;
pub(crate) mod filter;
mod guard;
pub(crate) mod redis;
pub(crate) mod ring;
pub mod storage;

use std::path::Path;

use headstart_tls::keyring::Fleet;

use crate::base::failure::Failure;

/// The fleet that a file describes.
pub(crate) fn load(path: &Path) -> Result<Fleet, Failure> {
    Fleet::load(path).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
}
