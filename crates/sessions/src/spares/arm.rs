use std::time::Duration;

use super::Moment;

/// Trials after which older ones count half.
const MEMORY: u8 = 16;

/// Trials of all hours that count beside those of one hour, so that one trial decides no hour.
const PRIOR: u32 = 2;

/// Hours of a day.
const HOURS: usize = 24;

/// A rule by which a spare would be held, judged by what it would have done so far, whether or not
/// a spare was held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arm {
    trial: Option<Trial>,
    all: Odds,
    hours: [Odds; HOURS],
}

/// A spare that the rule would hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Time from which it would be connected.
    pub(super) from: Duration,
    /// Time at which it would be closed.
    pub(super) until: Duration,
    /// Hour to which it counts.
    pub(super) hour: usize,
}

impl Arm {
    /// Returns the trial under way.
    pub(super) const fn trial(&self) -> Option<Trial> {
        self.trial
    }

    /// Begins a trial, unless one is under way.
    pub(super) fn begin(&mut self, trial: Trial) {
        self.trial.get_or_insert(trial);
    }

    /// Ends a trial without a result: nothing would have been opened yet.
    pub(super) const fn cancel(&mut self) {
        self.trial = None;
    }

    /// Ends a trial whose time is over, in vain. Returns it.
    pub(super) fn settle(&mut self, now: Duration) -> Option<Trial> {
        let over = self.trial.take_if(|trial| trial.until < now)?;
        self.count(over.hour, false);
        Some(over)
    }

    /// Ends the trial if its spare would serve an opening now. Returns true if so.
    pub(super) fn hit(&mut self, now: Duration) -> bool {
        let used = self.trial.take_if(|trial| (trial.from..=trial.until).contains(&now));
        used.inspect(|trial| self.count(trial.hour, true)).is_some()
    }

    /// Counts a spare that would have been used or in vain.
    pub(super) fn count(&mut self, hour: usize, used: bool) {
        self.all.count(used);
        if let Some(odds) = self.hours.get_mut(hour) {
            odds.count(used);
        }
    }

    /// Returns true if spares by this rule are as often used as in vain, or more, at that hour.
    pub(super) fn is_worthwhile(&self, now: Moment) -> bool {
        let hour = self.hours.get(now.hour()).copied().unwrap_or_default();
        let (all, trials) = (u32::from(self.all.used), self.all.trials() + 1);
        let used = u32::from(hour.used) * trials + PRIOR * all;
        2 * used >= (hour.trials() + PRIOR) * trials
    }

    /// Returns true if no trial was a success so far as is remembered.
    pub(super) const fn is_useless(&self) -> bool {
        self.all.used == 0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Odds {
    used: u8,
    vain: u8,
}

impl Odds {
    fn count(&mut self, used: bool) {
        *(if used { &mut self.used } else { &mut self.vain }) += 1;
        if self.used + self.vain > MEMORY {
            self.used /= 2;
            self.vain /= 2;
        }
    }

    fn trials(self) -> u32 {
        u32::from(self.used) + u32::from(self.vain)
    }
}
