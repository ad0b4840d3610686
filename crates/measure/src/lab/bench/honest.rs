//! Honest clients beside an attack: exchanges that begin at a steady rate, however long others
//! take.
//!
//! Clients that wait for one exchange before the next begin fewer of them while a server is slow,
//! and so hide how slow it was from percentiles.

use std::io;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::web::Way;
use super::work::{Place, Work, timed};
use crate::stats::{P99_LEAST, Summary};

/// Time after which an exchange has failed: a browser's user has gone.
const LIMIT: Duration = Duration::from_secs(5);

/// Consecutive exchanges whose median shows that a server is as quick as before, and the largest
/// ratio to the median of before.
const IN_A_ROW: usize = 20;
const AS_BEFORE: f64 = 1.5;

/// Longest wait for them, and the interval at which they are looked for.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Clients at work, each with a connection and handshake of its own.
pub(super) struct Honest {
    pub(super) work: Work,
    pub(super) log: Log,
}

/// Exchanges that are over.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Exchange>>>);

#[derive(Clone, Copy, Debug)]
struct Exchange {
    number: u64,
    begun: Instant,
    /// Infinite if it failed.
    ms: f64,
}

impl Exchange {
    /// Returns true if it came through before `to`.
    fn is_over(&self, to: Instant) -> bool {
        Duration::try_from_secs_f64(self.ms / 1e3).is_ok_and(|took| self.begun + took < to)
    }
}

/// Rate of exchanges that began and came through in some time; and times of all that began in it,
/// in ms, infinite where those failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) per_s: f64,
    pub(super) p50: f64,
    /// The longest, of fewer than a hundred.
    pub(super) p99: f64,
}

impl Times {
    /// Times without any exchange.
    pub(super) const NEVER: Self = Self { per_s: 0.0, p50: f64::INFINITY, p99: f64::INFINITY };
}

impl Honest {
    /// Starts honest clients, with `rate` exchanges a second.
    pub(super) fn start(place: Place<'_>, way: &Way, rate: NonZeroU16) -> io::Result<Self> {
        let (log, way) = (Log::default(), way.clone());
        let all = log.clone();
        let work = Work::start(place, 1, move |shared| {
            let (way, log) = (way.clone(), all.clone());
            async move {
                let mut ticks =
                    tokio::time::interval(Duration::from_secs(1) / u32::from(rate.get()));
                let mut running = JoinSet::new();
                let mut number = 0;
                while !shared.is_over() {
                    ticks.tick().await;
                    while running.try_join_next().is_some() {}
                    let (way, log, shared) = (way.clone(), log.clone(), Arc::clone(&shared));
                    number += 1;
                    running.spawn(async move {
                        let begun = Instant::now();
                        let trial = timed(LIMIT, way.exchange(false)).await;
                        let ms = trial.ms_to_last_response_byte.unwrap_or(f64::INFINITY);
                        log.with(|log| log.push(Exchange { number, begun, ms }));
                        shared.add(trial);
                    });
                }
                running.join_all().await;
                Ok(())
            }
        })?;
        Ok(Self { work, log })
    }

    /// Waits until exchanges that begin after `end` take about `p50` ms again. Returns after how
    /// long they do, or the longest time that is waited.
    pub(super) fn recovery(&self, end: Instant, p50: f64) -> Duration {
        loop {
            if let Some(at) = self.log.with(|log| recovered(log, end, p50)) {
                return at - end;
            }
            if end.elapsed() >= RECOVERY_MAX {
                return RECOVERY_MAX;
            }
            thread::sleep(LOOK);
        }
    }
}

impl Log {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Exchange>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the times of exchanges that began in this time and are over; `None` without any.
    pub(super) fn times(&self, from: Instant, to: Instant) -> Option<Times> {
        let began: Vec<_> = self.with(|log| {
            log.iter().filter(|one| (from..to).contains(&one.begun)).copied().collect()
        });
        let all: Vec<_> = began.iter().map(|one| one.ms).collect();
        let summary = Summary::from_samples(&all)?;
        let p99 = if all.len() < P99_LEAST { summary.max } else { summary.p99 };
        let [p50, p99] = [summary.p50, p99].map(|ms| ms.unwrap_or(f64::INFINITY));
        let done = began.iter().filter(|one| one.is_over(to)).count();
        Some(Times { per_s: done as f64 / (to - from).as_secs_f64(), p50, p99 })
    }
}

/// Finds when the first exchanges in a row began that are as quick as before.
fn recovered(log: &[Exchange], end: Instant, p50: f64) -> Option<Instant> {
    let mut after: Vec<_> = log.iter().filter(|one| one.begun >= end).collect();
    after.sort_by_key(|one| one.number);
    after.windows(IN_A_ROW).find_map(|row| {
        let (first, last) = (row.first()?, row.last()?);
        // None between them goes on.
        let is_whole = last.number - first.number == IN_A_ROW as u64 - 1;
        let times: Vec<_> = row.iter().map(|one| one.ms).collect();
        let median = Summary::from_samples(&times)?.p50?;
        (is_whole && median <= AS_BEFORE * p50).then_some(first.begun)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(begun: Instant, number: u64, ms: f64) -> Exchange {
        Exchange { number, begun: begun + Duration::from_millis(10 * number), ms }
    }

    #[test]
    fn a_server_has_recovered_once_exchanges_in_a_row_are_as_quick_as_before() {
        let begun = Instant::now();
        let end = begun + Duration::from_millis(100);
        // Slow until the 25th, and one slow one in between says nothing.
        let ms = |number| if number < 25 || number == 30 { 50.0 } else { 1.0 };
        let mut log: Vec<_> = (0..60).map(|number| exchange(begun, number, ms(number))).collect();
        let at = recovered(&log, end, 1.0).unwrap();
        assert_eq!(at - begun, Duration::from_millis(160), "half of a row is quick");
        assert_eq!(recovered(&log, end, 0.5), None);
        // One of each row goes on.
        log.retain(|one| one.number % 15 > 0);
        assert_eq!(recovered(&log, end, 1.0), None);
    }

    #[test]
    fn exchanges_count_that_began_and_came_through_in_time() {
        let begun = Instant::now();
        let log = Log::default();
        log.with(|log| log.extend((0..50).map(|number| exchange(begun, number, 2.0))));
        let upto = |ms| begun + Duration::from_millis(ms);
        let times = log.times(begun, upto(500)).unwrap();
        assert_eq!((times.per_s, times.p50, times.p99), (100.0, 2.0, 2.0));
        log.with(|log| log.push(exchange(begun, 50, f64::INFINITY)));
        assert_eq!(log.times(begun, upto(500)).unwrap().p99, 2.0);
        let times = log.times(begun, upto(625)).unwrap();
        assert_eq!((times.per_s, times.p99), (80.0, f64::INFINITY));
        assert!(log.times(upto(501), upto(900)).is_none());
        // All but the last came through by then; its time counts.
        let times = log.times(begun, upto(491)).unwrap();
        assert_eq!((times.per_s, times.p99), (49.0 / 0.491, 2.0));
    }
}
