//! Fuzz targets of headstart-pageload, included by `crates/pageload/tests/main/fuzz_replay.rs`.

use headstart_pageload::har::{self, HarError};
use headstart_pageload::tree::{self, CriticalPath, Tree};

/// Any HAR file: each entry is a resource or counted, parents come first, and the parts of the load
/// time are all of it.
pub fn har(bytes: &[u8]) {
    let har = match har::read(bytes) {
        Ok(har) => har,
        Err(error) => return assert_refused(&error),
    };
    let mut entries = har.ignored.total();
    for recording in &har.recordings {
        let page = &recording.page;
        let resources = page.resources();
        entries += resources.len() + page.ignored().total();
        assert_eq!(recording.facts.len(), resources.len());
        assert_eq!(recording.round_trips.len(), page.servers().len());
        assert_eq!(tree::head_of_line(page).len(), resources.len());
        let lines = Tree::from_page(page).lines();
        assert_eq!(lines.len(), resources.len());
        let last = resources.iter().filter_map(|one| Some(one.measured?.end())).max();
        let path = CriticalPath::from_page(page);
        assert_eq!(path.map(|path| path.breakdown.total()), last);
        let of = recording.parents;
        let known = of.roots + of.recorded + of.only + of.chosen + of.last;
        assert_eq!(known, resources.len());
        let redirects = resources.iter().take(page.redirects());
        assert!(redirects.into_iter().all(|one| one.redirect));
    }
    assert_eq!(entries, har.entries);
}

/// Errors say something, and something to do.
fn assert_refused(error: &HarError) {
    assert!(!error.to_string().is_empty() && !error.hint().is_empty());
    if let HarError::AllIgnored(ignored) = error {
        assert!(ignored.total() > 0);
    }
}
