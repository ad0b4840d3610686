//! Time that the means themselves take on the client.

use std::time::Duration;

use super::super::events::{Instant, nanos};
use super::Delivery;
use super::client::Run;

/// Time that an agent and an extension take; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Time that an agent and an edge that passes TLS on add to an opening.
    pub agent: Duration,
    /// Time that an agent and an edge that speaks TLS itself, for early data, add to an opening.
    pub early_data: Duration,
    /// Time that an extension adds to each request.
    pub extension: Duration,
}

impl Overhead {
    /// Overhead that was measured: first loads of a shop over 50 ms, lab run `browser` of
    /// 2026-11-22.
    ///
    /// TCP as Chromium sees it takes 10 ms through an agent (with `turbotls`, mean of 28
    /// connections), where nothing has to cross the link; a first answer through an edge that
    /// speaks TLS comes 75 ms sooner than one after TLS, instead of two round trips; and with the
    /// extension a request takes 5 ms longer, by which the loads with `redirect-db` took longer
    /// than simulated.
    pub const MEASURED: Self = Self {
        agent: Duration::from_millis(10),
        early_data: Duration::from_millis(25),
        extension: Duration::from_millis(5),
    };
}

impl Run<'_> {
    /// Returns the time that an agent adds to an opening.
    pub(super) fn agent(&self) -> Instant {
        let techniques = &self.techniques;
        let has_agent = techniques.turbo_tls || techniques.fast_open_privacy;
        let overhead = &self.settings.overhead;
        nanos(match techniques.zero_rtt {
            true => overhead.early_data,
            false if has_agent => overhead.agent,
            false => Duration::ZERO,
        })
    }

    /// Returns the time that an extension adds to a request.
    pub(super) fn extension(&self) -> Instant {
        let is_by_extension = self.settings.delivery == Delivery::Document
            && (self.techniques.redirect_database || self.techniques.server_database);
        nanos(if is_by_extension { self.settings.overhead.extension } else { Duration::ZERO })
    }
}
