//! Parents by time alone: the three passes of BLAST, appendix C.2.
//!
//! What came within [`TRIGGER_WINDOW`] before a request may have triggered it. If that is only one
//! response, it is the parent; else, in a second pass, those count that are the parent of another
//! by then; and of what is left, in a third, the one that was written last. A HAR file has no times
//! of single segments: a response is taken to come from its first byte to its last without a pause.
//! Only what requests can come of counts: images, fonts and media do not. A request that nothing
//! came before in time belongs to what came last before it.

use std::time::Duration;

use super::limits::{CANDIDATES, ROUNDING, TRIGGER_WINDOW};
use crate::page::Confidence;

/// Times of a request and its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) created: Duration,
    pub(super) first: Duration,
    pub(super) last: Duration,
    /// True if the response can cause requests.
    pub(super) may_ask: bool,
}

/// A parent, and the pass that found it.
pub(super) type Guess = (usize, Confidence);

/// Parents of those that `known` has none for, in the order of `moments`, which is that of their
/// creation.
///
/// Each comes before what it is the parent of. None for those that nothing came before.
pub(super) fn parents(
    moments: &[Moment],
    known: impl Fn(usize) -> Option<usize>,
) -> Vec<Option<Guess>> {
    let mut chosen = vec![false; moments.len()];
    sweep(moments, |at, coming| {
        let parent = known(at).or_else(|| coming.only());
        if let Some(chosen) = parent.and_then(|parent| chosen.get_mut(parent)) {
            *chosen = true;
        }
    });
    let mut guesses = Vec::with_capacity(moments.len());
    sweep(moments, |at, coming| {
        guesses.push(if known(at).is_some() { None } else { coming.guess(&chosen) });
    });
    guesses
}

/// Walks through the starts of all requests, with the responses of that time.
fn sweep(moments: &[Moment], mut each: impl FnMut(usize, &Coming<'_>)) {
    let mut coming = Coming { moments, now: Duration::ZERO, open: Vec::new(), before: None };
    for (at, moment) in moments.iter().enumerate() {
        coming.advance(moment.created);
        each(at, &coming);
        if moment.may_ask {
            coming.open(at);
        }
    }
}

/// Returns the time of the last byte of one of `moments`.
fn end(moments: &[Moment], one: usize) -> Duration {
    moments.get(one).map(|one| one.last).unwrap_or_default()
}

/// Responses that may have triggered a request made now.
struct Coming<'a> {
    moments: &'a [Moment],
    now: Duration,
    /// Places of responses that have not ended long ago; some may not have begun.
    open: Vec<usize>,
    /// The response that ended last, among those that are no longer open.
    before: Option<usize>,
}

impl Coming<'_> {
    fn advance(&mut self, now: Duration) {
        self.now = now;
        let (moments, before) = (self.moments, &mut self.before);
        self.open.retain(|&one| {
            let stays = end(moments, one) + TRIGGER_WINDOW >= now;
            if !stays && before.is_none_or(|before| end(moments, before) <= end(moments, one)) {
                *before = Some(one);
            }
            stays
        });
    }

    /// Makes a response a candidate. If there are too many, the oldest gives way.
    fn open(&mut self, one: usize) {
        if self.open.len() >= CANDIDATES {
            self.open.remove(0);
        }
        self.open.push(one);
    }

    fn candidates(&self) -> impl Iterator<Item = (usize, &Moment)> {
        let open = self.open.iter().filter_map(|&one| Some((one, self.moments.get(one)?)));
        open.filter(|(_, one)| one.first <= self.now + ROUNDING)
    }

    /// Returns the candidate, if there is only one.
    fn only(&self) -> Option<usize> {
        let mut candidates = self.candidates();
        let (only, _) = candidates.next()?;
        candidates.next().is_none().then_some(only)
    }

    fn guess(&self, chosen: &[bool]) -> Option<Guess> {
        if let Some(only) = self.only() {
            return Some((only, Confidence::Only));
        }
        let of_chosen: Vec<_> =
            self.candidates().filter(|(one, _)| chosen.get(*one) == Some(&true)).collect();
        let last = match of_chosen[..] {
            [] => self.last_written(self.candidates()),
            [(one, _)] => return Some((one, Confidence::Chosen)),
            _ => self.last_written(of_chosen.into_iter()),
        };
        last.or(self.before).map(|one| (one, Confidence::Last))
    }

    /// Returns, of responses that are still arriving, the one that began last.
    fn last_written<'m>(&self, among: impl Iterator<Item = (usize, &'m Moment)>) -> Option<usize> {
        among.max_by_key(|(_, one)| (one.last.min(self.now), one.first)).map(|(one, _)| one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Created, first and last byte, in ms.
    fn moments(times: &[(u64, u64, u64)]) -> Vec<Moment> {
        let ms = Duration::from_millis;
        times
            .iter()
            .map(|&(created, first, last): &(u64, u64, u64)| Moment {
                created: ms(created),
                first: ms(first),
                last: ms(last),
                may_ask: true,
            })
            .collect()
    }

    fn guesses(times: &[(u64, u64, u64)]) -> Vec<Option<Guess>> {
        parents(&moments(times), |_| None)
    }

    #[test]
    fn the_only_earlier_resource_is_the_parent() {
        let guesses = guesses(&[(0, 100, 300), (200, 400, 500), (550, 600, 700)]);
        let only = Confidence::Only;
        assert_eq!(guesses, [None, Some((0, only)), Some((1, only))]);
    }

    #[test]
    fn a_resource_too_long_ago_is_no_parent() {
        let [.., just] = guesses(&[(0, 100, 300), (350, 351, 352)])[..] else { unreachable!() };
        assert_eq!(just, Some((0, Confidence::Only)));
        let [.., late] = guesses(&[(0, 100, 300), (351, 352, 353)])[..] else { unreachable!() };
        assert_eq!(late, Some((0, Confidence::Last)), "but nothing else is there");
    }

    #[test]
    fn of_several_those_count_that_are_parents_already() {
        // 1 is the only candidate of 3; 2 of none; both are of 4.
        let times = [(0, 10, 20), (15, 100, 200), (15, 210, 220), (160, 400, 500), (225, 300, 310)];
        let guesses = guesses(&times);
        assert_eq!(guesses[3], Some((1, Confidence::Only)));
        assert_eq!(guesses[4], Some((1, Confidence::Chosen)));
    }

    #[test]
    fn of_the_rest_the_last_that_was_written() {
        let times = [(0, 10, 20), (15, 190, 200), (15, 180, 210), (225, 300, 310)];
        assert_eq!(guesses(&times)[3], Some((2, Confidence::Last)));
        // Both are still coming: the one that began last.
        let times = [(0, 10, 20), (15, 190, 400), (15, 180, 500), (225, 300, 310)];
        assert_eq!(guesses(&times)[3], Some((1, Confidence::Last)));
    }

    #[test]
    fn resources_that_request_nothing_are_no_parents() {
        let mut moments = moments(&[(0, 10, 400), (15, 190, 200), (225, 300, 310)]);
        moments[1].may_ask = false;
        assert_eq!(parents(&moments, |_| None)[2], Some((0, Confidence::Only)));
    }

    #[test]
    fn known_parents_count_as_chosen() {
        let times = [(0, 10, 20), (15, 190, 200), (15, 180, 210), (216, 300, 310), (217, 300, 310)];
        let guesses = parents(&moments(&times), |at| (at == 3).then_some(1));
        assert_eq!(guesses[3], None);
        assert_eq!(guesses[4], Some((1, Confidence::Chosen)));
    }

    #[test]
    fn of_the_same_time_the_first_in_the_file_comes_first() {
        let guesses = guesses(&[(5, 5, 5), (5, 5, 5)]);
        assert_eq!(guesses, [None, Some((0, Confidence::Only))]);
    }
}
