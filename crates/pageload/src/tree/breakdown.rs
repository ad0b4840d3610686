use std::time::Duration;

use serde::Serialize;

use crate::page::{Page, Timings};

/// Time by the categories of BLAST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Breakdown {
    /// Time until there was a connection, or one was begun.
    #[serde(serialize_with = "as_ms")]
    pub queue: Duration,
    /// Time of TLS handshakes.
    #[serde(serialize_with = "as_ms")]
    pub tls: Duration,
    /// Time from the end of the request to the first byte of the response: a round trip, and the
    /// server's own time.
    #[serde(serialize_with = "as_ms")]
    pub server_wait: Duration,
    /// Time from the first byte of the response to the last.
    #[serde(serialize_with = "as_ms")]
    pub transfer: Duration,
    /// DNS, TCP, sending, and the client's own time for documents and scripts.
    #[serde(serialize_with = "as_ms")]
    pub other: Duration,
}

fn as_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

impl Breakdown {
    /// Splits the time of one resource, from its request to its last byte.
    pub fn from_timings(timings: &Timings) -> Self {
        Self::of_the_first(timings, Duration::MAX)
    }

    /// Splits the first `time` after the request.
    pub(crate) fn of_the_first(timings: &Timings, mut time: Duration) -> Self {
        let parts = [
            timings.queued,
            timings.dns,
            timings.connect,
            timings.tls,
            timings.send,
            timings.wait,
            timings.receive,
        ];
        let [queue, dns, connect, tls, send, server_wait, transfer] = parts.map(|part| {
            let taken = part.min(time);
            time -= taken;
            taken
        });
        let other = send.saturating_add(dns).saturating_add(connect);
        Self { queue, tls, server_wait, transfer, other }
    }

    /// Returns the sum over all measured resources: more than the load took, as they overlap.
    pub fn of_all(page: &Page) -> Self {
        let all = page.resources().iter().filter_map(|resource| resource.measured.as_ref());
        all.map(Self::from_timings).fold(Self::default(), Self::plus)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            queue: self.queue.saturating_add(more.queue),
            tls: self.tls.saturating_add(more.tls),
            server_wait: self.server_wait.saturating_add(more.server_wait),
            transfer: self.transfer.saturating_add(more.transfer),
            other: self.other.saturating_add(more.other),
        }
    }

    /// Returns the total.
    pub fn total(&self) -> Duration {
        self.parts().into_iter().fold(Duration::ZERO, |sum, (_, part)| sum.saturating_add(part))
    }

    /// Returns the parts, named by their categories.
    pub fn parts(&self) -> [(&'static str, Duration); 5] {
        [
            ("queue", self.queue),
            ("TLS", self.tls),
            ("server wait", self.server_wait),
            ("transfer", self.transfer),
            ("other", self.other),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_part_has_its_category() {
        let timings = Timings {
            started: ms(1000),
            queued: ms(1),
            dns: ms(2),
            connect: ms(4),
            tls: ms(8),
            send: ms(16),
            wait: ms(32),
            receive: ms(64),
        };
        let all = Breakdown::from_timings(&timings);
        assert_eq!(all.parts().map(|(_, part)| part), [1, 8, 32, 64, 22].map(ms));
        let first = Breakdown::of_the_first(&timings, ms(20));
        assert_eq!(first.parts().map(|(_, part)| part), [1, 8, 0, 0, 11].map(ms));
    }

    proptest! {
        #[test]
        fn parts_add_up(parts in prop::array::uniform7(0_u64..1000), time in 0_u64..8000) {
            let [queued, dns, connect, tls, send, wait, receive] = parts.map(ms);
            let started = ms(5);
            let timings = Timings { started, queued, dns, connect, tls, send, wait, receive };
            let all = ms(parts.iter().sum());
            prop_assert_eq!(Breakdown::from_timings(&timings).total(), all);
            prop_assert_eq!(Breakdown::of_the_first(&timings, ms(time)).total(), all.min(ms(time)));
        }
    }
}
