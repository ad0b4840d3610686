use std::time::Duration;

use serde::Serialize;

use super::Breakdown;
use crate::page::Page;

/// The chain of resources that a load had to wait for: each was requested because of the one
/// before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CriticalPath {
    /// Resources, from the document on.
    pub steps: Vec<Step>,
    /// Breakdown of the time until the last byte of the last; its parts add up to exactly that
    /// time.
    pub breakdown: Breakdown,
}

/// A resource on the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Index of the resource in the page.
    pub resource: usize,
    /// Breakdown of the time until the next one was requested, or the last byte arrived; including
    /// the client's own time before the request.
    pub breakdown: Breakdown,
}

impl CriticalPath {
    /// Returns the path until all resources were loaded; `None` without recorded times.
    pub fn from_page(page: &Page) -> Option<Self> {
        let ends = ends(page)?;
        let (_, last) = ends.into_iter().max()?;
        Self::to(page, last)
    }

    /// Returns the path until 95 % of them were: that of
    /// [`Recorded::page_load_time`](crate::page::Recorded::page_load_time).
    pub fn of_page_load_time(page: &Page) -> Option<Self> {
        let mut ends = ends(page)?;
        ends.sort_unstable();
        let (_, last) = *ends.get(ends.len() * 95 / 100)?;
        Self::to(page, last)
    }

    /// Returns the path to one resource.
    pub fn to(page: &Page, last: usize) -> Option<Self> {
        let mut steps = Vec::new();
        let mut next = Some((last, Duration::MAX));
        while let Some((resource, until)) = next.take() {
            let one = page.resources().get(resource)?;
            let timings = one.measured.as_ref()?;
            let end = timings.end().min(until);
            let mut breakdown =
                Breakdown::of_the_first(timings, end.saturating_sub(timings.started));
            let waited = one.dependencies.first();
            let began = waited.map_or(Duration::ZERO, |waited| {
                let asked = timings.started.saturating_sub(waited.then);
                let parent = page.resources().get(waited.on).and_then(|parent| parent.measured);
                parent.map_or(asked, |parent| {
                    asked.clamp(parent.started, parent.end().max(parent.started))
                })
            });
            breakdown.other += timings.started.saturating_sub(began);
            steps.push(Step { resource, breakdown });
            next = waited.map(|waited| (waited.on, began));
        }
        steps.reverse();
        let all = steps.iter().map(|step| step.breakdown);
        let breakdown = all.fold(Breakdown::default(), Breakdown::plus);
        Some(Self { steps, breakdown })
    }
}

/// Returns the time of the last byte of each resource, with its index.
fn ends(page: &Page) -> Option<Vec<(Duration, usize)>> {
    let resources = page.resources().iter().enumerate();
    resources.map(|(id, one)| one.measured.map(|timings| (timings.end(), id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Dependency, Protocol, Resource, Server, Timings};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn resource(on: &[(usize, u64)], started: u64, wait: u64, receive: u64) -> Resource {
        let (started, wait, receive) = (ms(started), ms(wait), ms(receive));
        Resource {
            dependencies: on
                .iter()
                .map(|&(on, then)| Dependency { then: ms(then), ..Dependency::whole(on) })
                .collect(),
            measured: Some(Timings { started, wait, receive, ..Timings::default() }),
            ..Resource::default()
        }
    }

    fn page(resources: Vec<Resource>) -> Page {
        let server = Server::https("a.test", Protocol::Http1);
        Page::new("page".into(), vec![server], resources).unwrap()
    }

    #[test]
    fn the_path_goes_back_from_the_last() {
        let page = page(vec![
            resource(&[], 0, 100, 100),
            resource(&[(0, 0)], 150, 50, 300),
            resource(&[(0, 20)], 220, 100, 50),
            resource(&[(2, 30)], 400, 100, 100),
        ]);
        let path = CriticalPath::from_page(&page).unwrap();
        let steps: Vec<usize> = path.steps.iter().map(|step| step.resource).collect();
        assert_eq!(steps, [0, 2, 3]);
        let parts = path.breakdown.parts().map(|(_, part)| part);
        // 20 and 30 ms were the client's.
        assert_eq!(parts, [0, 0, 300, 250, 50].map(ms));
        assert_eq!(path.breakdown.total(), ms(600));
        let first = CriticalPath::to(&page, 1).unwrap();
        assert_eq!(first.breakdown.parts().map(|(_, part)| part), [0, 0, 150, 350, 0].map(ms));
    }

    #[test]
    fn most_of_the_resources_are_enough() {
        let mut resources = vec![resource(&[], 0, 10, 0)];
        resources.extend((0..18).map(|_| resource(&[(0, 0)], 10, 10, 0)));
        resources.push(resource(&[(0, 0)], 10, 500, 0));
        let page = page(resources.clone());
        assert_eq!(CriticalPath::of_page_load_time(&page).unwrap().breakdown.total(), ms(510));
        resources.insert(1, resource(&[(0, 0)], 10, 10, 0));
        let page = Page::new("page".into(), page.servers().to_vec(), resources).unwrap();
        assert_eq!(CriticalPath::of_page_load_time(&page).unwrap().breakdown.total(), ms(20));
        assert_eq!(CriticalPath::from_page(&page).unwrap().breakdown.total(), ms(510));
    }

    #[test]
    fn without_times_there_is_none() {
        let page = page(vec![Resource::default()]);
        assert_eq!(CriticalPath::from_page(&page), None);
    }
}
