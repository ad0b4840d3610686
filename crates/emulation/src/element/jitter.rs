use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Element, Outputs};
use crate::Packet;

/// Lets packets out after a time that varies evenly around a mean.
#[derive(Debug)]
pub struct Jitter {
    shortest: Duration,
    longest: Duration,
    keeps_order: bool,
    /// Time at which the last packet leaves.
    last: Duration,
    draws: Box<Xoshiro256PlusPlus>,
}

impl Jitter {
    /// Delays of `mean` plus or minus at most `spread`, never below zero; order is kept.
    ///
    /// A packet whose own delay is over leaves no earlier than the one before it, as from a radio
    /// link that waits for what it sends again.
    pub fn new(mean: Duration, spread: Duration, seed: u64) -> Jitter {
        Jitter {
            shortest: mean.saturating_sub(spread),
            longest: mean.saturating_add(spread),
            keeps_order: true,
            last: Duration::ZERO,
            draws: Box::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
        }
    }

    /// The same, but packets overtake one another.
    #[must_use]
    pub fn reordering(self) -> Jitter {
        Jitter { keeps_order: false, ..self }
    }
}

impl Element for Jitter {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        let delay = self.draws.random_range(self.shortest..=self.longest);
        let mut leaves = now.saturating_add(delay);
        if self.keeps_order {
            leaves = leaves.max(self.last);
            self.last = leaves;
        }
        out.pass_after(leaves.saturating_sub(now), packet);
    }

    fn nominal_delay(&self) -> Option<Duration> {
        (self.shortest == self.longest).then_some(self.shortest)
    }
}
