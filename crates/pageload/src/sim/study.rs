//! BLAST's questions to its simulator: the saving of each feature, alone and on top of others, and
//! of pipelining; and the same of the techniques of profile `tcp`.

use super::blast::{Feature, Features, Plan, Settings, Simulator};
use super::tcp::{self, Technique, Techniques};
use crate::page::Page;

/// Mean page load times, in seconds, with nothing done to save time, with one thing, and with more
/// and more.
#[derive(Clone, Debug, PartialEq)]
pub struct Savings<T> {
    /// Nothing.
    pub none: f64,
    /// Each alone.
    pub alone: Vec<(T, f64)>,
    /// Each with all before it.
    pub cumulative: Vec<(T, f64)>,
}

impl<T: Copy> Savings<T> {
    fn from_list(list: &[T], mean: impl Fn(&[T]) -> f64) -> Self {
        let alone = list.iter().map(|&one| (one, mean(&[one])));
        let cumulative = list.iter().zip(1..).map(|(&last, count)| (last, mean(&list[..count])));
        Self { none: mean(&[]), alone: alone.collect(), cumulative: cumulative.collect() }
    }
}

impl Savings<Feature> {
    /// Studies `pages` by the published rules, in the order of BLAST; see [`expected`].
    #[must_use]
    pub fn by_published_rules(
        pages: &[Page],
        settings: &Settings,
        hit_rate: f64,
        draws: u64,
    ) -> Self {
        Self::from_list(&Feature::ALL, |list| {
            let settings = Settings { features: Features::from_list(list), ..*settings };
            expected(pages, &settings, hit_rate, draws)
        })
    }
}

impl Savings<Technique> {
    /// Studies `pages` over TCP, for a `list` of techniques, over `draws` loads of each page.
    #[must_use]
    pub fn over_tcp(
        pages: &[Page],
        settings: &tcp::Settings,
        list: &[Technique],
        draws: u64,
    ) -> Self {
        Self::from_list(list, |list| {
            let settings =
                tcp::Settings { techniques: Techniques::from_list(list), ..settings.clone() };
            mean(
                loads(pages, draws)
                    .map(|(page, seed)| tcp::load(page, &settings, seed).page_load_time())
                    .map(|time| time.as_secs_f64()),
            )
        })
    }
}

/// Expected page load time of `pages` by the published rules, in seconds, over `draws` loads of
/// each, if the databases know a page with the probability `hit_rate`.
#[must_use]
pub fn expected(pages: &[Page], settings: &Settings, hit_rate: f64, draws: u64) -> f64 {
    let missed = Settings { features: settings.features.without_databases(), ..*settings };
    let hit = page_load_time(pages, settings, draws);
    if missed == *settings {
        return hit;
    }
    let hit_rate = hit_rate.clamp(0.0, 1.0);
    hit_rate * hit + (1.0 - hit_rate) * page_load_time(pages, &missed, draws)
}

/// Connections to a server, and requests on each, of which BLAST compares the page load times.
pub const PIPELINING: [(usize, usize); 5] = [(6, 6), (6, 20), (20, 6), (20, 20), (1, 100)];

/// Mean page load time of `pages` by the published rules, in seconds, for so many connections and
/// so many requests on each.
#[must_use]
pub fn pipelining(
    pages: &[Page],
    settings: &Settings,
    sweep: &[(usize, usize)],
    draws: u64,
) -> Vec<((usize, usize), f64)> {
    sweep
        .iter()
        .map(|&(connections, depth): &(usize, usize)| {
            let settings = Settings { http2: false, connections, depth, ..*settings };
            ((connections, depth), page_load_time(pages, &settings, draws))
        })
        .collect()
}

/// Mean, in seconds.
fn page_load_time(pages: &[Page], settings: &Settings, draws: u64) -> f64 {
    let mut simulator = Simulator::new();
    let means = pages.iter().map(|page| {
        let plan = Plan::new(page, settings);
        mean(
            (0..draws.max(1))
                .map(|seed| simulator.load(&plan, settings, seed).page_load_time().as_secs_f64()),
        )
    });
    mean(means)
}

fn loads(pages: &[Page], draws: u64) -> impl Iterator<Item = (&Page, u64)> {
    pages.iter().flat_map(move |page| (0..draws.max(1)).map(move |seed| (page, seed)))
}

/// Zero of nothing.
fn mean(times: impl Iterator<Item = f64>) -> f64 {
    let (total, count) = times.fold((0.0, 0.0), |(total, count), time| (total + time, count + 1.0));
    if count > 0.0 { total / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::page::{Dependency, Part, Protocol, Resource, Server};

    /// A redirect to a document, and what it names: all known to the databases.
    fn page() -> Page {
        let server = Server {
            host: "a.test".into(),
            port: 443,
            tls: true,
            anonymous: false,
            protocol: Protocol::Http2,
            pipelining: true,
            address: None,
        };
        let resource = |id: usize| {
            let on = |on| Dependency { on, part: Part::Whole, then: Duration::ZERO };
            Resource {
                dependencies: id
                    .checked_sub(1)
                    .map(|before| on(before.min(1)))
                    .into_iter()
                    .collect(),
                response_bytes: 2_000,
                in_prefetch_database: true,
                ..Resource::default()
            }
        };
        let resources = (0..30).map(resource).collect();
        Page::new("page".into(), vec![server], resources).unwrap().with_redirects(1)
    }

    #[test]
    fn databases_save_as_often_as_they_know_a_page() {
        let pages = [page(), page()];
        let savings = [0.0, 0.6, 1.0]
            .map(|hit_rate| Savings::by_published_rules(&pages, &Settings::default(), hit_rate, 2));
        for ((never, sometimes), always) in
            savings[0].alone.iter().zip(&savings[1].alone).zip(&savings[2].alone)
        {
            let between = 0.4 * never.1 + 0.6 * always.1;
            assert!((sometimes.1 - between).abs() < 1e-9, "{:?}", sometimes.0);
        }
        let [never, _, always] = savings;
        assert_eq!(never.alone[5], (Feature::PrefetchDatabase, never.none));
        assert!(always.alone[5].1 < never.none && always.alone[3].1 < never.none);
        assert!(always.cumulative.is_sorted_by(|one, more| more.1 <= one.1), "{always:?}");
        assert_eq!(always.cumulative[0].1, always.alone[0].1);
    }

    #[test]
    fn more_requests_at_a_time_are_sooner_done() {
        let sweep = [(1, 1), (6, 1), (6, 6)];
        let times = pipelining(&[page()], &Settings::default(), &sweep, 1);
        assert!(times.is_sorted_by(|few, more| more.1 < few.1), "{times:?}");
        assert_eq!(times.iter().map(|one| one.0).collect::<Vec<_>>(), sweep);
        assert!(pipelining(&[], &Settings::default(), &sweep, 1).iter().all(|one| one.1 == 0.0));
    }

    #[test]
    fn techniques_add_up() {
        let list = [Technique::TurboTls, Technique::RedirectDatabase];
        let savings = Savings::over_tcp(&[page()], &tcp::Settings::default(), &list, 1);
        assert_eq!(savings.cumulative[0], savings.alone[0]);
        assert!(savings.alone.iter().all(|one| one.1 < savings.none), "{savings:?}");
        assert!(savings.cumulative[1].1 < savings.alone[1].1, "{savings:?}");
    }
}
