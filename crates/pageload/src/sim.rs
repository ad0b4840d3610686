//! Time of loading a page, simulated.
//!
//! [`blast`] has the rules of the simulator that was published with BLAST (Wang 2020), to the
//! letter: what it says can be compared with what that one said ([`published`]). [`tcp`] has the
//! network as it is; [`browser`] tells it what recordings know of the browser. [`profile`] asks
//! either of them in one way.

pub mod blast;
pub mod browser;
mod events;
pub mod profile;
pub mod published;
pub mod tcp;
mod triggers;

use std::time::Duration;

use crate::page::Page;

/// Times of a resource, since the load began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time at which the client knew that it needs the resource.
    pub created: Duration,
    /// Time at which the request was written to a connection.
    pub sent: Duration,
    /// Time of the first byte of the response.
    pub first: Duration,
    /// Time of the last byte.
    pub last: Duration,
}

/// One simulated load of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Times of each of the page's resources, in their order.
    pub resources: Vec<Times>,
    /// Number of TCP connections opened.
    pub connections: u32,
    /// Number of TLS handshakes.
    pub handshakes: u32,
    /// Number of these that resumed a session. [`blast`] has none.
    pub resumptions: u32,
    /// Sum of the round trips before each connection accepted its first request. [`blast`] does not
    /// count them.
    pub round_trips: u32,
    /// Estimated time of the largest contentful paint, where recorded. [`blast`] has none.
    pub largest_paint: Option<Duration>,
    /// Estimated time of the load event, where recorded. [`blast`] has none.
    pub on_load: Option<Duration>,
}

impl Load {
    /// Returns the time until 95 % of the resources are loaded: the definition of BLAST, section
    /// 3.3. Zero without resources.
    pub fn page_load_time(&self) -> Duration {
        let mut ends: Vec<Duration> = self.resources.iter().map(|times| times.last).collect();
        ends.sort_unstable();
        let begin = self.resources.iter().map(|times| times.created).min();
        let end = ends.get(ends.len() * 95 / 100).copied();
        end.unwrap_or_default().saturating_sub(begin.unwrap_or_default())
    }

    /// Estimates the events of the `page` that was loaded.
    fn estimate_events(&mut self, page: &Page) {
        let recorded = page.recorded();
        self.largest_paint = recorded.largest_paint.and_then(|at| self.event(page, at));
        self.on_load = recorded.on_load.and_then(|at| self.event(page, at));
    }

    /// Returns the time of an event that the recording has `at`: when all has arrived that had
    /// arrived by then in the recording, and as much later as there. An upper bound, since an event
    /// need not have waited for all of these.
    fn event(&self, page: &Page, at: Duration) -> Option<Duration> {
        let both = page.resources().iter().zip(&self.resources);
        let there = both.filter_map(|(resource, times)| {
            let end = resource.measured?.end();
            (end <= at).then_some((end, times.last))
        });
        let (recorded, simulated) =
            there.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
        let begin = self.resources.iter().map(|times| times.created).min()?;
        Some(simulated.saturating_sub(begin).saturating_add(at.saturating_sub(recorded)))
    }

    /// Returns the time until all resources are loaded. Zero without resources.
    pub fn full_load_time(&self) -> Duration {
        let begin = self.resources.iter().map(|times| times.created).min();
        let end = self.resources.iter().map(|times| times.last).max();
        end.unwrap_or_default().saturating_sub(begin.unwrap_or_default())
    }

    /// Returns the mean time from when a resource was known to be needed until it was loaded. Zero
    /// without resources.
    pub fn mean_resource_time(&self) -> Duration {
        let total: Duration =
            self.resources.iter().map(|times| times.last.saturating_sub(times.created)).sum();
        u32::try_from(self.resources.len())
            .ok()
            .and_then(|count| total.checked_div(count))
            .unwrap_or_default()
    }
}
