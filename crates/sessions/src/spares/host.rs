use std::net::SocketAddr;
use std::time::Duration;

use super::arm::{Arm, Trial};
use super::{Moment, SpareKey, Vain, Wish};
use crate::limits::{FOLLOW, FOLLOWERS, SPARE_HOLD, SPARE_HOLD_MIN, SPARE_RETRY, SPARES_PER_HOST};

/// Windows without an opening that are counted after a pause: a day and a half of full length.
const IDLE_WINDOWS: u32 = 3000;

/// Openings of one context to one host.
#[derive(Debug)]
pub(super) struct Host {
    /// Address of the last one, until it may be that of another host.
    pub(super) address: Option<SocketAddr>,
    /// Time for which a spare is held: shorter if the server has closed one sooner.
    hold: Duration,
    /// Time before which none is opened.
    not_before: Duration,
    last: Option<Duration>,
    /// Spares after an opening; each is tried only if those before it are taken.
    slots: [Arm; SPARES_PER_HOST],
    /// A spare after one that was in vain.
    renewed: Arm,
    /// A spare about when the last interval will have passed again.
    periodic: Arm,
    followers: Vec<Follower>,
}

/// A host to which openings follow.
#[derive(Debug)]
struct Follower {
    key: SpareKey,
    /// One for each connection of a burst.
    arms: [Arm; SPARES_PER_HOST],
}

impl Follower {
    /// Returns the number of spares that are likely to be used.
    fn count(&self, now: Moment) -> usize {
        self.arms.iter().take_while(|arm| arm.is_worthwhile(now)).count()
    }
}

impl Host {
    pub(super) fn new() -> Self {
        Self {
            address: None,
            hold: SPARE_HOLD,
            not_before: Duration::ZERO,
            last: None,
            slots: Default::default(),
            renewed: Arm::default(),
            periodic: Arm::default(),
            followers: Vec::new(),
        }
    }

    /// Learns from an opening; `rtt` is the time that a spare takes to connect.
    pub(super) fn on_opening(&mut self, address: SocketAddr, rtt: Duration, now: Moment) {
        self.address = Some(address);
        self.learn_interval(rtt, now);
        let over: Vec<_> = self.slots.iter_mut().map(|slot| slot.settle(now.at)).collect();
        if let Some(Some(first)) = over.first() {
            self.learn_pause(first.until, now);
        }
        let _ = self.slots.iter_mut().any(|slot| slot.hit(now.at));
        let next = Trial { from: now.at + rtt, until: now.at + self.hold, hour: now.hour() };
        self.slots.iter_mut().for_each(|slot| slot.begin(next));
        for arm in self.followers.iter_mut().flat_map(|follower| &mut follower.arms) {
            arm.settle(now.at);
            arm.begin(Trial { until: now.at + FOLLOW, ..next });
        }
        self.followers.retain(|follower| !follower.arms.iter().all(Arm::is_useless));
        self.last = Some(now.at);
    }

    /// Judges a spare about when the interval has passed, and begins the next such trial.
    fn learn_interval(&mut self, rtt: Duration, now: Moment) {
        let Some(interval) = self.last.map(|last| now.at.saturating_sub(last)) else { return };
        if interval <= self.hold {
            return;
        }
        self.periodic.settle(now.at);
        if !self.periodic.hit(now.at) {
            self.periodic.cancel();
        }
        let middle = now.at + interval;
        let (from, until) = (middle - self.hold / 2 + rtt, middle + self.hold / 2);
        self.periodic.begin(Trial { from, until, hour: now.hour_of(middle) });
    }

    /// Counts the spares that would have been renewed from `idle` until now.
    fn learn_pause(&mut self, idle: Duration, now: Moment) {
        let mut end = idle.max(now.at.saturating_sub(self.hold * IDLE_WINDOWS));
        while end + self.hold < now.at {
            self.renewed.count(now.hour_of(end), false);
            end += self.hold;
        }
        self.renewed.count(now.hour(), true);
    }

    /// Learns that an opening to `key` followed.
    pub(super) fn on_followed(&mut self, key: &SpareKey, now: Moment) {
        if let Some(known) = self.followers.iter_mut().find(|follower| follower.key == *key) {
            let _ = known.arms.iter_mut().any(|arm| arm.hit(now.at));
        } else if self.followers.len() < FOLLOWERS {
            let mut arms = [Arm::default(); SPARES_PER_HOST];
            arms[0].count(now.hour(), true);
            self.followers.push(Follower { key: key.clone(), arms });
        }
    }

    /// Learns from a spare in vain. Returns true if another should take its place.
    pub(super) fn on_vain(&mut self, why: Vain, now: Moment) -> bool {
        match why {
            Vain::Expired => return self.renewed.is_worthwhile(now),
            Vain::Closed(age) => {
                self.hold = self.hold.min(age * 3 / 4);
                if self.hold < SPARE_HOLD_MIN {
                    self.hold = SPARE_HOLD;
                    self.not_before = now.at + SPARE_RETRY;
                }
            }
            Vain::Failed => self.not_before = now.at + SPARE_RETRY,
            Vain::Dropped => {}
        }
        false
    }

    /// Returns the spares to hold after an opening.
    pub(super) fn wishes(&self, key: &SpareKey, now: Moment) -> Vec<Wish> {
        let count = self.slots.iter().take_while(|slot| slot.is_worthwhile(now)).count();
        let periodic = self.periodic.trial().filter(|_| self.periodic.is_worthwhile(now));
        let periodic = periodic.filter(|trial| trial.from > now.at);
        let soon = self.wish(key, count, now.at, now.at + self.hold);
        let later = periodic.and_then(|trial| self.wish(key, 1, trial.from, trial.until));
        let all = [soon.filter(|wish| wish.count > 0), later];
        all.into_iter().flatten().filter(|wish| wish.from >= self.not_before).collect()
    }

    /// Returns spares to hold from now on for at most `hold`, because of another opening or in
    /// place of a spare.
    pub(super) fn wish_now(
        &self,
        key: &SpareKey,
        count: usize,
        hold: Duration,
        now: Moment,
    ) -> Option<Wish> {
        let wish = self.wish(key, count, now.at, now.at + hold.min(self.hold));
        wish.filter(|_| count > 0 && now.at >= self.not_before)
    }

    /// Returns the hosts to which openings follow, and how many mostly do.
    pub(super) fn likely_followers(&self, now: Moment) -> impl Iterator<Item = (&SpareKey, usize)> {
        self.followers.iter().map(move |follower| (&follower.key, follower.count(now)))
    }

    fn wish(&self, key: &SpareKey, count: usize, from: Duration, until: Duration) -> Option<Wish> {
        Some(Wish { key: key.clone(), address: self.address?, count, from, until })
    }
}
