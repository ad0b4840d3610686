//! Many connections at a time, closed loop and open loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::client::{Client, Ready};
use crate::trial::Trial;
use crate::visit::Visit;

/// Connections open at a time at most: each takes two descriptors and some 100 kB. Those that
/// should begin above it count as failed: the server is far over its capacity.
pub(crate) const OUTSTANDING_MAX: usize = 4096;

/// Schedule of connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// This many at a time, each followed by the next.
    InFlight(usize),
    /// This many a second on average, whatever their outcome: a Poisson process.
    PerSecond(f64),
}

/// Totals of a load.
///
/// Connections that began within the slice are waited for, so a few that last long make `ms` long:
/// divide [`completed_in_slice`](Self::completed_in_slice) by [`slice_ms`](Self::slice_ms) for a
/// rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Always true; tells its line from those of trials.
    pub done: bool,
    /// Connections that ended, well or not.
    pub connections: u64,
    /// Connections that ended well within the slice. One that the end of the slice divides counts
    /// by its part before, or rates over long paths would be too low: by up to one for each in
    /// flight.
    pub completed_in_slice: f64,
    /// Time in which connections were begun, as asked for.
    pub slice_ms: f64,
    /// Time from the first connection to the end of the last.
    pub ms: f64,
    /// CPU time of the whole process meanwhile.
    pub cpu_ms: f64,
}

impl Client {
    /// Opens connections for `lasting` and waits for the last of them; each one's trial goes to
    /// `sink`.
    ///
    /// Without in-flight connections or rate there are none.
    pub async fn load(
        self: &Arc<Self>,
        bytes: u64,
        load: Load,
        lasting: Duration,
        sink: &mut impl FnMut(Trial),
    ) -> Tally {
        let (started, cpu) = (Instant::now(), cpu_time());
        let until = started + lasting;
        let (client, visit) = (Arc::clone(self), Visit::new(bytes));
        let mut run =
            Run { client, visit, tasks: JoinSet::new(), until, count: 0, completed: 0.0, sink };
        match load {
            Load::InFlight(number) => run.closed_loop(number.min(OUTSTANDING_MAX)).await,
            Load::PerSecond(rate) if rate > 0.0 => {
                run.open_loop(rate, started, lasting, self.options().seed).await;
            }
            Load::PerSecond(_) => {}
        }
        while run.one_ended().await {}
        Tally {
            done: true,
            connections: run.count,
            completed_in_slice: run.completed,
            slice_ms: lasting.as_secs_f64() * 1000.0,
            ms: started.elapsed().as_secs_f64() * 1000.0,
            cpu_ms: cpu_time().saturating_sub(cpu).as_secs_f64() * 1000.0,
        }
    }
}

struct Run<'a, Sink> {
    client: Arc<Client>,
    visit: Visit,
    /// Trials, and when each began and ended, whenever somebody comes to hear of it.
    tasks: JoinSet<(Trial, [Instant; 2])>,
    /// Time at which the slice ends.
    until: Instant,
    count: u64,
    completed: f64,
    sink: &'a mut Sink,
}

impl<Sink: FnMut(Trial)> Run<'_, Sink> {
    async fn closed_loop(&mut self, number: usize) {
        while Instant::now() < self.until && number > 0 {
            while self.tasks.len() < number {
                let ready = self.client.ready(&self.visit);
                self.begin(ready, Instant::now());
            }
            self.one_ended().await;
        }
    }

    async fn open_loop(&mut self, rate: f64, started: Instant, lasting: Duration, seed: u64) {
        let mut arrivals = Arrivals::new(rate, seed);
        loop {
            let after = arrivals.next();
            if after >= lasting {
                return;
            }
            let planned = started + after;
            let ready = self.client.ready(&self.visit);
            while tokio::select! {
                biased;
                () = tokio::time::sleep_until(planned.into()) => false,
                ended = self.one_ended(), if !self.tasks.is_empty() => ended,
            } {}
            if self.tasks.len() < OUTSTANDING_MAX {
                self.begin(ready, planned);
            } else {
                let error = "too many connections at a time".to_owned();
                self.take(Trial { error, ..Trial::default() });
            }
        }
    }

    fn begin(&mut self, ready: Ready, planned: Instant) {
        let (client, visit) = (Arc::clone(&self.client), self.visit.clone());
        self.tasks.spawn(async move {
            let trial = client.open_ready(ready, &visit, planned).await;
            (trial, [planned, Instant::now()])
        });
    }

    /// Waits for any connection to end; false if there is none.
    async fn one_ended(&mut self) -> bool {
        let Some(ended) = self.tasks.join_next().await else { return false };
        let (trial, times) = ended.unwrap_or_else(|error| {
            (Trial { error: error.to_string(), ..Trial::default() }, [self.until; 2])
        });
        if trial.ok {
            self.completed += part_before(self.until, times);
        }
        self.take(trial);
        true
    }

    fn take(&mut self, trial: Trial) {
        self.count += 1;
        (self.sink)(trial);
    }
}

/// The part of the time between two moments that is before `end`, from 0 to 1.
#[must_use]
pub fn part_before(end: Instant, [from, to]: [Instant; 2]) -> f64 {
    match () {
        () if to <= end => 1.0,
        () if from >= end => 0.0,
        () => (end - from).as_secs_f64() / (to - from).as_secs_f64(),
    }
}

/// Times of a Poisson process from its start.
struct Arrivals {
    random: StdRng,
    rate: f64,
    at: f64,
}

impl Arrivals {
    fn new(rate: f64, seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), rate, at: 0.0 }
    }

    fn next(&mut self) -> Duration {
        // Inverse of the exponential distribution; the argument is in (0, 1].
        let uniform: f64 = 1.0 - self.random.random::<f64>();
        self.at -= uniform.ln() / self.rate;
        Duration::try_from_secs_f64(self.at).unwrap_or(Duration::MAX)
    }
}

/// CPU time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_divides_counts_by_its_part_before() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut all = 0.0;
        // One after the other, each of 400 ms: 2.5 in a second.
        for (from, part) in [(0, 1.0), (400, 1.0), (800, 0.5), (1000, 0.0), (1200, 0.0)] {
            let times = [from, from + 400].map(|at| start + ms * at);
            let found = part_before(start + ms * 1000, times);
            assert!((found - part).abs() < 1e-9, "from {from}: {found}");
            all += found;
        }
        assert!((all - 2.5).abs() < 1e-9, "{all}");
    }

    #[test]
    fn arrivals_are_repeatable_and_as_many_as_asked_for() {
        let [one, again, other] = [7, 7, 8].map(|seed| {
            let mut arrivals = Arrivals::new(100.0, seed);
            std::iter::from_fn(|| Some(arrivals.next()))
                .take_while(|at| *at < Duration::from_secs(100))
                .count()
        });
        assert_eq!(one, again);
        assert_ne!(one, other);
        // 10,000 of a Poisson process; its deviation is 100.
        assert!(one.abs_diff(10_000) < 400, "{one}");
    }

    #[test]
    fn gaps_vary_as_those_of_a_poisson_process_do() {
        let mut arrivals = Arrivals::new(1.0, 3);
        let times: Vec<f64> = (0..20_000).map(|_| arrivals.next().as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let long = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
        // exp(-1) of them are longer than the mean.
        assert!((long - (-1.0f64).exp()).abs() < 0.02, "{long}");
    }

    #[test]
    fn cpu_time_counts_work_and_not_waiting() {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let waited = cpu_time() - before;
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            std::hint::black_box(0);
        }
        let worked = cpu_time() - before;
        assert!(worked > waited, "{worked:?} {waited:?}");
    }
}
