//! The clock that measures the age of a session.

/// Returns milliseconds since boot, including sleep.
pub(super) fn now() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds * 1000 + u64::try_from(time.tv_nsec).ok()? / 1_000_000)
}
