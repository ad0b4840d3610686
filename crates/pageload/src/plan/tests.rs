use super::*;
use crate::page::{Dependency, Protocol, Recorded, Resource, Server, Timings};
use crate::sim::{blast, tcp};

/// A document that names a script of another host, which a prefetch database knows.
fn page() -> Page {
    let document = Resource { response_bytes: 1_000, ..Resource::default() };
    let script = Resource {
        server: 1,
        dependencies: vec![Dependency::whole(0)],
        response_bytes: 1_000,
        in_prefetch_database: true,
        ..Resource::default()
    };
    let servers = ["a.test", "b.test"].map(|host| Server::https(host, Protocol::Http2));
    Page::new("page".into(), servers.into(), vec![document, script]).unwrap()
}

/// A client that comes back with a session and a cookie of each server.
fn model() -> Model {
    Model { draws: 3, ..Model::of_round_trips(tcp::Revisit::again()) }
}

/// Page load time in round trips of 100 ms.
fn trips(expected: Expected) -> f64 {
    (expected.page_load_ms / 10.0).round() / 10.0
}

#[test]
fn each_technique_saves_what_it_saves() {
    let plan = Questions::all(model()).ask(&page());
    assert_eq!(trips(plan.none), 6.0);
    let turbo = plan.alone[2];
    assert!((turbo.own.page_load - 1.0 / 6.0).abs() < 0.005, "at a.test alone: {turbo:?}");
    let alone: Vec<_> =
        plan.alone.iter().map(|of| (of.technique.name(), trips(of.expected))).collect();
    let expected = [
        ("tfo", 4.0),
        ("fop", 4.0),
        ("turbotls", 4.0),
        // At the host that follows, and not where the page begins.
        ("spares", 5.0),
        ("resumption", 6.0),
        ("0rtt", 4.0),
        ("session-sharing", 6.0),
        ("optimistic-data", 4.0),
        ("redirect-db", 6.0),
        ("http2-db", 6.0),
        ("prefetch-db", 3.0),
        // The connection to the other host is there when the script is asked for.
        ("server-db", 4.0),
        // Resources in the document are requested half a round trip after its request arrived.
        ("early-hints", 6.0),
        ("http3", 4.0),
    ];
    assert_eq!(alone, expected);
    let cumulative: Vec<f64> = plan.cumulative.iter().map(|of| trips(of.expected)).collect();
    assert_eq!(cumulative, [4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0]);
    assert_eq!(trips(plan.all()), 1.0);
    assert!((plan.saved() - 5.0 / 6.0).abs() < 0.005, "{}", plan.saved());
    assert!((plan.alone[2].saved - 2.0 / 6.0).abs() < 0.005);
}

#[test]
fn sweeps_have_a_line_for_each_arm() {
    let plan = Questions::all(model()).ask(&page());
    let arms = ["none", "your edges", "turbotls", "turbotls+0rtt", "databases", "all"];
    assert_eq!(plan.by_rtt.arms, arms);
    for (point, rtt) in plan.by_rtt.points.iter().zip(RTTS_MS) {
        assert_eq!(point.at, rtt as f64);
        let trips = point.page_load_ms.iter().map(|ms| (ms / point.at).round());
        // Of the two hosts only the document's is the operator's.
        assert_eq!(trips.collect::<Vec<_>>(), [6.0, 4.0, 4.0, 2.0, 3.0, 1.0], "{rtt} ms");
        assert!((point.saved[3] - 4.0 / 6.0).abs() < 0.05, "{:?}", point.saved);
    }
    assert_eq!(plan.by_rate.points.iter().map(|point| point.at).collect::<Vec<_>>(), RATES_MBIT);
    for arm in 0..arms.len() {
        let times: Vec<f64> =
            plan.by_rate.points.iter().map(|point| point.page_load_ms[arm]).collect();
        assert!(times.is_sorted_by(|slow, fast| slow >= fast), "{times:?}");
    }
}

#[test]
fn an_own_order_and_no_sweeps() {
    let questions = Questions {
        order: vec![Technique::ZeroRtt],
        rtts: vec![],
        rates: vec![],
        ..Questions::all(model())
    };
    let plan = questions.ask(&page());
    assert_eq!((plan.cumulative.len(), trips(plan.all())), (1, 4.0));
    assert!(plan.by_rtt.points.is_empty() && !plan.by_rtt.arms.contains(&"databases".into()));
    let nothing = Questions { order: vec![], ..questions };
    assert_eq!(nothing.ask(&page()).saved(), 0.0);
}

#[test]
fn the_published_rules_are_asked_the_same() {
    let profile = Profile::Blast(blast::Settings::default());
    let plan = Questions::all(Model { profile, ..model() }).ask(&page());
    // Six round trips of 0.8 s, and two times three cells of 498 bytes at 164 kB/s; 1 ms of
    // parsing.
    let cells = 6.0 * 498.0 / 164.0;
    assert!((plan.none.page_load_ms - (4_801.0 + cells)).abs() < 0.01, "{:?}", plan.none);
    let optimistic = plan.alone.iter().find(|of| of.technique == Technique::OptimisticData);
    // TCP of either takes 100 instead of 800 ms.
    let optimistic = optimistic.unwrap().expected.page_load_ms;
    assert!((optimistic - (3_401.0 + cells)).abs() < 0.01, "{optimistic}");
    assert_eq!((plan.alone.len(), plan.cumulative.len()), (6, 6));
    assert_eq!(plan.by_rtt.arms, ["none", "optimistic-data", "0rtt", "databases", "all"]);
    assert_eq!(plan.hosts, Hosts::default());
    let costs: Vec<_> = plan.without.iter().map(|of| of.cost).collect();
    assert_eq!(costs, [Cost::RoundTrips, Cost::Bandwidth]);
}

#[test]
fn the_critical_path_is_that_of_the_simulated_load() {
    let plan = Questions::all(model()).ask(&page());
    assert_eq!(plan.recorded_path_ms, None, "nothing is recorded");
    let path = plan.simulated_path_ms.unwrap();
    let [queue, tls, wait, ..] = path.parts().map(|(_, part)| part.as_millis());
    assert_eq!((queue, tls, wait), (400, 0, 200), "two openings, two requests");
}

/// A recorded load of [`page`]: paint and load event come after the script, 30 and 50 ms later.
#[test]
fn events_come_as_much_later_as_recorded() {
    let mut resources = page().resources().to_vec();
    for (resource, ms) in resources.iter_mut().zip([200, 400]) {
        let wait = Duration::from_millis(ms);
        resource.measured = Some(Timings { wait, ..Timings::default() });
    }
    let recorded = Recorded {
        largest_paint: Some(Duration::from_millis(230)),
        on_load: Some(Duration::from_millis(450)),
        ..Recorded::default()
    };
    let page = Page::new("page".into(), page().servers().to_vec(), resources).unwrap();
    let page = page.with_recorded(recorded);
    let plan = Questions::all(model()).ask(&page);
    let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 2.0;
    // The document takes three round trips, the script three more.
    assert!(near(plan.none.largest_paint_ms, 330.0), "{:?}", plan.none);
    assert!(near(plan.none.on_load_ms, 650.0), "{:?}", plan.none);
    let edges = plan.hosts.edges.unwrap();
    assert!(near(edges.largest_paint_ms, 130.0) && near(edges.on_load_ms, 450.0), "{edges:?}");
    let saved = plan.hosts.saved;
    assert!((saved.largest_paint.unwrap() - 200.0 / 330.0).abs() < 0.01, "{saved:?}");
}

#[test]
fn hosts_are_ranked_unless_parents_are_a_guess() {
    let with = |confidence: Confidence| {
        let mut resources = page().resources().to_vec();
        resources[1].confidence = confidence;
        let page = Page::new("page".into(), page().servers().to_vec(), resources).unwrap();
        Questions::all(model()).ask(&page)
    };
    let known = with(Confidence::Recorded);
    assert_eq!(known.parents, Sources { count: 1, guessed: 0 });
    assert!(known.hosts.are_ranked && !known.hosts.alone.is_empty());
    let guessed = with(Confidence::Only);
    assert_eq!(guessed.parents, Sources { count: 1, guessed: 1 });
    assert!(!guessed.hosts.are_ranked && guessed.hosts.alone.is_empty());
    assert!(!Sources { count: 10, guessed: 1 }.are_a_guess());
}

#[test]
fn plans_are_json() {
    let plan = Questions::all(model()).ask(&page());
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["alone"][2]["technique"], "turbotls");
    assert!(json["alone"][2]["page_load_ms"].is_number() && json["alone"][2]["saved"].is_number());
    assert_eq!(json["without"][0]["cost"], "round_trips");
    assert_eq!(json["shape"]["min_rtt"], 6);
}
