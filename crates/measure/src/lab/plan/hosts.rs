//! Hosts with several addresses, and at which of them visits arrive.

use std::iter::repeat_n;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// The addresses, counted from 0, that the visits to the host of a round go to: each of the host's
/// as likely as another, as a name server that gives one address at a time would have it.
///
/// `hosts` says how many there are with one address, with two and so on. Rounds take them in an
/// order by the seed, each once before any comes again, and all arms the same.
pub(super) fn visits(hosts: &[u32], visits: u32, seed: u64, round: u32) -> Vec<usize> {
    let mut all: Vec<usize> = (1..)
        .zip(hosts)
        .flat_map(|(addresses, count)| repeat_n(addresses, usize::try_from(*count).unwrap_or(0)))
        .collect();
    all.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let turn = usize::try_from(round.saturating_sub(1)).unwrap_or(0);
    let addresses = turn.checked_rem(all.len()).and_then(|place| all.get(place)).copied();
    let addresses = addresses.unwrap_or(1);
    let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32) ^ u64::from(round));
    (0..visits).map(|_| draws.random_range(0..addresses)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HOSTS: [u32; 5] = [19, 62, 14, 0, 5];

    #[test]
    fn every_host_has_its_turn_and_visits_stay_at_its_addresses() {
        // With this many visits, each address of a host gets some.
        let mut counts = [0; 5];
        for round in 1..=100 {
            let seen = addresses(round);
            assert_eq!(seen, (0..seen.len()).collect());
            counts[seen.len() - 1] += 1;
        }
        assert_eq!(counts, HOSTS);
        assert_eq!(addresses(1).len(), addresses(101).len(), "the first again");
    }

    fn addresses(round: u32) -> BTreeSet<usize> {
        visits(&HOSTS, 200, 7, round).into_iter().collect()
    }

    #[test]
    fn the_choice_is_that_of_seed_and_round() {
        let [first, again, other] = [1, 1, 2]
            .map(|seed| (1..=50).map(|round| visits(&HOSTS, 4, seed, round)).collect::<Vec<_>>());
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(visits(&[3], 4, 1, 1), [0, 0, 0, 0]);
    }

    /// Revisits meet new addresses as often as they should. With each address as likely as another,
    /// a revisit meets a new one with (1 - 1/k) to the power of the visits before: of these hosts
    /// 44, 25 and 14 %.
    #[test]
    fn revisits_meet_new_addresses_as_often_as_they_should() {
        let rounds = 40_000;
        let mut new = [0.0; 3];
        for round in 1..=rounds {
            let visits = visits(&HOSTS, 4, 3, round);
            for (revisit, count) in (1..).zip(&mut new) {
                let is_new = !visits[..revisit].contains(&visits[revisit]);
                *count += f64::from(u8::from(is_new)) / f64::from(rounds);
            }
        }
        for (found, expected) in new.into_iter().zip([0.443, 0.249, 0.145]) {
            assert!((found - expected).abs() < 0.01, "{new:?}");
        }
    }
}
