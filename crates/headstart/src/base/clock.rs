//! The wall clock, and that of the processor.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the system's clock.
pub fn wall_clock() -> UnixSeconds {
    // Treats a clock before 1970 as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

/// Returns the processor time that this thread has used.
pub fn thread_time() -> Duration {
    // The kernel's times are not negative.
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
