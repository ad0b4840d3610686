//! `--database`: what a signed file knows of pages, where a hit rate would only say how often it
//! knows them.

use std::path::PathBuf;

use headstart_pageload::db::{Coverage, Database, Tally};
use headstart_pageload::page::Page;
use serde::Serialize;

use super::db;
use super::show::text::bytes;
use super::text::grouped;
use crate::chart::figure::percent;
use crate::pageload::plan::options::SimulatorOptions;
use crate::table::table;
use headstart::base::failure::Failure;

/// A file that is used.
#[derive(Debug)]
pub(super) struct Source {
    file: PathBuf,
    database: Database,
}

/// Share of all pages that a file knew, as it stands in reports.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Used {
    file: String,
    made: String,
    #[serde(flatten)]
    pub(super) coverage: Coverage,
}

impl Source {
    /// The one that the options name.
    pub(super) fn open(options: &SimulatorOptions) -> Result<Option<Self>, Failure> {
        options
            .database
            .as_ref()
            .map(|file: &PathBuf| {
                let database = db::signed(file, &options.key)?;
                Ok(Self { file: file.clone(), database })
            })
            .transpose()
    }

    /// Returns true if it may have been made of this load.
    pub(super) fn may_be_learned_from(&self, page: &Page) -> bool {
        self.database.may_be_learned_from(page)
    }

    /// Returns the share for these pages.
    pub(super) fn used<'a>(&self, of: impl IntoIterator<Item = &'a Coverage>) -> Used {
        let mut coverage = Coverage::default();
        of.into_iter().for_each(|page| coverage.merge(page));
        let made = db::date(self.database.created());
        Used { file: self.file.display().to_string(), made, coverage }
    }
}

/// A page with what a database, if there is one, knows of it.
pub(super) fn known(source: Option<&Source>, page: Page) -> (Page, Option<Coverage>) {
    match source {
        None => (page, None),
        Some(source) => {
            let (page, coverage) = source.database.apply(&page);
            (page, Some(coverage))
        }
    }
}

impl Used {
    /// Describes one page, or all.
    pub(super) fn text(&self) -> String {
        let title = format!("\nWhat {} has of what was needed\n", self.title());
        title + &table(&self.table(), &[0]) + "  * taken to be as large as the page's others\n"
    }

    pub(super) fn title(&self) -> String {
        format!("{} (made {})", self.file, self.made)
    }

    /// Table with a header.
    pub(super) fn table(&self) -> Vec<Vec<String>> {
        let Coverage { pages, redirects, servers, http2, prefetch, prefetch_bytes } = self.coverage;
        vec![
            ["", "needed", "in it", "share", "in vain"].map(str::to_owned).into(),
            row("pages", pages, grouped),
            row("redirects to them", redirects, grouped),
            row("servers", servers, grouped),
            row("HTTP/2 hosts", http2, grouped),
            row("URLs to prefetch", prefetch, grouped),
            row("bytes of these *", prefetch_bytes, bytes),
        ]
    }
}

fn row(name: &str, tally: Tally, count: impl Fn(u64) -> String) -> Vec<String> {
    let Tally { used, wrong, missed } = tally;
    let share = tally.hits().map_or_else(|| "–".into(), percent);
    vec![name.to_owned(), count(used + missed), count(used), share, count(wrong)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_parts_are_present_or_missing() {
        let prefetch = Tally { used: 1_500, wrong: 7, missed: 500 };
        let coverage = Coverage { prefetch, ..Coverage::default() };
        let used = Used { file: "a.hsdb".into(), made: "today".into(), coverage };
        let table = used.table();
        assert_eq!(table[5], ["URLs to prefetch", "2,000", "1,500", "75.0 %", "7"]);
        assert_eq!(table[1], ["pages", "0", "0", "–", "0"]);
        assert!(used.text().starts_with("\nWhat a.hsdb (made today) has of what was needed\n"));
    }
}
