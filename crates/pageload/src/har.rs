//! Pages from HAR files (<http://www.softwareishard.com/blog/har-12-spec/>), as browsers and other
//! programs write them.
//!
//! * **Parents**: what a page's requests were made for, as Chromium records it (`_initiator`:
//!   parser, or all scripts of the stack and of the stacks that led to it) and as redirects show;
//!   else by the rule of BLAST's appendix C.2, which [`Parents`] compares with what is recorded. A
//!   parent that was cached or pushed, and so is no resource, gives way to its own.
//! * **Offsets**: how much of the parent had come when a resource was asked for, if its bytes came
//!   evenly. What passed since the last byte of it was the client's time, to parse or to run
//!   scripts.
//! * **Server time**: `wait` without one round trip, which is the shortest time that TCP took to
//!   connect to that server.
//! * **Nothing is dropped**: each entry is a resource or counted in [`Page::ignored`] or
//!   [`Har::ignored`].
//!
//! A file is read in one pass and may be larger than memory: see [`limits`].
//!
//! ```
//! use headstart_pageload::har::{self, HarError};
//!
//! let error = har::read(br#"{"log": {"entries": []}}"#.as_slice()).unwrap_err();
//! assert!(matches!(error, HarError::Empty));
//! ```

pub(crate) mod bounded_json;
mod entry;
mod error;
mod exchange;
pub(crate) mod frames;
mod initiator;
pub mod limits;
mod parents;
mod recording;
mod rule;
pub(crate) mod stream;
pub(crate) mod value;

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::time::Duration;

pub use self::error::HarError;
pub use self::exchange::{Kind, Priority};
pub use self::parents::{Agreed, Agreement, Parents};

use self::entry::{Entry, RawPage};
use self::exchange::Exchange;
use self::limits::{ENTRIES, PAGES, URL_MAX};
use self::recording::PageFacts;
use self::stream::{BYTE_ORDER_MARK, Log, StreamError};
use self::value::{cut, unix_time};
use crate::page::{Ignored, Page, PageError, Reason};

/// First bytes of compressed files.
const HEAD: u64 = 8;

/// Contents of a file.
#[derive(Clone, Debug)]
pub struct Har {
    /// Pages, in their order; at least one.
    pub recordings: Vec<Recording>,
    /// Entries of pages without any resource, and entries without a page.
    pub ignored: Ignored,
    /// Number of all entries: resources and ignored ones.
    pub entries: usize,
}

/// A page, and the file's further facts about it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The page.
    pub page: Page,
    /// Facts of each of its resources, in their order.
    pub facts: Vec<Facts>,
    /// Sources of the resources' parents.
    pub parents: Parents,
    /// Round-trip time to each of its servers, in their order; it does not count as server time.
    pub round_trips: Vec<Duration>,
}

/// A file's facts about a resource that its page does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Purpose.
    pub kind: Kind,
    /// Priority by the browser, where recorded.
    pub priority: Option<Priority>,
    /// True if the page waits for it before it shows what follows: as recorded, otherwise by kind
    /// and priority.
    pub blocks_rendering: bool,
    /// Status of the response.
    pub status: u16,
}

impl Facts {
    fn from_exchange(exchange: &Exchange) -> Self {
        Self {
            kind: exchange.kind,
            priority: exchange.priority,
            blocks_rendering: exchange.blocks_rendering,
            status: exchange.status,
        }
    }
}

/// Reads a file to its end.
///
/// # Errors
/// It cannot be read, is no HAR file, larger than [`limits::HAR_BYTES`], or there is no resource in
/// it.
pub fn read(mut input: impl Read) -> Result<Har, HarError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut head).map_err(HarError::Io)?;
    if head.is_empty() {
        return Err(HarError::NoBytes);
    }
    if let Some(program) = crate::input::unpacked_by(&head) {
        return Err(HarError::Compressed(program));
    }
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let mut reader = Reader::default();
    stream::read(Cursor::new(head).chain(input), &mut reader).map_err(|error| match error {
        StreamError::Io(error) => HarError::Io(error),
        StreamError::TooLarge => HarError::TooLarge,
        StreamError::TooDeep => HarError::TooDeep,
        StreamError::Json { error, entry } => HarError::Json { error, entry },
    })?;
    reader.finish()
}

/// State kept while a file is read.
#[derive(Default)]
struct Reader {
    pages: Vec<(String, PageFacts)>,
    /// Names of pages that entries refer to.
    names: HashMap<String, usize>,
    exchanges: Vec<(Option<usize>, Exchange)>,
    /// Entries that nothing is kept of.
    ignored: Vec<(Option<usize>, Ignored)>,
    entries: usize,
}

impl Log for Reader {
    type Entry = Entry;
    type Page = RawPage;

    fn on_entry(&mut self, entry: Entry) {
        self.entries += 1;
        let name = entry.pageref.as_deref().map(|name| self.number(name));
        let (page, exchange) = match name {
            Some(None) => (None, Err(Reason::TooMany)),
            _ if self.exchanges.len() >= ENTRIES => (name.flatten(), Err(Reason::TooMany)),
            _ => (name.flatten(), Exchange::from_entry(&entry)),
        };
        match exchange {
            Ok(exchange) => self.exchanges.push((page, exchange)),
            Err(reason) => self.ignore(page, reason),
        }
    }

    fn on_page(&mut self, page: RawPage) {
        if self.pages.len() >= PAGES {
            return;
        }
        let facts = PageFacts {
            title: cut(page.title.text().unwrap_or_default().to_owned(), URL_MAX),
            started: page.started_date_time.text().and_then(unix_time),
            milestones: page.page_timings.unwrap_or_default().milestones(),
        };
        self.pages.push((cut(page.id.name().unwrap_or_default(), URL_MAX), facts));
    }
}

impl Reader {
    /// Returns the number of a page's name; `None` if there are too many.
    fn number(&mut self, name: &str) -> Option<usize> {
        let name = cut(name.to_owned(), URL_MAX);
        let next = self.names.len();
        match self.names.get(&name) {
            Some(number) => Some(*number),
            None if next >= PAGES => None,
            None => {
                self.names.insert(name, next);
                Some(next)
            }
        }
    }

    fn ignore(&mut self, page: Option<usize>, reason: Reason) {
        match self.ignored.iter_mut().find(|(other, _)| *other == page) {
            Some((_, ignored)) => ignored.add(reason),
            None => {
                let mut ignored = Ignored::default();
                ignored.add(reason);
                self.ignored.push((page, ignored));
            }
        }
    }

    fn finish(self) -> Result<Har, HarError> {
        let entries = self.entries;
        let (groups, mut ignored) = self.groups();
        let mut recordings = Vec::new();
        for Group { facts, exchanges, ignored: of_group } in groups {
            match recording::recording(&facts, exchanges, of_group) {
                Ok(recording) => recordings.push(recording),
                Err((PageError::Empty, more)) => ignored.merge(&more),
                Err((error, _)) => return Err(HarError::Page(error)),
            }
        }
        match (recordings.is_empty(), ignored.total()) {
            (true, 0) => Err(HarError::Empty),
            (true, _) => Err(HarError::AllIgnored(ignored)),
            (false, _) => Ok(Har { recordings, ignored, entries }),
        }
    }

    /// Groups entries by page; those without one come separately.
    fn groups(self) -> (Vec<Group>, Ignored) {
        let mut groups: Vec<Group> = Vec::new();
        let mut of_name: Vec<Option<usize>> = vec![None; self.names.len()];
        let mut names: Vec<(String, usize)> = self.names.into_iter().collect();
        names.sort_by_key(|(_, number)| *number);
        for (id, facts) in &self.pages {
            let name = names.iter().find(|(name, _)| name == id);
            if let Some(group) = name.and_then(|(_, number)| of_name.get_mut(*number)) {
                group.get_or_insert(groups.len());
            }
            groups.push(Group::new(facts.clone()));
        }
        // Without a list of pages each name is one; with but one page, all is of it.
        if groups.is_empty() {
            for group in &mut of_name {
                *group = Some(groups.len());
                groups.push(Group::default());
            }
        }
        if groups.is_empty() {
            groups.push(Group::default());
        }
        let only = (groups.len() == 1).then_some(0);
        let mut ignored = Ignored::default();
        for (name, exchange) in self.exchanges {
            let named = name.and_then(|name| of_name.get(name).copied().flatten());
            let group = named.or(only).or_else(|| match name {
                Some(_) => None,
                None => begun_before(&groups, exchange.started()),
            });
            match group.and_then(|group| groups.get_mut(group)) {
                Some(group) => group.exchanges.push(exchange),
                None => ignored.add(exchange.ignored.unwrap_or(Reason::NoPage)),
            }
        }
        for (name, more) in self.ignored {
            let named = name.and_then(|name| of_name.get(name).copied().flatten());
            match named.or(only).and_then(|group| groups.get_mut(group)) {
                Some(group) => group.ignored.merge(&more),
                None => ignored.merge(&more),
            }
        }
        (groups, ignored)
    }
}

/// The entries of one page.
#[derive(Default)]
struct Group {
    facts: PageFacts,
    exchanges: Vec<Exchange>,
    ignored: Ignored,
}

impl Group {
    fn new(facts: PageFacts) -> Self {
        Self { facts, ..Self::default() }
    }
}

/// Returns the number of the last page that had begun.
fn begun_before(groups: &[Group], at: Duration) -> Option<usize> {
    groups
        .iter()
        .enumerate()
        .filter_map(|(number, group): (usize, &Group)| {
            group.facts.started.filter(|started| *started <= at).map(|started| (started, number))
        })
        .max()
        .map(|(_, number)| number)
}
