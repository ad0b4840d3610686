use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE_MAX;

use crate::limits::SPENT_COOKIES;

/// The cookies that were on the wire, so that none goes there twice.
///
/// A cookie is remembered for as long as one may live at all. The set is bounded; a full one lets no
/// cookie be spent, since to forget one that lives would be to show it twice.
#[derive(Debug)]
pub struct SeenCookies {
    current: HashSet<Cookie>,
    previous: HashSet<Cookie>,
    /// When `current` began.
    since: Option<Instant>,
    /// Cookies in each of the two.
    limit: usize,
}

/// Why a cookie may not be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unspendable {
    /// It was on the wire before.
    Spent,
    /// There is no room to remember that it was.
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
    /// Knows nothing, and remembers up to `limit` cookies of 8 hours and as many of those before.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { current: HashSet::new(), previous: HashSet::new(), since: None, limit }
    }

    /// Spends `cookie`: only once for each.
    ///
    /// # Errors
    /// Why it must not go onto the wire.
    pub fn spend(&mut self, cookie: Cookie, now: Instant) -> Result<(), Unspendable> {
        self.turn(now);
        if self.contains(&cookie) {
            return Err(Unspendable::Spent);
        }
        if self.current.len() >= self.limit {
            return Err(Unspendable::Full);
        }
        self.current.insert(cookie);
        Ok(())
    }

    /// Whether `cookie` was spent, as far as that is remembered.
    #[must_use]
    pub fn contains(&self, cookie: &Cookie) -> bool {
        self.current.contains(cookie) || self.previous.contains(cookie)
    }

    /// Whether no cookie can be spent now.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.turn(now);
        self.current.len() >= self.limit
    }

    /// How many cookies are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the generation, if it is time.
    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age < COOKIE_LIFE_MAX {
            return;
        }
        self.previous = std::mem::take(&mut self.current);
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

    fn cookie(number: u8) -> Cookie {
        Cookie::new([number; 16])
    }

    #[test]
    fn a_cookie_is_spent_once() {
        let (mut seen, now) = (SeenCookies::default(), Instant::now());
        assert_eq!(seen.spend(cookie(1), now), Ok(()));
        assert_eq!(seen.spend(cookie(1), now), Err(Unspendable::Spent));
        assert_eq!(seen.spend(cookie(2), now), Ok(()));
        assert!(seen.contains(&cookie(1)) && !seen.contains(&cookie(3)));
    }

    #[test]
    fn it_is_remembered_as_long_as_one_may_live() {
        let begin = Instant::now();
        for after in [Duration::ZERO, SECOND, COOKIE_LIFE_MAX / 2, COOKIE_LIFE_MAX - SECOND] {
            let mut seen = SeenCookies::default();
            seen.spend(cookie(0), begin).unwrap();
            let spent = begin + after;
            seen.spend(cookie(1), spent).unwrap();
            let last = spent + COOKIE_LIFE_MAX - SECOND;
            assert_eq!(seen.spend(cookie(1), last), Err(Unspendable::Spent), "{after:?}");
        }
    }

    #[test]
    fn it_is_forgotten_after_twice_that() {
        let (mut seen, begin) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), begin).unwrap();
        assert_eq!(seen.spend(cookie(1), begin + COOKIE_LIFE_MAX * 2), Ok(()));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn at_the_limit_and_one_over() {
        let (mut seen, begin) = (SeenCookies::new(2), Instant::now());
        for number in 1..=2 {
            assert!(!seen.is_full(begin));
            seen.spend(cookie(number), begin).unwrap();
        }
        assert!(seen.is_full(begin));
        assert_eq!(seen.spend(cookie(3), begin), Err(Unspendable::Full));
        assert_eq!(seen.spend(cookie(1), begin), Err(Unspendable::Spent));
        // The next generation has room again, and the last one is not forgotten.
        let later = begin + COOKIE_LIFE_MAX;
        assert!(!seen.is_full(later));
        assert_eq!(seen.spend(cookie(1), later), Err(Unspendable::Spent));
        assert_eq!(seen.spend(cookie(3), later), Ok(()));
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_forgets_nothing() {
        let (mut seen, begin) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), begin + SECOND).unwrap();
        assert_eq!(seen.spend(cookie(1), begin), Err(Unspendable::Spent));
    }
}
