//! State of each origin: whether the last connection to it succeeded.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::clock::wall_clock;
use crate::base::value::HostPort;
use crate::metrics;

/// States of the origins; reloads share them.
#[derive(Debug, Default)]
pub(super) struct OriginStates(Mutex<HashMap<HostPort, OriginState>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginState {
    /// True if the last connection succeeded; `None` before the first one.
    up: Option<bool>,
    /// Seconds since 1970.
    since: u64,
}

impl OriginState {
    fn now(up: Option<bool>) -> Self {
        Self { up, since: wall_clock().0 }
    }

    /// Returns it in a word.
    pub(super) const fn name(self) -> &'static str {
        match self.up {
            Some(true) => "up",
            Some(false) => "down",
            None => "unknown",
        }
    }

    /// Returns when it began, in seconds since 1970.
    pub(super) fn since(self) -> i64 {
        i64::try_from(self.since).unwrap_or(i64::MAX)
    }
}

impl OriginStates {
    /// Keeps the states of these `origins` alone, and shows them in the metrics.
    pub(super) fn show<'a>(&self, origins: impl Iterator<Item = &'a HostPort>) {
        let mut states = self.lock();
        let mut before = std::mem::take(&mut *states);
        for origin in origins {
            let state = before.remove(origin);
            let state = *states
                .entry(origin.clone())
                .or_insert_with(|| state.unwrap_or_else(|| OriginState::now(None)));
            metrics::origin(origin, state.up);
        }
        before.keys().filter(|gone| !states.contains_key(gone)).for_each(|gone| {
            metrics::origin(gone, None);
        });
        count(&states);
    }

    /// Notes that a connection to `origin` has succeeded, or not.
    pub(super) fn note(&self, origin: &HostPort, up: bool) {
        let mut states = self.lock();
        // A reload may have removed it.
        let Some(state) = states.get_mut(origin).filter(|state| state.up != Some(up)) else {
            return;
        };
        *state = OriginState::now(Some(up));
        metrics::origin(origin, Some(up));
        count(&states);
    }

    /// Returns the state of `origin`, if it is one.
    pub(super) fn find(&self, origin: &HostPort) -> Option<OriginState> {
        self.lock().get(origin).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HostPort, OriginState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(states: &HashMap<HostPort, OriginState>) {
    let [up, down] =
        [true, false].map(|up| states.values().filter(|state| state.up == Some(up)).count());
    metrics::origins(up, down);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(states: &OriginStates, origins: [&HostPort; 2]) -> [Option<&'static str>; 2] {
        origins.map(|origin| states.find(origin).map(OriginState::name))
    }

    #[test]
    fn a_reload_keeps_the_states_of_origins_that_stay() {
        let [stays, goes]: [HostPort; 2] = ["a:1", "b:1"].map(|origin| origin.parse().unwrap());
        let states = OriginStates::default();
        states.show([&stays, &stays, &goes].into_iter());
        assert_eq!(names(&states, [&stays, &goes]), [Some("unknown"); 2]);
        states.note(&stays, false);
        states.note(&goes, true);
        assert_eq!(names(&states, [&stays, &goes]), [Some("down"), Some("up")]);
        states.show([&stays].into_iter());
        states.note(&goes, true);
        assert_eq!(names(&states, [&stays, &goes]), [Some("down"), None]);
    }
}
