//! Finds what a page waits for: its load time if something took no time, and a simulated load as if
//! it had been recorded.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use super::saved;
use crate::page::{Dependency, Page, Resource, Timings};
use crate::sim::profile::{Expected, Model, Profile};
use crate::sim::tcp::{Revisit, Techniques};
use crate::sim::{Load, Times};

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// All round trips: of lookups, openings and requests. Bandwidth and the time of both ends
    /// remain.
    RoundTrips,
    /// Opening connections: there is an idle one to each server at the start.
    Openings,
    /// The bandwidth of the link.
    Bandwidth,
    /// Time that servers need to respond.
    Servers,
    /// Time that the client needs before requests: parsing, scripts.
    Client,
}

/// Load time of a page if one thing took no time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Without {
    /// The thing that takes no time.
    pub cost: Cost,
    /// Time until 95 % of the resources are loaded, in ms.
    pub page_load_ms: f64,
    /// Share by which the page load time is lower. These shares do not add up: costs that overlap
    /// count twice, or never.
    pub saved: f64,
}

/// Returns the load times without each of the costs that the profile models.
pub(super) fn without(model: &Model, page: &Page, none: Expected) -> Vec<Without> {
    let profile = &model.profile;
    let page = Cow::Borrowed(page);
    let mut all = vec![(Cost::RoundTrips, profile.with_rtt(Duration::ZERO), page.clone())];
    match profile {
        Profile::Blast(_) => all.push((Cost::Bandwidth, profile.with_rate(u64::MAX), page)),
        Profile::Tcp(settings) => {
            let mut warm = settings.clone();
            warm.revisit = Revisit { connections: 1.0, addresses: 1.0, ..warm.revisit };
            all.push((Cost::Openings, Profile::Tcp(warm), page.clone()));
            let mut wide = settings.clone();
            (wide.link.down, wide.link.up) = (None, None);
            all.push((Cost::Bandwidth, Profile::Tcp(wide), page.clone()));
            let quick = changed(&page, |resources| {
                resources.iter_mut().for_each(|one| one.server_time = Duration::ZERO);
            });
            all.extend(quick.map(|page| (Cost::Servers, profile.clone(), Cow::Owned(page))));
            let at_once = changed(&page, |resources| {
                let waits = resources.iter_mut().flat_map(|one| &mut one.dependencies);
                waits.for_each(|on| on.then = Duration::ZERO);
            });
            all.extend(at_once.map(|page| (Cost::Client, profile.clone(), Cow::Owned(page))));
        }
    }
    all.into_iter()
        .map(|(cost, profile, page): (Cost, Profile, Cow<'_, Page>)| {
            let model = Model { profile, ..model.clone() };
            let page_load_ms = model.expected(&page, Techniques::default()).page_load_ms;
            Without { cost, page_load_ms, saved: saved(none.page_load_ms, page_load_ms) }
        })
        .collect()
}

/// Returns the page with changed resources, but as many.
fn changed(page: &Page, change: impl FnOnce(&mut [Resource])) -> Option<Page> {
    let mut resources = page.resources().to_vec();
    change(&mut resources);
    let same = Page::new(page.name().into(), page.servers().to_vec(), resources).ok()?;
    Some(same.with_redirects(page.redirects()))
}

/// Returns a page as if a simulated load of it had been recorded; `None` if the load is of other
/// resources.
///
/// The queue of a resource is until its request is sent, with the opening of the connection. Of
/// several dependencies the one that was met last is its parent.
pub(super) fn as_recorded(page: &Page, load: &Load) -> Option<Page> {
    if page.resources().len() != load.resources.len() {
        return None;
    }
    let begin = load.resources.iter().map(|times| times.created).min()?;
    let mut times = load.resources.iter();
    changed(page, |resources| {
        for resource in resources.iter_mut() {
            resource.measured = times.next().map(|times| timings(times, begin));
        }
        for id in 0..resources.len() {
            let decided = (0..)
                .zip(&resources[id].dependencies)
                .max_by_key(|(at, on)| (met(resources.get(on.on), on), std::cmp::Reverse(*at)));
            if let Some(place) = decided.map(|(at, _): (usize, _)| at) {
                resources[id].dependencies.swap(0, place);
            }
        }
    })
}

fn timings(times: &Times, begin: Duration) -> Timings {
    Timings {
        started: times.created.saturating_sub(begin),
        queued: times.sent.saturating_sub(times.created),
        wait: times.first.saturating_sub(times.sent),
        receive: times.last.saturating_sub(times.first),
        ..Timings::default()
    }
}

/// Returns the approximate time at which a dependency was met, assuming that bytes arrive evenly
/// from the first to the last.
fn met(parent: Option<&Resource>, on: &Dependency) -> Duration {
    let Some((parent, timings)) = parent.and_then(|parent| Some((parent, parent.measured?))) else {
        return Duration::ZERO;
    };
    let bytes = on.part.bytes_of(parent.response_bytes).max(1);
    let share = bytes as f64 / parent.response_bytes.max(1) as f64;
    let first = timings.end().saturating_sub(timings.receive);
    let there = first.saturating_add(timings.receive.mul_f64(share.min(1.0)));
    there.saturating_add(on.then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Part, Protocol, Server};
    use crate::tree::CriticalPath;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn server() -> Server {
        Server::https("a.test", Protocol::Http2)
    }

    /// A document that its server needs 200 ms for, and a style sheet 50 ms after its end.
    fn page() -> Page {
        let on = Dependency { on: 0, part: Part::Whole, then: ms(50) };
        let document =
            Resource { response_bytes: 1_000, server_time: ms(200), ..Resource::default() };
        let style =
            Resource { dependencies: vec![on], response_bytes: 1_000, ..Resource::default() };
        Page::new("page".into(), vec![server()], vec![document, style]).unwrap()
    }

    fn model() -> Model {
        Model::of_round_trips(Revisit::default())
    }

    #[test]
    fn each_thing_that_takes_time_can_take_none() {
        let (model, page) = (model(), page());
        let none = model.expected(&page, Techniques::default());
        // TCP, TLS, the document, its server, the client, the style sheet.
        assert!((none.page_load_ms - 650.0).abs() < 2.0, "{none:?}");
        let all = without(&model, &page, none);
        let expected = [
            (Cost::RoundTrips, 250.0),
            (Cost::Openings, 450.0),
            (Cost::Bandwidth, 650.0),
            (Cost::Servers, 450.0),
            (Cost::Client, 600.0),
        ];
        for (one, (cost, page_load_ms)) in all.iter().zip(expected) {
            assert_eq!(one.cost, cost);
            assert!((one.page_load_ms - page_load_ms).abs() < 2.0, "{one:?}");
            assert!((one.saved - (1.0 - page_load_ms / 650.0)).abs() < 0.005, "{one:?}");
        }
        assert_eq!(all.len(), expected.len());
    }

    #[test]
    fn simulated_loads_have_a_critical_path() {
        let page = page();
        let mut load = None;
        model().loads(&page, Techniques::default(), |_, one| load = Some(one));
        let recorded = as_recorded(&page, &load.unwrap()).unwrap();
        let path = CriticalPath::of_page_load_time(&recorded).unwrap().breakdown;
        // Openings 200, requests 100 each with the server's 200, the client's 50.
        let parts = path.parts().map(|(_, part)| part.as_secs_f64() * 1e3);
        for (part, expected) in parts.iter().zip([200.0, 0.0, 400.0, 0.0, 50.0]) {
            assert!((part - expected).abs() < 2.0, "{path:?}");
        }
        assert_eq!(as_recorded(&page, &Load::default()), None);
    }

    #[test]
    fn the_condition_met_last_is_the_parent() {
        let dependencies = [&[][..], &[0], &[0], &[0, 1, 2]];
        let resources = dependencies.map(|on| Resource {
            dependencies: on.iter().map(|&on| Dependency::whole(on)).collect(),
            ..Resource::default()
        });
        let page = Page::new("page".into(), vec![server()], resources.into()).unwrap();
        let times = [(5, 100), (100, 400), (100, 300), (400, 500)];
        let resources = times.map(|(created, last)| Times {
            created: ms(created),
            sent: ms(created),
            first: ms(last),
            last: ms(last),
        });
        let load = Load { resources: resources.into(), ..Load::default() };
        let recorded = as_recorded(&page, &load).unwrap();
        let parents: Vec<_> = recorded.resources().iter().map(Resource::parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(1)]);
        assert_eq!(recorded.resources()[3].measured.unwrap().started, ms(395));
    }
}
