use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE_MAX;

use crate::limits::SPENT_COOKIES;

/// The cookies that were on the wire, so that none is sent twice.
///
/// Remembers each cookie for the maximum life of one. The set is bounded; once it is full, no
/// cookie can be spent, since forgetting a live one could send it twice.
///
/// A user can spend only while holding fewer entries than are free: alone that is half of them, and
/// a third beside a user who takes everything. So nobody can keep others from spending.
#[derive(Debug)]
pub struct SeenCookies {
    current: HashSet<Cookie>,
    previous: HashSet<Cookie>,
    /// Number of cookies in `current` spent by each user.
    by_user: HashMap<Option<u32>, usize>,
    /// Start of the generation `current`.
    since: Option<Instant>,
    /// Maximum number of cookies in each generation.
    limit: usize,
}

/// Reason why a cookie may not be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unspendable {
    /// It was on the wire before.
    Spent,
    /// There is no room to remember it.
    Full,
}

impl fmt::Display for Unspendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spent => "the cookie was spent before",
            Self::Full => "too many cookies were spent in the last hours",
        })
    }
}

impl std::error::Error for Unspendable {}

impl Default for SeenCookies {
    fn default() -> Self {
        Self::new(SPENT_COOKIES)
    }
}

impl SeenCookies {
    /// Creates an empty set that holds up to `limit` cookies of the current 8 hours and as many of
    /// the previous.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let (current, previous, by_user) = (HashSet::new(), HashSet::new(), HashMap::new());
        Self { current, previous, by_user, since: None, limit }
    }

    /// Spends `cookie` of `user`, or of an unknown user: once, whoever it is.
    ///
    /// # Errors
    /// The reason why it must not be sent.
    pub fn spend(
        &mut self,
        cookie: Cookie,
        user: Option<u32>,
        now: Instant,
    ) -> Result<(), Unspendable> {
        self.turn(now);
        if self.contains(&cookie) {
            return Err(Unspendable::Spent);
        }
        if !self.has_room(user) {
            return Err(Unspendable::Full);
        }
        self.current.insert(cookie);
        *self.by_user.entry(user).or_default() += 1;
        Ok(())
    }

    /// Returns true if `cookie` is remembered as spent.
    #[must_use]
    pub fn contains(&self, cookie: &Cookie) -> bool {
        self.current.contains(cookie) || self.previous.contains(cookie)
    }

    /// Returns true if `user` can spend no cookie now.
    pub fn is_full(&mut self, user: Option<u32>, now: Instant) -> bool {
        self.turn(now);
        !self.has_room(user)
    }

    /// Returns the number of cookies remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }

    /// Returns true if no cookie is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn has_room(&self, user: Option<u32>) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or_default();
        own < self.limit.saturating_sub(self.current.len())
    }

    /// Starts a new generation if it is time.
    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age < COOKIE_LIFE_MAX {
            return;
        }
        self.previous = std::mem::take(&mut self.current);
        self.by_user.clear();
        self.since = Some(since + COOKIE_LIFE_MAX);
        if age >= COOKIE_LIFE_MAX * 2 {
            self.previous.clear();
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ME: Option<u32> = Some(1000);

    fn cookie(number: u8) -> Cookie {
        Cookie::new([number; 16])
    }

    #[test]
    fn a_cookie_is_spent_once() {
        let (mut seen, now) = (SeenCookies::default(), Instant::now());
        assert_eq!(seen.spend(cookie(1), ME, now), Ok(()));
        assert_eq!(seen.spend(cookie(1), ME, now), Err(Unspendable::Spent));
        assert_eq!(seen.spend(cookie(2), ME, now), Ok(()));
        assert!(seen.contains(&cookie(1)) && !seen.contains(&cookie(3)));
    }

    #[test]
    fn a_spent_cookie_is_remembered_for_the_maximum_life() {
        let begin = Instant::now();
        for after in [Duration::ZERO, SECOND, COOKIE_LIFE_MAX / 2, COOKIE_LIFE_MAX - SECOND] {
            let mut seen = SeenCookies::default();
            seen.spend(cookie(0), ME, begin).unwrap();
            let spent = begin + after;
            seen.spend(cookie(1), ME, spent).unwrap();
            let last = spent + COOKIE_LIFE_MAX - SECOND;
            assert_eq!(seen.spend(cookie(1), ME, last), Err(Unspendable::Spent), "{after:?}");
        }
    }

    #[test]
    fn a_spent_cookie_is_forgotten_after_twice_the_maximum_life() {
        let (mut seen, begin) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), ME, begin).unwrap();
        assert_eq!(seen.spend(cookie(1), ME, begin + COOKIE_LIFE_MAX * 2), Ok(()));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn a_full_set_spends_nothing() {
        let (mut seen, begin) = (SeenCookies::new(4), Instant::now());
        for number in 1..=2 {
            assert!(!seen.is_full(ME, begin));
            seen.spend(cookie(number), ME, begin).unwrap();
        }
        assert!(seen.is_full(ME, begin), "two are taken, two are free");
        assert_eq!(seen.spend(cookie(3), ME, begin), Err(Unspendable::Full));
        assert_eq!(seen.spend(cookie(1), ME, begin), Err(Unspendable::Spent));
        // The next generation has room again, and the last one is still remembered.
        let later = begin + COOKIE_LIFE_MAX;
        assert!(!seen.is_full(ME, later));
        assert_eq!(seen.spend(cookie(1), ME, later), Err(Unspendable::Spent));
        assert_eq!(seen.spend(cookie(3), ME, later), Ok(()));
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_limit_of_one_has_room_for_one() {
        let (mut seen, begin) = (SeenCookies::new(1), Instant::now());
        seen.spend(cookie(1), ME, begin).unwrap();
        for user in [ME, Some(1001), None] {
            assert_eq!(seen.spend(cookie(2), user, begin), Err(Unspendable::Full));
        }
    }

    /// A user who connects with made-up tickets does not stop others from using Fast Open.
    #[test]
    fn an_endless_spender_leaves_room_for_others() {
        let (mut seen, begin) = (SeenCookies::new(120), Instant::now());
        // Unknown users count as one.
        let spenders = [(Some(666), 0..120, 60), (ME, 120..200, 30), (None, 200..220, 15)];
        for (user, numbers, most) in spenders {
            let spent = numbers.filter(|number| seen.spend(cookie(*number), user, begin).is_ok());
            assert_eq!(spent.count(), most, "{user:?}");
        }
        assert_eq!(seen.spend(cookie(1), ME, begin), Err(Unspendable::Spent), "whoever spent it");
        assert_eq!(seen.len(), 105);
    }

    #[test]
    fn a_clock_that_stops_or_goes_back_forgets_nothing() {
        let (mut seen, begin) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), ME, begin + SECOND).unwrap();
        assert_eq!(seen.spend(cookie(1), ME, begin), Err(Unspendable::Spent));
    }
}
