//! Recordings of real pages, several of each, without dates. Nothing of their URLs is printed.

use headstart_pageload::db::{Facts, Figures, Horizon, Parts, Recordings, Rules, write};
use headstart_proto::UnixSeconds;

use crate::published::logged;

#[test]
fn published_loads_are_told_from_others_of_their_pages() {
    let Some(pages) = logged() else { return };
    let mut recordings = Recordings::new();
    for logged in pages {
        recordings.add(&logged.page, None, &Facts::published()).unwrap();
    }
    assert_eq!(recordings.count(), 96);
    let rules = Rules::default();
    let built = recordings.build(&rules, Parts::ALL, UnixSeconds(0)).unwrap();
    let pages = built.database.pages();
    println!(
        "{} documents, {} in the database: {} redirects, {} servers, {} URLs; {} bytes",
        recordings.page_count(),
        pages.len(),
        pages.iter().flat_map(|page| &page.redirects).count(),
        pages.iter().flat_map(|page| &page.servers).count(),
        pages.iter().flat_map(|page| &page.prefetch).count(),
        write(&built.database, None).unwrap().len()
    );
    for (why, count) in &built.left_out {
        println!("  left out: {why}: {count}");
    }
    let figures = recordings.figures(&rules, Horizon::LeaveOneOut);
    println!("leave one out: {} loads, {} known", figures.loads, figures.known);
    let Figures { redirect, server, connections, http2, prefetch, prefetch_bytes, .. } = figures;
    for (name, tally) in [
        ("redirect", redirect),
        ("server", server),
        ("connections", connections),
        ("http2", http2),
        ("prefetch", prefetch),
        ("prefetch bytes", prefetch_bytes),
    ] {
        let [hits, wrong] = [tally.hits(), tally.false_positives()]
            .map(|share| share.map_or(-1.0, |share| share * 100.0));
        println!("  {name}: {hits:.1} % hits, {wrong:.1} % false positives ({tally:?})");
    }
    // The rule promises that what is prefetched is in nine of ten loads.
    assert!(prefetch.false_positives().unwrap() < 0.1);
    assert!(server.false_positives().unwrap() < 0.1);
    assert!(redirect.false_positives().unwrap() < 0.1);
}
