//! Blame for exchanges that failed: a process that was killed, or the product.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::{Part, Step};

/// Time after an edge is back in which others may still decide on its joins alone (docs/fleet.md:
/// 1 s until a link counts as down, and 5 s until it is tried again).
pub(super) const LINK_BACK: Duration = Duration::from_secs(6);

/// Time after a new ring is in Redis until all edges have it: they look every two seconds, first
/// find that the connection has ended, and then make another. Until then they cannot read each
/// other's route tags, so that joins are not forwarded.
const RING_TAKEN: Duration = Duration::from_secs(6);

/// The path of an exchange, from the one that needs least of the site to the one that needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Way {
    Tcp,
    /// Joins may be forwarded between edges.
    Turbo,
    /// The agent, which opens by TurboTLS where it can.
    Agent,
}

/// An event that is over. Times are in seconds since the load began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::lab) struct Event {
    pub(in crate::lab) event: String,
    pub(in crate::lab) from_s: f64,
    /// End of the time in which what it broke may fail.
    pub(in crate::lab) to_s: f64,
    /// First of the ways that may fail by it; `None` if none may.
    excuses: Option<Way>,
}

impl Event {
    pub(super) fn new(step: Step, from: Duration, to: Duration) -> Self {
        let (excuses, later) = match step {
            Step::Kill(Part::Edge(_)) => (Some(Way::Tcp), LINK_BACK),
            Step::Kill(Part::Origin(_)) => (Some(Way::Tcp), Duration::ZERO),
            Step::Kill(Part::Redis) => (Some(Way::Turbo), RING_TAKEN),
            Step::Kill(Part::Agent) => (Some(Way::Agent), Duration::ZERO),
            _ => (None, Duration::ZERO),
        };
        let (from_s, to_s) = (from.as_secs_f64(), (to + later).as_secs_f64());
        Self { event: step.to_string(), from_s, to_s, excuses }
    }

    /// Returns true if an exchange in this time may have failed by it.
    fn excuses(&self, from: Duration, to: Duration, way: Way) -> bool {
        let overlaps = from.as_secs_f64() <= self.to_s && to.as_secs_f64() >= self.from_s;
        overlaps && self.excuses.is_some_and(|first| way >= first)
    }
}

/// Returns the event that an exchange in this time may have failed by.
pub(super) fn excuse(events: &[Event], from: Duration, to: Duration, way: Way) -> Option<&str> {
    // The last ones are the likeliest.
    let event = events.iter().rev().find(|event| event.excuses(from, to, way))?;
    Some(&event.event)
}

/// Returns true if an error is about content that came and was not what was sent.
pub(super) fn is_wrong(error: &str) -> bool {
    [WRONG, "more than the"].iter().any(|beginning| error.starts_with(beginning))
}

/// Beginning of errors about content.
pub(super) const WRONG: &str = "wrong content";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_excused_by_what_was_killed_under_it_and_by_nothing_else() {
        let at = Duration::from_secs;
        let steps = [
            (Step::Kill(Part::Edge(1)), 10, 12),
            (Step::Kill(Part::Agent), 30, 32),
            (Step::Kill(Part::Redis), 50, 52),
            (Step::Kill(Part::Origin(0)), 70, 72),
            (Step::Certificate, 90, 90),
            (Step::Keys, 100, 100),
            (Step::Udp { blocked: true }, 110, 110),
            (Step::Clock { ahead: true }, 120, 120),
        ];
        let events = steps.map(|(step, from, to)| Event::new(step, at(from), at(to)));
        for (from, to, way, expected) in [
            (8, 9, Way::Agent, None),
            (8, 10, Way::Tcp, Some("edge-2 killed")),
            (11, 13, Way::Turbo, Some("edge-2 killed")),
            (18, 20, Way::Tcp, Some("edge-2 killed")),
            (19, 20, Way::Tcp, None),
            (31, 31, Way::Agent, Some("agent killed")),
            (31, 31, Way::Turbo, None),
            (33, 34, Way::Agent, None),
            (49, 53, Way::Tcp, None),
            (54, 54, Way::Turbo, Some("redis killed")),
            (58, 58, Way::Turbo, Some("redis killed")),
            (59, 60, Way::Agent, None),
            (71, 80, Way::Tcp, Some("origin-1 killed")),
            (73, 80, Way::Agent, None),
            (89, 130, Way::Agent, None),
            (5, 80, Way::Agent, Some("origin-1 killed")),
        ] {
            let found = excuse(&events, at(from), at(to), way);
            assert_eq!(found, expected, "{from} to {to}, {way:?}");
        }
    }

    #[test]
    fn wrong_content_is_told_from_content_that_is_missing() {
        for (error, wrong) in [
            ("wrong content at byte 3", true),
            ("more than the 9 bytes asked for", true),
            ("out of time: the response ended early", false),
            ("status 502", false),
        ] {
            assert_eq!(is_wrong(error), wrong, "{error}");
        }
    }
}
