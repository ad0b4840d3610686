//! Databases that have grown old: many of their entries name what is no longer so.

use std::sync::Arc;

use headstart_pageload::db::{
    Connect, Database, DatabaseError, Origin, PageEntry, Prefetch, Redirect, Target,
};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

/// Entries of a page and kind of which [`RIGHT`] are right, rounded down; BLAST counts with 60 %.
const OF: usize = 5;
const RIGHT: usize = 3;

/// Number of hosts that pages needed once: more than entries of servers that are wrong of a page.
const FORMER: usize = 16;

/// Hosts that pages needed once: they still answer, and no page needs them.
pub(super) fn former_hosts() -> Vec<String> {
    (1..=FORMER).map(|number| format!("former-{number}.test")).collect()
}

/// Makes a database old, by a draw of `seed`; returns it with the number of its wrong entries.
///
/// Each entry that is drawn is replaced by another:
/// * a redirect to a document leads to one step before it, where the document was when the entry
///   was learned, and from where the site redirects today;
/// * a server is one of [`former_hosts`];
/// * of the URLs every other one is gone (404), and every other one is that of an earlier version,
///   which the server still has.
pub(super) fn aged(database: &Database, seed: u64) -> Result<(Database, usize), DatabaseError> {
    let mut age = Age { draws: Xoshiro256PlusPlus::seed_from_u64(seed), wrong: 0 };
    let pages = database.pages().iter().map(|page| age.page(page)).collect();
    let http2 = database.http2().clone();
    let aged = Database::new(database.created(), database.parts(), pages, http2)?;
    Ok((aged, age.wrong))
}

struct Age {
    draws: Xoshiro256PlusPlus,
    wrong: usize,
}

impl Age {
    fn page(&mut self, page: &PageEntry) -> PageEntry {
        PageEntry {
            redirects: self.entries(&page.redirects, |_, redirect| moved(redirect)),
            servers: self.entries(&page.servers, former),
            prefetch: self.entries(&page.prefetch, outdated),
            ..page.clone()
        }
    }

    /// Returns entries of which some are replaced; `replace` gets how many were before it.
    fn entries<E: Clone>(
        &mut self,
        entries: &[E],
        replace: impl Fn(usize, &E) -> Option<E>,
    ) -> Vec<E> {
        let wrong = entries.len() - entries.len() * RIGHT / OF;
        let mut drawn: Vec<usize> = (0..entries.len()).collect();
        drawn.shuffle(&mut self.draws);
        self.wrong += wrong;
        let (wrong, right) = drawn.split_at(wrong);
        let replaced =
            wrong.iter().enumerate().filter_map(|(at, drawn)| replace(at, entries.get(*drawn)?));
        replaced.chain(right.iter().filter_map(|at| entries.get(*at).cloned())).collect()
    }
}

/// One that was made where the document was a step nearer; none of a single step.
fn moved(redirect: &Redirect) -> Option<Redirect> {
    let (_, hops) = redirect.hops.split_last()?;
    (!hops.is_empty()).then(|| Redirect { hops: hops.to_vec(), ..redirect.clone() })
}

fn former(at: usize, server: &Connect) -> Option<Connect> {
    let host = former_hosts().into_iter().nth(at)?;
    let origin = Origin::new(true, host.into(), server.origin.port).ok()?;
    Some(Connect { origin, ..server.clone() })
}

fn outdated(at: usize, prefetch: &Prefetch) -> Option<Prefetch> {
    let path = prefetch.target.path();
    let path: Arc<str> = match at % 2 {
        0 => format!("/gone{path}").into(),
        _ => format!("{path}?version=1").into(),
    };
    let target = Target::new(prefetch.target.origin.clone(), path).ok()?;
    Some(Prefetch { target, ..prefetch.clone() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use headstart_pageload::db::{Hop, Kind, Parts};
    use headstart_proto::UnixSeconds;

    use super::*;

    fn target(url: &str) -> Target {
        url.parse().unwrap()
    }

    fn hop(url: &str) -> Hop {
        Hop { to: target(url), permanent: false }
    }

    fn database() -> Database {
        let hosts = (0..20).map(|number| target(&format!("https://host-{number}.test/")).origin);
        let page = PageEntry {
            document: target("https://a.test/en/welcome"),
            recordings: 3,
            age_days: None,
            redirects: vec![Redirect {
                from: target("https://a.test/"),
                hops: vec![hop("https://a.test/en/"), hop("https://a.test/en/welcome")],
                of_document: true,
            }],
            servers: hosts
                .map(|origin| Connect { origin, anonymous: false, connections: 1 })
                .collect(),
            prefetch: (0..50)
                .map(|number| Prefetch {
                    target: target(&format!("https://a.test/{number}.js")),
                    kind: Kind::Script,
                })
                .collect(),
        };
        Database::new(UnixSeconds(1), Parts::ALL, vec![page], BTreeMap::new()).unwrap()
    }

    #[test]
    fn three_of_five_entries_stay_right() {
        let fresh = database();
        let (stale, wrong) = aged(&fresh, 1).unwrap();
        let [fresh, stale] = [&fresh, &stale].map(|database| &database.pages()[0]);
        assert_eq!((stale.servers.len(), stale.prefetch.len()), (20, 50));
        let servers: BTreeSet<_> = fresh.servers.iter().collect();
        assert_eq!(stale.servers.iter().filter(|server| servers.contains(server)).count(), 12);
        let urls: BTreeSet<_> = fresh.prefetch.iter().collect();
        assert_eq!(stale.prefetch.iter().filter(|url| urls.contains(url)).count(), 30);
        let gone = stale.prefetch.iter().filter(|url| url.target.path().starts_with("/gone/"));
        let earlier = stale.prefetch.iter().filter(|url| url.target.query().is_some());
        assert_eq!((gone.count(), earlier.count()), (10, 10));
        // Of one redirect, none.
        assert_eq!(stale.redirects[0].to(), &target("https://a.test/en/"));
        assert_eq!(wrong, 1 + 8 + 20);
    }

    #[test]
    fn a_seed_draws_the_same_entries_again() {
        let fresh = database();
        assert_eq!(aged(&fresh, 1).unwrap(), aged(&fresh, 1).unwrap());
        assert_ne!(aged(&fresh, 1).unwrap(), aged(&fresh, 2).unwrap());
    }
}
