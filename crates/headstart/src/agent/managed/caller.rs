//! The client of a request.

use std::sync::Arc;

use super::token::Token;

/// The client of a request.
#[derive(Clone)]
pub(super) struct Caller {
    /// The user, as the kernel says.
    pub(super) user: Option<u32>,
    /// Process that connected, in the agent's own namespace of processes.
    pub(super) process: Option<i32>,
    /// Token that the client has to show first, on a port that anybody can connect to.
    pub(super) token: Option<Arc<Token>>,
}
