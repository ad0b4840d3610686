//! Finds the parent of each request: as recorded, or by [the rule](super::rule).

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use super::exchange::{Exchange, Kind};
use super::initiator::UrlKey;
use super::limits::{ROUNDING, STACK_SCRIPTS, TRIGGER_WINDOW};
use super::rule::{self, Guess, Moment};
use crate::page::{Confidence, Part};

/// Maximum redirects to one URL that are considered, the last ones: a page may have any number.
const REDIRECTS_SEEN: usize = 16;

/// Maximum data requests of one script that are considered, the last ones: a page may poll.
const DATA_SEEN: usize = 16;

/// Sources of the parents of a page's resources, and how far the rule can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parents {
    /// Resources without a parent: the document, or what was requested beside it.
    pub roots: usize,
    /// Recorded parents: initiators and redirects.
    pub recorded: usize,
    /// Parents found by the rule's first pass: only one response came shortly before.
    pub only: usize,
    /// Parents found by its second pass: one of several was a parent already.
    pub chosen: usize,
    /// Parents found by its third pass: the last of several.
    pub last: usize,
    /// Initiators that are not in the recording; the rule decided instead.
    pub unknown_initiators: usize,
    /// Initiators requested only after the resource that names them, which includes all cycles; the
    /// rule decided instead.
    pub impossible_initiators: usize,
    /// Agreement of the rule with recorded initiators.
    pub agreement: Agreement,
}

/// Agreement of the rule with recorded initiators, by the pass that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Decided by the first pass.
    pub only: Agreed,
    /// Decided by the second pass.
    pub chosen: Agreed,
    /// Decided by the third pass.
    pub last: Agreed,
    /// Not decided: the rule found no parent.
    pub none: Agreed,
}

impl Agreement {
    /// Returns the sum of all passes.
    #[must_use]
    pub fn total(&self) -> Agreed {
        let mut total = Agreed::default();
        for pass in [self.only, self.chosen, self.last, self.none] {
            total.of += pass.of;
            total.agreed += pass.agreed;
        }
        total
    }

    /// Adds the counts of another page.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.only, other.only),
            (&mut self.chosen, other.chosen),
            (&mut self.last, other.last),
            (&mut self.none, other.none),
        ];
        for (sum, more) in pairs {
            sum.of += more.of;
            sum.agreed += more.agreed;
        }
    }

    fn count(&mut self, guess: Option<Guess>, recorded: &[usize]) {
        let pass = match guess.map(|(_, pass)| pass) {
            Some(Confidence::Only) => &mut self.only,
            Some(Confidence::Chosen) => &mut self.chosen,
            Some(Confidence::Last | Confidence::Recorded) => &mut self.last,
            None => &mut self.none,
        };
        pass.of += 1;
        pass.agreed += usize::from(guess.is_some_and(|(guess, _)| recorded.contains(&guess)));
    }
}

/// Count of the rule's parents, and of those that agree with the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreed {
    /// Number compared.
    pub of: usize,
    /// Number that agree.
    pub agreed: usize,
}

impl Agreed {
    /// Returns the share that agrees; `None` if nothing was compared.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    pub fn share(&self) -> Option<f64> {
        (self.of > 0).then(|| self.agreed as f64 / self.of as f64)
    }
}

/// Exchanges that a request waited for, by their places, all before its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// Places; the exchange that came last is first.
    pub(super) on: Vec<usize>,
    pub(super) confidence: Confidence,
    /// True if the first is a redirect to this one.
    pub(super) is_redirected: bool,
}

/// Finds what each exchange waited for; `exchanges` are in the order of their starts.
pub(super) fn find(exchanges: &[Exchange]) -> (Vec<Waits>, Parents) {
    let mut parents = Parents::default();
    let recorded = Recorded::new(exchanges);
    let mut waits = recorded.find(&mut parents);
    let moments: Vec<Moment> = exchanges.iter().map(moment).collect();
    let root = exchanges.iter().position(|exchange| exchange.ignored.is_none()).unwrap_or_default();
    for (at, guess) in
        rule::parents(&moments, |at: usize| waits.get(at).and_then(|one| one.on.first().copied()))
            .into_iter()
            .enumerate()
    {
        // The document itself waits for nothing but redirects.
        if let (Some((parent, confidence)), Some(one)) = (guess, waits.get_mut(at))
            && at > root
        {
            *one = Waits { on: vec![parent], confidence, is_redirected: false };
        }
    }
    parents.agreement = agreement(&moments, &waits);
    recorded.add_data(&mut waits);
    (splice(exchanges, &waits, &mut parents), parents)
}

fn moment(exchange: &Exchange) -> Moment {
    Moment {
        created: exchange.started(),
        first: exchange.first(),
        last: exchange.end(),
        may_ask: exchange.may_ask(),
    }
}

/// Compares the rule with the recording; redirects, which every recording has, do not count.
fn agreement(moments: &[Moment], waits: &[Waits]) -> Agreement {
    let guesses = rule::parents(moments, |at: usize| {
        waits.get(at).filter(|one| one.is_redirected)?.on.first().copied()
    });
    let mut agreement = Agreement::default();
    for (one, guess) in waits.iter().zip(guesses) {
        let is_recorded = one.confidence == Confidence::Recorded && !one.on.is_empty();
        if is_recorded && !one.is_redirected {
            agreement.count(guess, &one.on);
        }
    }
    agreement
}

/// Replaces each exchange that is not a resource by what it waited for itself.
fn splice(exchanges: &[Exchange], waits: &[Waits], parents: &mut Parents) -> Vec<Waits> {
    let mut spliced: Vec<Waits> = Vec::with_capacity(waits.len());
    for (exchange, one) in exchanges.iter().zip(waits) {
        let mut on = Vec::new();
        for &place in &one.on {
            match exchanges.get(place).is_some_and(|other| other.ignored.is_none()) {
                true => on.push(place),
                false => on.extend(spliced.get(place).into_iter().flat_map(|other| &other.on)),
            }
        }
        let on = last_first(exchanges, on);
        if exchange.ignored.is_none() {
            parents.count(on.is_empty(), one.confidence);
        }
        spliced.push(Waits { on, ..*one });
    }
    spliced
}

impl Parents {
    fn count(&mut self, is_root: bool, confidence: Confidence) {
        *match confidence {
            _ if is_root => &mut self.roots,
            Confidence::Recorded => &mut self.recorded,
            Confidence::Only => &mut self.only,
            Confidence::Chosen => &mut self.chosen,
            Confidence::Last => &mut self.last,
        } += 1;
    }
}

/// Removes duplicates, puts the exchange that came last first, and keeps at most [`STACK_SCRIPTS`].
fn last_first(exchanges: &[Exchange], mut on: Vec<usize>) -> Vec<usize> {
    on.sort_by_key(|&place| {
        let end = exchanges.get(place).map(Exchange::end).unwrap_or_default();
        std::cmp::Reverse((end, place))
    });
    on.dedup();
    on.truncate(STACK_SCRIPTS);
    on
}

/// Looks up the initiators of a recording.
struct Recorded<'a> {
    exchanges: &'a [Exchange],
    by_url: HashMap<UrlKey, Vec<usize>>,
    by_location: HashMap<UrlKey, Vec<usize>>,
    /// Data that scripts requested to read it themselves, by the URLs of the scripts.
    data_of: HashMap<UrlKey, Vec<usize>>,
}

impl<'a> Recorded<'a> {
    fn new(exchanges: &'a [Exchange]) -> Self {
        let mut by_url: HashMap<_, Vec<usize>> = HashMap::new();
        let mut by_location: HashMap<_, Vec<usize>> = HashMap::new();
        let mut data_of: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, exchange) in exchanges.iter().enumerate() {
            by_url.entry(exchange.key).or_default().push(place);
            if let Some(location) = exchange.location {
                by_location.entry(location).or_default().push(place);
            }
            if exchange.kind == Kind::Data && exchange.may_ask() && !exchange.is_preflight() {
                for script in &exchange.initiator.urls {
                    data_of.entry(*script).or_default().push(place);
                }
            }
        }
        Self { exchanges, by_url, by_location, data_of }
    }

    fn find(&self, parents: &mut Parents) -> Vec<Waits> {
        let mut leads_to = HashMap::new();
        let mut all = Vec::with_capacity(self.exchanges.len());
        for (place, exchange) in self.exchanges.iter().enumerate() {
            if let Some(from) = self.redirected_from(place, exchange, &leads_to) {
                leads_to.insert(from, place);
                all.push(Waits { on: vec![from], is_redirected: true, ..Waits::default() });
                continue;
            }
            let mut on = self.initiators(place, exchange, &leads_to, parents);
            on.extend(self.preflight(place, exchange));
            all.push(Waits { on: last_first(self.exchanges, on), ..Waits::default() });
        }
        all
    }

    /// Returns the last redirect to this URL that ended before, and has led nowhere else.
    fn redirected_from(
        &self,
        place: usize,
        exchange: &Exchange,
        leads_to: &HashMap<usize, usize>,
    ) -> Option<usize> {
        let places = self.by_location.get(&exchange.key)?;
        let before = places.get(..places.partition_point(|other| *other < place))?;
        before
            .iter()
            .rev()
            .take(REDIRECTS_SEEN)
            .find(|from: &&usize| {
                let from_exchange = self.exchanges.get(**from);
                !leads_to.contains_key(*from)
                    && from_exchange.is_some_and(|other| self.is_before(other, exchange))
            })
            .copied()
    }

    /// Returns the scripts, documents and style sheets that a request names, as they were before
    /// it.
    fn initiators(
        &self,
        place: usize,
        exchange: &Exchange,
        leads_to: &HashMap<usize, usize>,
        parents: &mut Parents,
    ) -> Vec<usize> {
        let asking = match exchange.is_preflight() {
            true => self.asked_leave(place, exchange).unwrap_or(exchange),
            false => exchange,
        };
        // A document's own URL does not tell what requested it.
        let mut urls = asking.initiator.urls.iter().filter(|key| **key != asking.key);
        let found = urls.clone().filter_map(|key| self.latest(*key, place));
        let mut on: Vec<usize> = found.map(|found| led_to(found, leads_to)).collect();
        // The previous page requested the navigation.
        if on.is_empty() && urls.clone().next().is_some() && place > 0 {
            match urls.any(|key| self.by_url.contains_key(key)) {
                true => parents.impossible_initiators += 1,
                false => parents.unknown_initiators += 1,
            }
        }
        on.dedup();
        on
    }

    fn add_data(&self, waits: &mut [Waits]) {
        for (place, (exchange, one)) in self.exchanges.iter().zip(waits).enumerate() {
            if one.confidence == Confidence::Recorded && !one.on.is_empty() {
                one.on.extend(self.data(place, exchange));
                one.on = last_first(self.exchanges, std::mem::take(&mut one.on));
            }
        }
    }

    /// Returns the data that one of its scripts had requested and that came just before: no stack
    /// says what a script waited for between two of its runs.
    fn data(&self, place: usize, exchange: &Exchange) -> Option<usize> {
        let scripts = exchange.initiator.urls.iter();
        let asked = scripts.filter_map(|script| {
            let places = self.data_of.get(script)?;
            let before = places.get(..places.partition_point(|other| *other < place))?;
            let mut recent = before.iter().rev().take(DATA_SEEN);
            recent.find(|other| {
                self.exchanges.get(**other).is_some_and(|other| {
                    self.is_before(other, exchange)
                        && other.end() + TRIGGER_WINDOW >= exchange.started()
                })
            })
        });
        asked.copied().max_by_key(|other| self.exchanges.get(*other).map(Exchange::end))
    }

    /// Returns the last exchange with this URL before a place.
    fn latest(&self, key: UrlKey, place: usize) -> Option<usize> {
        let places = self.by_url.get(&key)?;
        let before = places.partition_point(|other| *other < place).checked_sub(1)?;
        places.get(before).copied()
    }

    /// Returns the request that needed a preflight: to the same URL, and nearest in time.
    fn asked_leave(&self, place: usize, preflight: &Exchange) -> Option<&'a Exchange> {
        let places = self.by_url.get(&preflight.key)?.iter().filter(|other| **other != place);
        let others = places.filter_map(|other| self.exchanges.get(*other));
        others
            .filter(|other| !other.is_preflight())
            .min_by_key(|other: &&Exchange| other.started().abs_diff(preflight.started()))
    }

    /// Returns the preflight that ended before a request to the same URL.
    fn preflight(&self, place: usize, exchange: &Exchange) -> Option<usize> {
        let other = self.latest(exchange.key, place).filter(|_| !exchange.is_preflight())?;
        self.exchanges
            .get(other)
            .is_some_and(|other: &Exchange| other.is_preflight() && self.is_before(other, exchange))
            .then_some(other)
    }

    fn is_before(&self, other: &Exchange, exchange: &Exchange) -> bool {
        other.end() <= exchange.started() + ROUNDING
    }
}

/// Returns where the redirects of an exchange ended: stacks name a script by the URL that was
/// requested.
fn led_to(mut place: usize, leads_to: &HashMap<usize, usize>) -> usize {
    // Each depends on an earlier one.
    while let Some(next) = leads_to.get(&place) {
        place = *next;
    }
    place
}

/// Returns the part of a response that had arrived at a time, and the time since all of it had.
pub(super) fn part(on: &Exchange, at: Duration) -> (Part, Duration) {
    if on.end() <= at + ROUNDING {
        return (Part::Whole, at.saturating_sub(on.end()));
    }
    let (there, all) = (at.saturating_sub(on.first()), on.timings.receive);
    let share = there.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // no response has 2^53 bytes, and a share is in 0..1
    let bytes = (on.response_bytes as f64 * share.clamp(0.0, 1.0)) as u64;
    (Part::Bytes(bytes), Duration::ZERO)
}
