use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headstart_net::{BootClock, Context};
use headstart_sessions::{Counts, SessionStore, Sharing};

/// State of the agent about all connections that it spoke TLS on, for as long as it runs; reloads
/// change nothing.
pub(in crate::agent) struct AgentState {
    store: Mutex<SessionStore>,
    /// Sessions end while a laptop sleeps, too.
    clock: BootClock,
}

impl Default for AgentState {
    fn default() -> Self {
        Self { store: Mutex::default(), clock: BootClock::start() }
    }
}

impl AgentState {
    /// The sessions.
    pub(super) fn store(&self) -> MutexGuard<'_, SessionStore> {
        // A panic leaves the store consistent, as it completes each change.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time by which sessions live.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the context whose Fast Open cookies a connection that passes unchanged may spend:
    /// nobody's, where the policy isolates each connection.
    pub(in crate::agent) fn context_of_cookies(&self, context: &Context) -> Context {
        match self.store().policy(context).sharing {
            Sharing::Isolate => Context::UNKNOWN,
            Sharing::Share | Sharing::ShareCertificate | Sharing::Off => context.clone(),
        }
    }

    /// Wipes what is over, and says what there is.
    pub(in crate::agent) fn tidy(&self) -> Counts {
        let now = self.now();
        let mut store = self.store();
        store.expire(now);
        store.counts()
    }
}

impl fmt::Debug for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("counts", &self.store().counts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headstart_sessions::Policy;

    use super::*;

    #[test]
    fn an_isolated_context_spends_nobodys_cookies() {
        let (known, context) = (AgentState::default(), Context::user(1));
        assert_eq!(known.context_of_cookies(&context), context);
        let isolated = Policy { sharing: Sharing::Isolate, ..Policy::default() };
        known.store().set_policy(&context, Some(isolated)).unwrap();
        assert_eq!(known.context_of_cookies(&context), Context::UNKNOWN);
        assert_eq!(known.context_of_cookies(&Context::user(2)), Context::user(2));
    }

    #[test]
    fn what_is_over_is_wiped_without_anybody_asking() {
        let known = AgentState::default();
        assert_eq!(known.tidy(), Counts::default());
        assert!(known.now().elapsed() < Duration::from_secs(3600));
    }
}
