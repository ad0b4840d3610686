//! Users whose agent is trusted: it can be any server to the programs that ask it.

use headstart_net::is_anyone;
use rustix::process::geteuid;

/// Variable that names a user whose agent is trusted, beside this user and root.
pub const AGENT_UID: &str = "HEADSTART_AGENT_UID";

/// Returns true if a listener of `user` may be taken for the agent: root, this user, and the one
/// that is `named`.
#[must_use]
pub fn is_trusted(user: u32, named: Option<u32>) -> bool {
    !is_anyone(user) && (user == 0 || user == geteuid().as_raw() || Some(user) == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_are_root_this_user_and_the_one_named_but_no_unknown_one() {
        let own = geteuid().as_raw();
        assert!(is_trusted(0, None) && is_trusted(own, None) != is_anyone(own));
        assert!(!is_trusted(own + 54_321, None) && is_trusted(own + 54_321, Some(own + 54_321)));
        assert!(!is_trusted(65534, None) && !is_trusted(65534, Some(65534)), "kernel.overflowuid");
    }
}
