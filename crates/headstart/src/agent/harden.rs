//! Protection of the agent's memory, which holds the sessions of all programs.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Switches core dumps off, and reading this process by others of the same user (ptrace,
/// /proc/PID/mem).
///
/// Not being dumpable is also what keeps dumps from a handler such as systemd-coredump, which the
/// limit does not (core(5)). What the system refuses is only logged: the agent is of use without.
pub(super) fn harden() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other programs of this user may read the agent's memory");
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "cannot switch core dumps off");
    }
}
