//! Users whose agent is trusted: it can be any server to the programs that ask it.

use std::fs;
use std::sync::OnceLock;

use rustix::process::geteuid;

/// Variable that names a user whose agent is trusted, beside this user and root.
pub const AGENT_UID: &str = "HEADSTART_AGENT_UID";

/// Initial value of kernel.overflowuid.
const OVERFLOW_UID: u32 = 65534;

/// Returns true if a listener of `user` may be taken for the agent: root, this user, and the one
/// that is `named`.
#[must_use]
pub fn is_trusted(user: u32, named: Option<u32>) -> bool {
    !is_anyone(user) && (user == 0 || user == geteuid().as_raw() || Some(user) == named)
}

/// Returns true if the kernel does not know the user: it shows those that do not exist in this user
/// namespace as one (user_namespaces(7)), so not even this user's own number tells them apart.
#[must_use]
pub fn is_anyone(user: u32) -> bool {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    let overflow = OVERFLOW.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        text.trim().parse().ok()
    });
    user == OVERFLOW_UID || Some(user) == *overflow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_are_root_this_user_and_the_one_named_but_no_unknown_one() {
        let own = geteuid().as_raw();
        assert!(is_trusted(0, None) && is_trusted(own, None) != is_anyone(own));
        assert!(!is_trusted(own + 54_321, None) && is_trusted(own + 54_321, Some(own + 54_321)));
        assert!(!is_trusted(OVERFLOW_UID, None) && !is_trusted(OVERFLOW_UID, Some(OVERFLOW_UID)));
    }
}
