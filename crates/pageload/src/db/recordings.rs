//! Recordings of many pages, and the database of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use headstart_proto::UnixSeconds;

use super::database::{
    Connect, Database, DatabaseError, Hop, PageEntry, Parts, Prefetch, Redirect, circles,
};
use super::learn::{Counts, Learned, Rules, Spoken, Unfit};
use super::limits::{ENTRIES_PER_PAGE, RECORDINGS, REQUESTS, URLS};
use super::target::{Target, TargetError};
use super::visit::{Facts, Fit, Known, Reduction, Visit};
use crate::page::Page;

/// Loads of pages, to learn from.
///
/// They are kept at about 16 bytes a request, and 200 for each URL.
#[derive(Debug, Default)]
pub struct Recordings {
    pub(super) known: Known,
    /// Recordings by document.
    pub(super) pages: BTreeMap<Target, Vec<Visit>>,
    count: usize,
    requests: usize,
    left_out: BTreeMap<LeftOut, u64>,
}

/// A database, with counts of what was left out.
#[derive(Clone, Debug)]
pub struct Built {
    /// The database learned.
    pub database: Database,
    /// Counts by reason; only those that occur.
    pub left_out: BTreeMap<LeftOut, u64>,
}

/// Reason why something recorded is not in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeftOut {
    /// Requests whose URLs are useless to others.
    Url(TargetError),
    /// Pages with fewer recordings than the rules require.
    FewRecordings,
    /// URLs that were not requested by GET, or with authorization, in some recording.
    Unsafe,
    /// URLs whose method was not recorded.
    UnknownMethod,
    /// URLs whose query was not recorded completely.
    CutQuery,
    /// URLs whose path was requested with other queries as well.
    VaryingQuery,
    /// http URLs on an https page.
    Mixed,
    /// URLs answered by something other than their content.
    Status,
    /// Redirects that pages disagree about.
    Disagreement,
    /// Redirects that go in circles.
    Circle,
    /// Entries beyond [`ENTRIES_PER_PAGE`].
    TooMany,
    /// Recordings that exist already: of the same moment, and equal in everything that counts.
    Twice,
}

impl Recordings {
    /// Starts without recordings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one load of a page.
    ///
    /// `at` is when it was made: without dates, loads have no order, and no age. Of one moment, the
    /// same load counts once. In which order recordings are added changes nothing.
    ///
    /// # Errors
    /// Its document's URL cannot be in a database, or there are too many recordings already.
    pub fn add(
        &mut self,
        page: &Page,
        at: Option<UnixSeconds>,
        facts: &Facts,
    ) -> Result<(), RecordingError> {
        let reduction = Reduction::from_page(page, facts);
        let document = reduction.document().map_err(RecordingError::Document)?.clone();
        let requests = self.requests + page.resources().len();
        if self.count >= RECORDINGS || requests > REQUESTS || self.known.targets.len() > URLS {
            return Err(RecordingError::TooMany);
        }
        for (why, count) in reduction.unreadable() {
            *self.left_out.entry(LeftOut::Url(why)).or_default() += count;
        }
        let visit = reduction.visit(at, &mut self.known);
        let visits = self.pages.entry(document).or_default();
        // By date, those without one first; of one date by content, so that the order in which they
        // come changes nothing.
        let place = visits.partition_point(|other| other.order() < visit.order());
        let is_there = visits.get(place).is_some_and(|other| other.order() == visit.order());
        if at.is_some() && is_there {
            *self.left_out.entry(LeftOut::Twice).or_default() += 1;
            return Ok(());
        }
        visits.insert(place, visit);
        (self.count, self.requests) = (self.count + 1, requests);
        Ok(())
    }

    /// Returns the number of recordings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of different documents.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Builds the database of all recordings, made at `created`.
    ///
    /// # Errors
    /// There are more pages or hosts than a file may have.
    pub fn build(
        &self,
        rules: &Rules,
        parts: Parts,
        created: UnixSeconds,
    ) -> Result<Built, DatabaseError> {
        let mut left_out = self.left_out.clone();
        let mut pages = Vec::new();
        for (document, visits) in &self.pages {
            let visits = newest(visits, rules);
            let counts = Counts::from_visits(visits);
            if counts.visits < rules.recordings_min {
                *left_out.entry(LeftOut::FewRecordings).or_default() += 1;
                continue;
            }
            let learned = counts.learned(rules, |target| self.path_of(target));
            note(&learned, parts, &mut left_out);
            let at = visits.iter().filter_map(|visit| visit.at).max();
            let age_days = at.map(|at| days(created, at));
            let entry = self.entry(document.clone(), &learned);
            pages.push(PageEntry { recordings: counts.visits, age_days, ..entry });
        }
        agree(&mut pages, &mut left_out);
        pages.iter_mut().for_each(|page| shorten(page, &mut left_out));
        let database = Database::new(created, parts, pages, self.http2(rules))?;
        Ok(Built { database, left_out })
    }

    /// Returns the path of a URL with a query.
    pub(super) fn path_of(&self, target: u32) -> Option<u32> {
        let target = self.known.targets.name(target).filter(|target| target.query().is_some())?;
        self.known.targets.find(&target.without_query())
    }

    fn target(&self, number: u32) -> Option<Target> {
        self.known.targets.name(number).cloned()
    }

    fn entry(&self, document: Target, learned: &Learned) -> PageEntry {
        PageEntry {
            document,
            recordings: 0,
            age_days: None,
            redirects: learned
                .redirects
                .iter()
                .filter_map(|(&from, &chain): (&u32, &u32)| {
                    let chain = self.known.chains.name(chain)?;
                    let hops = chain
                        .hops
                        .iter()
                        .map(|&(to, permanent): &(u32, bool)| {
                            Some(Hop { to: self.target(to)?, permanent })
                        })
                        .collect::<Option<_>>()?;
                    let from = self.target(from)?;
                    Some(Redirect { from, hops, of_document: chain.of_document })
                })
                .collect(),
            servers: learned
                .servers
                .iter()
                .filter_map(|(&server, &connections): (&u32, &u8)| {
                    let (origin, anonymous) = self.known.servers.name(server)?.clone();
                    Some(Connect { origin, anonymous, connections })
                })
                .collect(),
            prefetch: learned
                .prefetch
                .iter()
                .filter_map(|(url, wanted)| {
                    Some(Prefetch { target: self.target(*url)?, kind: wanted.kind })
                })
                .collect(),
        }
    }

    fn http2(&self, rules: &Rules) -> BTreeMap<String, super::Http2> {
        let mut spoken = Spoken::default();
        self.pages.values().flat_map(|visits| newest(visits, rules)).for_each(|of| spoken.add(of));
        let speaks =
            |host| Some((self.known.hosts.name(host)?.clone(), spoken.speaks(host, rules)?));
        spoken.hosts().filter_map(speaks).collect()
    }
}

/// Returns the newest visits; `visits` are in order of date.
pub(super) fn newest<'v>(visits: &'v [Visit], rules: &Rules) -> &'v [Visit] {
    &visits[visits.len().saturating_sub(rules.newest)..]
}

fn note(learned: &Learned, parts: Parts, left_out: &mut BTreeMap<LeftOut, u64>) {
    if !parts.prefetch {
        return;
    }
    for (why, count) in &learned.unfit {
        let why = match why {
            Unfit::Query => LeftOut::VaryingQuery,
            Unfit::Fit(Fit::Unsafe) => LeftOut::Unsafe,
            Unfit::Fit(Fit::Unknown) => LeftOut::UnknownMethod,
            Unfit::Fit(Fit::Cut) => LeftOut::CutQuery,
            Unfit::Fit(Fit::Mixed) => LeftOut::Mixed,
            Unfit::Fit(Fit::Status) => LeftOut::Status,
            // The page itself, or in another database.
            Unfit::Fit(Fit::Redirect | Fit::Good) => continue,
        };
        *left_out.entry(why).or_default() += count;
    }
}

/// Keeps each redirect in one page only; drops those that pages disagree about or that never end.
fn agree(pages: &mut [PageEntry], left_out: &mut BTreeMap<LeftOut, u64>) {
    let mut leads: HashMap<Target, Option<Target>> = HashMap::new();
    for redirect in pages.iter().flat_map(|page| &page.redirects) {
        let known = leads.entry(redirect.from.clone()).or_insert(Some(redirect.to().clone()));
        if known.as_ref() != Some(redirect.to()) {
            *known = None;
        }
    }
    let pairs = leads.iter().filter_map(|(from, to)| Some((from, to.as_ref()?))).collect();
    let endless: HashSet<Target> = circles(&pairs).into_iter().cloned().collect();
    let mut taken = HashSet::new();
    for page in pages {
        page.redirects.retain(|redirect| {
            let why = if leads.get(&redirect.from) == Some(&None) {
                LeftOut::Disagreement
            } else if endless.contains(&redirect.from) {
                LeftOut::Circle
            } else {
                return taken.insert(redirect.from.clone());
            };
            *left_out.entry(why).or_default() += 1;
            false
        });
    }
}

fn shorten(page: &mut PageEntry, left_out: &mut BTreeMap<LeftOut, u64>) {
    let lengths = [page.redirects.len(), page.servers.len(), page.prefetch.len()];
    let over: usize = lengths.iter().map(|length| length.saturating_sub(ENTRIES_PER_PAGE)).sum();
    if over > 0 {
        *left_out.entry(LeftOut::TooMany).or_default() += over as u64;
        page.redirects.truncate(ENTRIES_PER_PAGE);
        page.servers.truncate(ENTRIES_PER_PAGE);
        page.prefetch.truncate(ENTRIES_PER_PAGE);
    }
}

fn days(later: UnixSeconds, earlier: UnixSeconds) -> u32 {
    u32::try_from(later.since(earlier).as_secs() / 86_400).unwrap_or(u32::MAX)
}

/// Reason why a recording is not learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingError {
    /// The URL of its document cannot be in a database.
    Document(TargetError),
    /// [`RECORDINGS`], [`REQUESTS`] or [`URLS`] is exceeded.
    TooMany,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(why) => {
                write!(f, "the URL of its document is not for a database: {why}")
            }
            Self::TooMany => {
                write!(f, "more than {RECORDINGS} recordings, {REQUESTS} requests or {URLS} URLs")
            }
        }
    }
}

impl std::error::Error for RecordingError {}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "requests with a URL that is not for others: {why}"),
            Self::FewRecordings => f.write_str("pages with too few recordings"),
            Self::Unsafe => {
                f.write_str("URLs not asked for by GET, without authorization, each time")
            }
            Self::UnknownMethod => f.write_str("URLs with a method that was not recorded"),
            Self::CutQuery => f.write_str("URLs with a query that was not recorded whole"),
            Self::VaryingQuery => f.write_str("URLs with a query that varies"),
            Self::Mixed => f.write_str("http URLs on an https page"),
            Self::Status => f.write_str("URLs with an answer other than 200"),
            Self::Disagreement => f.write_str("redirects that pages disagree about"),
            Self::Circle => f.write_str("redirects that go in circles"),
            Self::TooMany => f.write_str("entries beyond what a page may have"),
            Self::Twice => f.write_str("recordings that are there already"),
        }
    }
}
