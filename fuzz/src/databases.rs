//! Fuzz target of page databases, included by `crates/pageload/tests/main/databases/corpus.rs`.

use headstart_pageload::db::{Parts, read_columns, read_unverified, write_columns};
use headstart_proto::UnixSeconds;

/// Any columns, the first byte says of which databases: what is read is written and read the same,
/// and its URLs are as browsers read them. And any file.
pub fn databases(bytes: &[u8]) {
    let _ = read_unverified(bytes);
    let Some((first, columns)) = bytes.split_first() else { return };
    let [redirect, server, http2, prefetch] = [1, 2, 4, 8].map(|bit| first & bit != 0);
    let parts = Parts { redirect, server, http2, prefetch };
    let created = UnixSeconds((*first).into());
    if let Ok(database) = read_columns(columns, created, parts) {
        let targets = database.pages().iter().flat_map(|page| {
            let redirects = page.redirects.iter().flat_map(|of| [&of.from, of.to()]);
            let prefetch = page.prefetch.iter().map(|of| &of.target);
            [&page.document].into_iter().chain(redirects).chain(prefetch)
        });
        for target in targets {
            assert_eq!(target.to_string().parse().as_ref(), Ok(target), "as browsers read it");
        }
        let again = read_columns(&write_columns(&database), created, parts);
        assert_eq!(again, Ok(database));
    }
}
