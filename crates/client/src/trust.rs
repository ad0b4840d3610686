//! Users whose agent is trusted.

use std::env;
use std::fs;

/// Variable that names a user whose agent is trusted, beside this user and root.
const AGENT_UID: &str = "HEADSTART_AGENT_UID";

/// Initial value of kernel.overflowuid.
const OVERFLOW_UID: u32 = 65534;

/// Returns true if a listener of `uid` may be trusted with plain bytes: root, this user, or
/// the one that the environment names.
pub(crate) fn is_trusted(uid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let named = env::var(AGENT_UID).ok().and_then(|uid| uid.parse().ok());
    !is_anyone(uid) && (uid == 0 || uid == own || Some(uid) == named)
}

/// Returns true if the kernel does not know the user: it shows those that do not exist in this user
/// namespace as one (user_namespaces(7)), so not even this user's own number tells them apart.
pub(crate) fn is_anyone(uid: u32) -> bool {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = text.and_then(|uid| uid.trim().parse().ok());
    uid == OVERFLOW_UID || Some(uid) == overflow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_user_and_root_are_trusted_and_the_overflow_uid_is_nobody() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_trusted(0));
        assert_eq!(is_trusted(own), !is_anyone(own));
        assert!(!is_trusted(OVERFLOW_UID));
        assert!(!is_trusted(own.wrapping_add(54_321)));
    }
}
