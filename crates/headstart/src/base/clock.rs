//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;

/// Returns the time of the system's clock.
pub fn wall_clock() -> UnixSeconds {
    // Treats a clock before 1970 as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}
