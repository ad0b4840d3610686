//! The client of a request.

use std::sync::Arc;

use super::proof::Gate;

/// The client of a request.
#[derive(Clone)]
pub(super) struct Caller {
    /// The user, as the kernel says.
    pub(super) user: Option<u32>,
    /// Process that connected, in the agent's own namespace of processes.
    pub(super) process: Option<i32>,
    /// Proof that the connection begins with, on a port that any user can connect to.
    pub(super) gate: Option<Arc<Gate>>,
}
