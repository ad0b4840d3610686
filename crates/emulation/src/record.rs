//! The forwarder's record of its own faults.

use std::collections::VecDeque;
use std::time::Duration;

/// Faults remembered: 1.3 MB, and more than a run that is of any use makes.
const MAX_FAULTS: usize = 32_768;

/// Faults of the forwarder itself in some stretch of time; none of them was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Packets that left later than [`LabOptions::late`](crate::LabOptions::late) allows.
    pub late: u64,
    /// The worst of these.
    pub worst: Duration,
    /// Frames of nodes that the kernel dropped because the forwarder was too slow.
    pub missed: u64,
    /// Packets to nodes that the kernel would not take.
    pub refused: u64,
    /// Part of the record was given up for newer faults: what happened then is not known.
    pub forgotten: bool,
}

impl Disturbance {
    /// Returns true if the forwarder did just what was asked.
    pub fn is_none(&self) -> bool {
        *self == Disturbance::default()
    }

    fn add(&mut self, fault: &Fault) {
        match fault.what {
            What::Late => {
                self.late += 1;
                self.worst = self.worst.max(fault.to.saturating_sub(fault.from));
            }
            What::Missed(frames) => self.missed += frames,
            What::Refused => self.refused += 1,
        }
    }
}

/// The newest faults, in the order in which they were over.
#[derive(Debug)]
pub(crate) struct Record {
    late: Duration,
    faults: VecDeque<Fault>,
    /// End of the last fault that was given up.
    forgotten: Option<Duration>,
}

#[derive(Debug)]
struct Fault {
    from: Duration,
    to: Duration,
    what: What,
}

#[derive(Debug)]
enum What {
    Late,
    Missed(u64),
    Refused,
}

impl Record {
    /// An empty record, in which only packets later than `late` count as such.
    pub(crate) fn new(late: Duration) -> Record {
        Record { late, faults: VecDeque::new(), forgotten: None }
    }

    /// Notes that a packet due at `due` was sent at `sent`.
    pub(crate) fn sent(&mut self, due: Duration, sent: Duration) {
        if sent.saturating_sub(due) > self.late {
            self.push(Fault { from: due, to: sent, what: What::Late });
        }
    }

    /// Notes frames that were lost at some time from `from` to `to`.
    pub(crate) fn missed(&mut self, from: Duration, to: Duration, frames: u64) {
        if frames > 0 {
            self.push(Fault { from, to, what: What::Missed(frames) });
        }
    }

    /// Notes that the kernel would not take a packet.
    pub(crate) fn refused(&mut self, at: Duration) {
        self.push(Fault { from: at, to: at, what: What::Refused });
    }

    /// All that is known of the time from `from` to `to`.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> Disturbance {
        let mut disturbance = Disturbance {
            forgotten: self.forgotten.is_some_and(|forgotten| forgotten >= from),
            ..Disturbance::default()
        };
        let newest = self.faults.iter().rev().take_while(|fault| fault.to >= from);
        newest.filter(|fault| fault.from <= to).for_each(|fault| disturbance.add(fault));
        disturbance
    }

    fn push(&mut self, fault: Fault) {
        if self.faults.len() >= MAX_FAULTS
            && let Some(oldest) = self.faults.pop_front()
        {
            self.forgotten = Some(oldest.to);
        }
        self.faults.push_back(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn delays_within_the_threshold_are_no_fault() {
        let mut record = Record::new(us(300));
        record.sent(us(1000), us(1300));
        assert!(record.between(us(0), us(9999)).is_none());
        record.sent(us(2000), us(2301));
        let disturbance = record.between(us(0), us(9999));
        assert_eq!((disturbance.late, disturbance.worst), (1, us(301)));
    }

    #[test]
    fn a_fault_disturbs_the_times_it_touches() {
        let mut record = Record::new(us(100));
        record.sent(us(1000), us(2000));
        record.missed(us(2500), us(3000), 7);
        record.missed(us(3000), us(3100), 0);
        record.refused(us(4000));
        for (from, to, late) in [(0, 999, 0), (0, 1000, 1), (2000, 2100, 1), (2001, 2100, 0)] {
            assert_eq!(record.between(us(from), us(to)).late, late, "{from} {to}");
        }
        assert_eq!(record.between(us(2600), us(2700)).missed, 7);
        assert!(record.between(us(3001), us(3999)).is_none());
        let all = record.between(us(0), us(4000));
        assert_eq!((all.late, all.missed, all.refused), (1, 7, 1));
    }

    #[test]
    fn an_interval_with_discarded_faults_is_marked() {
        let mut record = Record::new(us(0));
        for number in 0..=MAX_FAULTS as u64 {
            record.refused(us(number));
        }
        assert!(record.between(us(0), us(5)).forgotten);
        assert!(!record.between(us(1), us(5)).forgotten);
        assert_eq!(record.between(us(0), us(u64::MAX / 2)).refused, MAX_FAULTS as u64);
    }
}
