//! Finds the order in which to give hosts an edge.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Shares;
use crate::page::Page;
use crate::sim::profile::{Expected, Model, Profile};
use crate::sim::tcp::{Technique, Techniques};

/// Maximum hosts of a page that are kept one by one, those that save most.
const HOSTS: usize = 20;

/// Maximum hosts of the order in which edges help most.
const IN_ORDER: usize = 5;

/// Savings of edges for the operator's hosts. Empty by the published rules, which have no edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hosts {
    /// Names and ports of the operator's hosts that speak TLS; at most twenty.
    pub own: Vec<String>,
    /// Number of the operator's hosts that speak TLS.
    pub count: usize,
    /// Number of hosts of others that speak TLS.
    pub others: usize,
    /// Expected times with edges that take early data at all of the operator's hosts.
    pub edges: Option<Expected>,
    /// Shares that these edges save.
    pub saved: Shares,
    /// False if the tree is a guess, so that an order of hosts would be one, too.
    pub are_ranked: bool,
    /// Each host alone, those that save most first; at most twenty. Empty unless ranked.
    pub alone: Vec<Host>,
    /// Order in which edges help most: each is the best addition to those before it. Empty unless
    /// ranked.
    pub in_order: Vec<Next>,
}

/// A host, and the savings if it alone has an edge, in ms of the page load time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Name and port.
    pub host: String,
    /// Number of the page's resources.
    pub resources: usize,
    /// Saving of TurboTLS, which needs no state.
    pub turbotls_ms: f64,
    /// Saving of Fast Open with private cookies.
    pub fop_ms: f64,
    /// Saving of TurboTLS with early data.
    pub early_ms: f64,
    /// Saving of TurboTLS with early data in the mean time of a resource.
    pub early_resource_ms: f64,
}

/// The next host to have an edge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Next {
    /// Name and port.
    pub host: String,
    /// Page load time with edges for it and those before it, with early data.
    pub page_load_ms: f64,
}

impl Hosts {
    pub(super) fn from_page(
        model: &Model,
        page: &Page,
        none: Expected,
        is_own: &dyn Fn(usize) -> bool,
        is_guess: bool,
    ) -> Self {
        if matches!(model.profile, Profile::Blast(_)) {
            return Self::default();
        }
        let others = groups(page, |server| !is_own(server)).names.len();
        let groups = groups(page, is_own);
        let ask = Ask { model, page, groups: &groups };
        let edges = ask.expected(EARLY, &|_| true);
        let hosts = Self {
            own: groups.names.iter().take(HOSTS).cloned().collect(),
            count: groups.names.len(),
            others,
            edges: Some(edges),
            saved: Shares::between(&none, &edges),
            are_ranked: !is_guess,
            ..Self::default()
        };
        if is_guess {
            return hosts;
        }
        let mut alone: Vec<(usize, Host)> =
            (0..groups.names.len()).map(|group| (group, ask.alone(group, none))).collect();
        alone.sort_by(|(_, one), (_, other)| other.rank().total_cmp(&one.rank()));
        let candidates: Vec<usize> = alone.iter().take(HOSTS).map(|(group, _)| *group).collect();
        Self {
            in_order: ask.in_order(candidates, none),
            alone: alone.into_iter().take(HOSTS).map(|(_, host)| host).collect(),
            ..hosts
        }
    }
}

/// Returns what an edge that takes early data does.
pub(super) fn edges() -> Techniques {
    Techniques::from_list(EARLY)
}

impl Host {
    /// Returns the sort key: the page load time counts first; where that does not change, as is
    /// common where the page waits for other hosts, the mean time of a resource.
    fn rank(&self) -> f64 {
        1e3 * self.early_ms + self.early_resource_ms
    }
}

const TURBO: &[Technique] = &[Technique::TurboTls];
const FOP: &[Technique] = &[Technique::FastOpenPrivacy];
const EARLY: &[Technique] = &[Technique::TurboTls, Technique::ZeroRtt];

/// Hosts that speak TLS.
struct Groups {
    names: Vec<String>,
    resources: Vec<usize>,
    /// Host of each server of the page.
    of_server: Vec<Option<usize>>,
}

/// Groups some of a page's servers by name and port, as an edge serves both pools that a browser
/// may have.
fn groups(page: &Page, takes: impl Fn(usize) -> bool) -> Groups {
    let mut places = BTreeMap::new();
    let mut names = Vec::new();
    let mut of_server = Vec::new();
    for (place, server) in page.servers().iter().enumerate() {
        let group = (server.tls && takes(place)).then(|| {
            *places.entry((server.host.clone(), server.port)).or_insert_with(|| {
                names.push(format!("{}:{}", server.host, server.port));
                names.len() - 1
            })
        });
        of_server.push(group);
    }
    let mut resources = vec![0; names.len()];
    for resource in page.resources() {
        if let Some(group) = of_server.get(resource.server).copied().flatten() {
            resources[group] += 1;
        }
    }
    Groups { names, resources, of_server }
}

/// Orders hosts as [`Host::rank`] does: the page load time counts first.
fn rank(expected: &Expected) -> f64 {
    1e3 * expected.page_load_ms + expected.resource_ms
}

struct Ask<'a> {
    model: &'a Model,
    page: &'a Page,
    groups: &'a Groups,
}

impl Ask<'_> {
    fn expected(&self, techniques: &[Technique], takes_part: &dyn Fn(usize) -> bool) -> Expected {
        let of_server = &self.groups.of_server;
        let has_edge =
            |server: usize| of_server.get(server).copied().flatten().is_some_and(takes_part);
        self.model.expected_with(self.page, Techniques::from_list(techniques), &has_edge)
    }

    fn alone(&self, group: usize, none: Expected) -> Host {
        let [turbo, fop, early] = [TURBO, FOP, EARLY]
            .map(|techniques| self.expected(techniques, &|other| other == group));
        Host {
            host: self.groups.names[group].clone(),
            resources: self.groups.resources[group],
            turbotls_ms: none.page_load_ms - turbo.page_load_ms,
            fop_ms: none.page_load_ms - fop.page_load_ms,
            early_ms: none.page_load_ms - early.page_load_ms,
            early_resource_ms: none.resource_ms - early.resource_ms,
        }
    }

    /// Returns the best candidate, then the best addition to it, and so on, as long as something is
    /// saved.
    fn in_order(&self, mut candidates: Vec<usize>, none: Expected) -> Vec<Next> {
        let (mut chosen, mut order) = (Vec::new(), Vec::new());
        let mut before = none;
        while order.len() < IN_ORDER {
            let best = candidates
                .iter()
                .map(|&group: &usize| {
                    let expected =
                        self.expected(EARLY, &|other| other == group || chosen.contains(&other));
                    (group, expected)
                })
                .min_by(|(_, one), (_, other)| rank(one).total_cmp(&rank(other)));
            let Some((group, expected)) = best.filter(|(_, best)| rank(best) < rank(&before))
            else {
                break;
            };
            candidates.retain(|other| *other != group);
            chosen.push(group);
            let host = self.groups.names[group].clone();
            order.push(Next { host, page_load_ms: expected.page_load_ms });
            before = expected;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Dependency, Protocol, Resource, Server};
    use crate::sim::tcp::Revisit;

    fn resource(server: usize, on: Option<usize>) -> Resource {
        Resource {
            server,
            dependencies: on.map(Dependency::whole).into_iter().collect(),
            response_bytes: 500,
            ..Resource::default()
        }
    }

    /// A document of `a`, a script of `b` that it names, and a picture of `c` that the script asks
    /// for; one more of `b` without credentials, and one of `d` without TLS, which are there
    /// before.
    fn page() -> Page {
        let mut servers = ["a.test", "b.test", "b.test", "c.test", "d.test"]
            .map(|host| Server::https(host, Protocol::Http1));
        servers[2].anonymous = true;
        servers[4].tls = false;
        let resources = vec![
            resource(0, None),
            resource(1, Some(0)),
            resource(3, Some(1)),
            resource(2, Some(0)),
            resource(4, Some(0)),
        ];
        Page::new("page".into(), servers.into(), resources).unwrap()
    }

    fn model() -> Model {
        Model::of_round_trips(Revisit::again())
    }

    #[test]
    fn each_host_on_the_way_saves_its_round_trips() {
        let (model, page) = (model(), page());
        let none = model.expected(&page, Techniques::default());
        // Three connections one after the other, three round trips each.
        assert!((none.page_load_ms - 900.0).abs() < 2.0, "{none:?}");
        let hosts = Hosts::from_page(&model, &page, none, &|_| true, false);
        assert_eq!((hosts.count, hosts.alone.len()), (3, 3), "d.test speaks no TLS");
        for host in &hosts.alone {
            assert!((host.turbotls_ms - 100.0).abs() < 2.0, "{host:?}");
            assert!((host.fop_ms - 100.0).abs() < 2.0, "{host:?}");
            assert!((host.early_ms - 200.0).abs() < 2.0, "{host:?}");
        }
        let b = hosts.alone.iter().find(|host| host.host == "b.test:443").unwrap();
        assert_eq!(b.resources, 2, "with and without credentials");
        // Of five resources these two take 200 ms less, each from when it was needed.
        assert!((b.early_resource_ms - 2.0 * 200.0 / 5.0).abs() < 2.0, "{b:?}");
        assert!((hosts.edges.unwrap().page_load_ms - 300.0).abs() < 2.0, "{hosts:?}");
    }

    #[test]
    fn the_order_ends_with_all_of_them() {
        let (model, page) = (model(), page());
        let none = model.expected(&page, Techniques::default());
        let hosts = Hosts::from_page(&model, &page, none, &|_| true, false);
        let times: Vec<f64> = hosts.in_order.iter().map(|next| next.page_load_ms).collect();
        assert_eq!(hosts.in_order[0].host, "b.test:443", "two of its resources come sooner");
        for (time, expected) in times.iter().zip([700.0, 500.0, 300.0]) {
            assert!((time - expected).abs() < 2.0, "{times:?}");
        }
        assert_eq!(times.len(), 3);
    }

    #[test]
    fn the_published_rules_have_no_edges() {
        let profile = Profile::Blast(crate::sim::blast::Settings::default());
        let model = Model { profile, ..model() };
        let hosts = Hosts::from_page(&model, &page(), Expected::default(), &|_| true, false);
        assert_eq!(hosts, Hosts::default());
    }

    #[test]
    fn hosts_of_others_have_no_edge_and_no_rank() {
        let (model, page) = (model(), page());
        let none = model.expected(&page, Techniques::default());
        // Those of a.test and c.test.
        let is_own = |server: usize| server == 0 || server == 3;
        let hosts = Hosts::from_page(&model, &page, none, &is_own, false);
        assert_eq!(
            (hosts.own.as_slice(), hosts.others),
            (&["a.test:443", "c.test:443"].map(String::from)[..], 1)
        );
        assert_eq!((hosts.alone.len(), hosts.in_order.len()), (2, 2));
        let edges = hosts.edges.unwrap().page_load_ms;
        assert!((edges - 500.0).abs() < 2.0, "{edges}");
        assert!((hosts.saved.page_load - 4.0 / 9.0).abs() < 0.005, "{:?}", hosts.saved);
    }

    #[test]
    fn a_guessed_tree_has_no_rank() {
        let (model, page) = (model(), page());
        let none = model.expected(&page, Techniques::default());
        let hosts = Hosts::from_page(&model, &page, none, &|_| true, true);
        assert!(!hosts.are_ranked && hosts.alone.is_empty() && hosts.in_order.is_empty());
        assert!(hosts.count == 3 && hosts.edges.is_some());
    }
}
