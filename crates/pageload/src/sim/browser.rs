//! Behaviour of the browser as recordings tell it, beside the network: which requests it may hold
//! back, what waited for what, and the time of its processor.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::tcp::{self, Settings};
use crate::har::{Facts, Kind, Priority};
use crate::page::{Dependency, Page, Part, Resource, Timings, Urgency};

/// Time by which clocks of one recording may disagree.
const ROUNDING: Duration = Duration::from_millis(1);

/// Halvings of the share of the client's time that makes a simulated load as long as the recorded
/// one: to half a percent.
const HALVINGS: usize = 8;

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Returns loads of one page, as recorded with nothing over the link of `settings`, with what they
/// tell of the browser. Each comes with the facts about its resources, in their order.
///
/// * **Urgency**, by the priority that the browser gave a request.
/// * **Dependencies** that no other of the loads contradicts: which data a script waited for is
///   guessed from times, and what came before it in one load by chance comes after it in another.
/// * **The client's time**: what a resource took longer than in a simulated load. All of it if the
///   simulated load is no longer than the recorded one then, otherwise the share that makes both
///   equally long.
#[must_use]
pub fn in_browser(loads: &[(Page, &[Facts])], settings: &Settings) -> Vec<Page> {
    let spans: Vec<Spans<'_>> = loads.iter().map(|(page, _)| spans(page)).collect();
    let pages = loads.iter().map(|(page, facts)| {
        let page = without_contradicted(page, &spans).with_urgencies(urgencies(page, facts));
        with_client_time(&page, settings)
    });
    pages.collect()
}

fn urgencies(page: &Page, facts: &[Facts]) -> BTreeMap<String, Urgency> {
    let both = page.resources().iter().zip(facts);
    let known = both.filter_map(|(resource, facts): (&Resource, &Facts)| {
        let urgency = match (facts.priority?, facts.kind) {
            (Priority::High | Priority::VeryHigh, _) => return None,
            (_, Kind::Image | Kind::Media) => Urgency::Delayable,
            _ => Urgency::UrgentAsPreload,
        };
        Some((resource.url.clone(), urgency))
    });
    known.collect()
}

/// When each resource of a load was requested, and when it was there, by its URL; none of those
/// that it has twice.
type Spans<'a> = HashMap<&'a str, Option<Timings>>;

fn spans(page: &Page) -> Spans<'_> {
    let mut spans = HashMap::new();
    for resource in page.resources() {
        let twice = spans.contains_key(resource.url.as_str());
        spans.insert(resource.url.as_str(), resource.measured.filter(|_| !twice));
    }
    spans
}

/// Returns the page without dependencies that one of the loads contradicts, except the last left.
fn without_contradicted(page: &Page, loads: &[Spans<'_>]) -> Page {
    page.map_resources(|_, resource| {
        let Some(measured) = resource.measured else { return };
        let all = resource.dependencies.iter().copied();
        let mut kept: Vec<Dependency> =
            all.filter(|on| is_confirmed(page, resource, *on, loads)).collect();
        if kept.is_empty() {
            kept.extend(resource.dependencies.last());
        }
        if kept.len() == resource.dependencies.len() {
            return;
        }
        // The client's time counts from the last of those that are left.
        if let Some(first) = kept.first_mut().filter(|first| first.part == Part::Whole) {
            let end = page.resources()[first.on].measured.map(|of| of.end()).unwrap_or_default();
            first.then = measured.started.saturating_sub(end);
        }
        resource.dependencies = kept;
    })
}

/// Returns true if no load contradicts a dependency. Only dependencies on whole resources can be.
fn is_confirmed(page: &Page, resource: &Resource, on: Dependency, loads: &[Spans<'_>]) -> bool {
    let parent = page.resources()[on.on].url.as_str();
    on.part != Part::Whole || loads.iter().all(|load| is_after(load, &resource.url, parent))
}

/// Returns false if a load requested a resource before another was there.
fn is_after(load: &Spans<'_>, resource: &str, parent: &str) -> bool {
    let [resource, parent] = [resource, parent].map(|url| load.get(url).copied().flatten());
    resource.zip(parent).is_none_or(|(own, on)| own.started + ROUNDING >= on.end())
}

/// Returns the page with the client's time as time of its servers.
fn with_client_time(page: &Page, settings: &Settings) -> Page {
    let Some(recorded) = page.recorded().page_load_time else { return page.clone() };
    let longer = longer_than_simulated(page, settings);
    let all = with_share(page, &longer, 1.0);
    if page_load_time(&all, settings) <= recorded {
        return all;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let time = page_load_time(&with_share(page, &longer, middle), settings);
        *(if time > recorded { &mut high } else { &mut low }) = middle;
    }
    with_share(page, &longer, low)
}

fn page_load_time(page: &Page, settings: &Settings) -> Duration {
    tcp::load(page, settings, SEED).page_load_time()
}

/// Returns for each resource how much longer than in a simulated load it took.
fn longer_than_simulated(page: &Page, settings: &Settings) -> Vec<Duration> {
    let simulated = tcp::load(page, settings, SEED);
    let both = page.resources().iter().zip(&simulated.resources);
    let longer = both.map(|(resource, times)| {
        let of_network = times.last.saturating_sub(times.created);
        resource.measured.map_or(Duration::ZERO, |measured| {
            measured.end().saturating_sub(measured.started).saturating_sub(of_network)
        })
    });
    longer.collect()
}

/// Adds a share of times to those of servers.
fn with_share(page: &Page, longer: &[Duration], share: f64) -> Page {
    page.map_resources(|id, resource| {
        resource.server_time += longer.get(id).copied().unwrap_or_default().mul_f64(share);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Protocol, Recorded, Server};

    const MS: Duration = Duration::from_millis(1);

    /// A resource requested at one time and there at another, in ms.
    fn resource(url: &str, on: &[usize], started: u32, end: u32) -> Resource {
        let wait = MS * (end - started);
        Resource {
            dependencies: on.iter().map(|&on| Dependency::whole(on)).collect(),
            response_bytes: 1_000,
            url: url.into(),
            measured: Some(Timings { started: MS * started, wait, ..Timings::default() }),
            ..Resource::default()
        }
    }

    fn page(resources: Vec<Resource>, page_load_ms: u32) -> Page {
        let servers = vec![Server::https("a.test", Protocol::Http2)];
        let page_load_time = Some(MS * page_load_ms);
        Page::new("page".into(), servers, resources)
            .unwrap()
            .with_recorded(Recorded { page_load_time, ..Recorded::default() })
    }

    /// Returns what the last resource of each page depends on.
    fn on(pages: &[Page]) -> Vec<Vec<usize>> {
        let last = pages.iter().map(|page| &page.resources()[3].dependencies);
        last.map(|on| on.iter().map(|on| on.on).collect()).collect()
    }

    fn facts(priority: Priority, kind: Kind) -> Facts {
        Facts { kind, priority: Some(priority), blocks_rendering: false, status: 200 }
    }

    #[test]
    fn the_clients_time_makes_a_load_as_long_as_recorded() {
        let settings = Settings::default();
        // Three round trips of 50 ms, and one: 150 ms and 50 ms by the network.
        let slow = page(vec![resource("a", &[], 0, 190), resource("b", &[0], 190, 260)], 260);
        let [slow] = in_browser(&[(slow, &[])], &settings).try_into().unwrap();
        let load = tcp::load(&slow, &settings, SEED);
        assert!(load.page_load_time().abs_diff(MS * 260) < MS, "{load:?}");
        let added = slow.resources().iter().map(|one| one.server_time.as_millis());
        assert_eq!(added.collect::<Vec<_>>(), [39, 20]);
        // A resource that took longer, in a load that did not.
        let short = page(vec![resource("a", &[], 0, 190), resource("b", &[0], 190, 200)], 220);
        let [short] = in_browser(&[(short, &[])], &settings).try_into().unwrap();
        let load = tcp::load(&short, &settings, SEED);
        assert!(load.page_load_time() <= MS * 220 && load.page_load_time() > MS * 218, "{load:?}");
    }

    #[test]
    fn dependencies_that_another_load_contradicts_go() {
        let both = [220, 280].map(|data_end| {
            let resources = vec![
                resource("a", &[], 0, 150),
                resource("script", &[0], 150, 200),
                resource("data", &[0], 150, data_end),
                resource("last", &[2, 1], 230, 300),
            ];
            (page(resources, 300), &[][..])
        });
        let pages = in_browser(&both, &Settings::default());
        assert_eq!(on(&pages), [[1], [1]]);
        assert_eq!(pages[0].resources()[3].dependencies[0].then, MS * 30);
        assert_eq!(on(&in_browser(&both[..1], &Settings::default())), [[2, 1]]);
    }

    #[test]
    fn urgency_is_by_priority_and_kind() {
        let urls = ["a", "script", "picture", "style"];
        let resources = urls.iter().enumerate();
        let resources = resources.map(|(id, url)| resource(url, &[0][..id.min(1)], 0, 150));
        let facts = [
            facts(Priority::VeryHigh, Kind::Document),
            facts(Priority::Low, Kind::Script),
            facts(Priority::Medium, Kind::Image),
            facts(Priority::High, Kind::Style),
        ];
        let loads = [(page(resources.collect(), 150), &facts[..])];
        let [page] = in_browser(&loads, &Settings::default()).try_into().unwrap();
        let found: Vec<Urgency> = page.resources().iter().map(|one| page.urgency(one)).collect();
        let expected =
            [Urgency::Urgent, Urgency::UrgentAsPreload, Urgency::Delayable, Urgency::Urgent];
        assert_eq!(found, expected);
    }
}
