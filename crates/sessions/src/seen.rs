use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE_MAX;

use crate::limits::SPENT_COOKIES;

/// Replay protection for Fast Open cookies: the ones already sent, so that none is sent twice.
///
/// Remembers each cookie for at least the maximum lifetime of a cookie. The set is bounded; once it
/// is full, no cookie can be spent, since forgetting a live one could send it twice.
///
/// A user can spend a cookie only while they hold fewer entries than are free: the first user gets
/// at most half of the set, the next at most half of the rest. So no single user can use up the
/// set.
#[derive(Debug)]
pub(crate) struct SeenCookies {
    current: HashSet<Cookie>,
    previous: HashSet<Cookie>,
    /// Number of cookies in `current` spent by each user.
    by_user: HashMap<Option<u32>, usize>,
    /// Start of the period that `current` covers.
    since: Option<Instant>,
    /// Maximum number of cookies in each generation.
    limit: usize,
}

/// Reason why a cookie may not be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unspendable {
    /// The cookie was sent before.
    Spent,
    /// There is no room to remember the cookie.
    Full,
}

impl fmt::Display for Unspendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spent => "the cookie was spent before",
            Self::Full => "too many cookies were spent in the past few hours",
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
    /// Creates an empty set that holds up to `limit` cookies of the current period of
    /// [`COOKIE_LIFE_MAX`], and as many of the previous one.
    pub(crate) fn new(limit: usize) -> Self {
        let (current, previous, by_user) = (HashSet::new(), HashSet::new(), HashMap::new());
        Self { current, previous, by_user, since: None, limit }
    }

    /// Spends `cookie` on behalf of `user`; `None` stands for all unknown users. No two users can
    /// spend the same cookie.
    ///
    /// # Errors
    /// The reason why the cookie must not be sent.
    pub(crate) fn spend(
        &mut self,
        cookie: Cookie,
        user: Option<u32>,
        now: Instant,
    ) -> Result<(), Unspendable> {
        self.rotate(now);
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
    pub(crate) fn contains(&self, cookie: &Cookie) -> bool {
        self.current.contains(cookie) || self.previous.contains(cookie)
    }

    /// Returns true if `user` can spend no cookie now.
    pub(crate) fn is_full(&mut self, user: Option<u32>, now: Instant) -> bool {
        self.rotate(now);
        !self.has_room(user)
    }

    fn has_room(&self, user: Option<u32>) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or_default();
        own < self.limit.saturating_sub(self.current.len())
    }

    /// Starts a new generation once the current one is as old as a cookie can get.
    fn rotate(&mut self, now: Instant) {
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
        let start = Instant::now();
        for after in [Duration::ZERO, SECOND, COOKIE_LIFE_MAX / 2, COOKIE_LIFE_MAX - SECOND] {
            let mut seen = SeenCookies::default();
            seen.spend(cookie(0), ME, start).unwrap();
            let spent = start + after;
            seen.spend(cookie(1), ME, spent).unwrap();
            let last = spent + COOKIE_LIFE_MAX - SECOND;
            assert_eq!(seen.spend(cookie(1), ME, last), Err(Unspendable::Spent), "{after:?}");
        }
    }

    #[test]
    fn a_spent_cookie_is_forgotten_after_twice_the_maximum_life() {
        let (mut seen, start) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), ME, start).unwrap();
        assert_eq!(seen.spend(cookie(1), ME, start + COOKIE_LIFE_MAX * 2), Ok(()));
        assert_eq!(seen.current.len() + seen.previous.len(), 1);
    }

    #[test]
    fn a_full_set_refuses_new_cookies() {
        let (mut seen, start) = (SeenCookies::new(4), Instant::now());
        for number in 1..=2 {
            assert!(!seen.is_full(ME, start));
            seen.spend(cookie(number), ME, start).unwrap();
        }
        assert!(seen.is_full(ME, start), "holds two entries, and two are free");
        assert_eq!(seen.spend(cookie(3), ME, start), Err(Unspendable::Full));
        assert_eq!(seen.spend(cookie(1), ME, start), Err(Unspendable::Spent));
        // The next generation has room again, and cookies of the previous one are still remembered.
        let later = start + COOKIE_LIFE_MAX;
        assert!(!seen.is_full(ME, later));
        assert_eq!(seen.spend(cookie(1), ME, later), Err(Unspendable::Spent));
        assert_eq!(seen.spend(cookie(3), ME, later), Ok(()));
        assert_eq!(seen.current.len() + seen.previous.len(), 3);
    }

    #[test]
    fn a_limit_of_one_has_room_for_one() {
        let (mut seen, start) = (SeenCookies::new(1), Instant::now());
        seen.spend(cookie(1), ME, start).unwrap();
        for user in [ME, Some(1001), None] {
            assert_eq!(seen.spend(cookie(2), user, start), Err(Unspendable::Full));
        }
    }

    /// A user who connects with fake tickets cannot stop others from using Fast Open.
    #[test]
    fn a_user_who_spends_all_they_can_leaves_room_for_others() {
        let (mut seen, start) = (SeenCookies::new(120), Instant::now());
        // All unknown users share one allowance.
        let spenders = [(Some(666), 0..120, 60), (ME, 120..200, 30), (None, 200..220, 15)];
        for (user, numbers, most) in spenders {
            let spent = numbers.filter(|number| seen.spend(cookie(*number), user, start).is_ok());
            assert_eq!(spent.count(), most, "{user:?}");
        }
        assert_eq!(
            seen.spend(cookie(1), ME, start),
            Err(Unspendable::Spent),
            "another user spent it"
        );
        assert_eq!(seen.current.len() + seen.previous.len(), 105);
    }

    #[test]
    fn no_cookie_is_forgotten_when_the_clock_goes_back() {
        let (mut seen, start) = (SeenCookies::default(), Instant::now());
        seen.spend(cookie(1), ME, start + SECOND).unwrap();
        assert_eq!(seen.spend(cookie(1), ME, start), Err(Unspendable::Spent));
    }
}
