//! Random runs: whatever the network does, application and origin see what they would see over TCP
//! alone, later by at most the wait for datagrams.

use std::cell::Cell;
use std::time::Duration;

use headstart_emulation::{Delay, Duplicate, Link, Loss, Reorder};
use headstart_proto::limits::SESSION_LIFE;
use headstart_proto::{ClientConfig, ClientEvent, PlainReason, ServerConfig};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::sim::{End, HALF, Host, Outcome, Scenario, Script, run};

/// The drawn values. A failing case is printed as one of these and becomes a named test.
#[derive(Clone, Debug)]
struct Draw {
    talk: Talk,
    up: Way,
    down: Way,
    client: ClientConfig,
    server: ServerConfig,
    /// Times are in milliseconds.
    offer_at: u64,
    connect: u64,
    grace: u64,
    unreachable_at: Option<u64>,
    datagrams_first: bool,
    same_address: bool,
    splice: bool,
}

#[derive(Clone, Debug)]
struct Talk {
    kind: u8,
    hello: usize,
    early: usize,
    flight: usize,
    think: u64,
    app_chunk: usize,
    origin_chunk: usize,
    app_closes_after: Option<usize>,
    origin_ends: Option<(usize, bool)>,
}

#[derive(Clone, Debug)]
struct Way {
    lag: u64,
    loss: u8,
    doubles: u8,
    reorder: u8,
    by: u64,
    seed: u64,
}

impl Talk {
    fn script(&self) -> Script {
        let think = Duration::from_millis(self.think);
        let script = match self.kind {
            0 => Script::hello_retry(self.hello, self.flight),
            1 => Script::tls12(self.hello, self.flight),
            2 => Script::not_tls(),
            3..6 => Script::early_data(self.hello, self.early, self.flight, think),
            _ => Script::tls13(self.hello, self.flight, think),
        };
        Script {
            app_chunk: self.app_chunk,
            origin_chunk: self.origin_chunk,
            app_closes_after: self.app_closes_after,
            origin_ends: self
                .origin_ends
                .map(|(bytes, reset)| (bytes, if reset { End::Reset } else { End::Finished })),
            ..script
        }
    }
}

impl Way {
    fn link(&self) -> Link {
        let [loss, doubles, reorder] =
            [self.loss, self.doubles, self.reorder].map(|percent| f64::from(percent) / 100.0);
        Link::default()
            .with(Delay(HALF + Duration::from_millis(self.lag)))
            .with(Loss::random(loss, self.seed))
            .with(Duplicate::random(doubles, self.seed ^ 1))
            .with(Reorder::random(reorder, self.seed ^ 2, Duration::from_millis(self.by)))
    }
}

impl Draw {
    fn scenario(&self) -> Scenario {
        Scenario {
            offer: Some(self.client),
            offer_at: Duration::from_millis(self.offer_at),
            host: Host::Edge(self.server),
            up: self.up.link(),
            down: self.down.link(),
            connect: Some(self.connect()),
            grace: self.grace(),
            unreachable_at: self.unreachable_at.map(Duration::from_millis),
            datagrams_first: self.datagrams_first,
            same_address: self.same_address,
            splice: self.splice,
            ..Scenario::new(self.talk.script())
        }
    }

    fn connect(&self) -> Duration {
        Duration::from_millis(self.connect)
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.grace)
    }

    /// Returns true if the origin breaks off before its first byte: the edge then retries it over
    /// TCP.
    fn origin_refuses(&self) -> bool {
        self.talk.origin_ends == Some((0, true))
    }

    /// Returns true if TCP connected after the edge had dropped the session: plain TLS starts over.
    fn outlives_session(&self) -> bool {
        self.connect() + HALF >= SESSION_LIFE
    }

    /// Runs the draw and compares it with the same conversation over TCP alone.
    fn check(&self) -> Outcome {
        let plain = run(self.scenario().plain());
        let outcome = run(self.scenario());
        assert_eq!(outcome.app.1, plain.app.1, "the end");
        assert!(outcome.app.0 == plain.app.0, "the server stream");
        let stream = self.talk.script().client_stream();
        assert!(outcome.origins.iter().all(|got| stream.starts_with(got)), "the client stream");
        let reset = self.talk.origin_ends.is_some_and(|(_, reset)| reset);
        assert!(reset || outcome.origin() == plain.origin(), "all of the client stream");
        let again = self.origin_refuses() || self.outlives_session();
        assert!(outcome.hellos <= 1 + usize::from(again), "one ClientHello");
        assert_eq!(outcome.unproven, 0);
        let waited = outcome.waited(self.connect(), self.grace());
        for pair in [
            (outcome.first_request, plain.first_request),
            (outcome.first_response, plain.first_response),
        ] {
            match pair {
                (Some(at), Some(plain)) => assert!(at <= plain + waited, "{at:?}, plain {plain:?}"),
                (None, Some(_)) if reset => {}
                (at, plain) => assert!(at.is_some() || plain.is_none()),
            }
        }
        outcome
    }
}

fn chunk() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(usize::MAX), 1 => 40..3000_usize]
}

fn talk() -> impl Strategy<Value = Talk> {
    let hello = prop_oneof![3 => 60..3700_usize, 1 => 3700..15_000_usize];
    let flight = prop_oneof![3 => 1..9000_usize, 1 => 9000..30_000_usize];
    let think = prop_oneof![2 => Just(0), 1 => 0..400_u64];
    let ends = (prop_oneof![Just(0), 0..12_000_usize], any::<bool>());
    let closes = prop_oneof![6 => Just(None), 1 => (0..3_usize).prop_map(Some)];
    let ends = prop_oneof![6 => Just(None), 1 => ends.prop_map(Some)];
    (0..12_u8, hello, 1..2000_usize, flight, think, chunk(), chunk(), closes, ends).prop_map(
        |(
            kind,
            hello,
            early,
            flight,
            think,
            app_chunk,
            origin_chunk,
            app_closes_after,
            origin_ends,
        )| Talk {
            kind,
            hello,
            early,
            flight,
            think,
            app_chunk,
            origin_chunk,
            app_closes_after,
            origin_ends,
        },
    )
}

fn way() -> impl Strategy<Value = Way> {
    let [loss, doubles, reorder] =
        [(); 3].map(|()| prop_oneof![2 => Just(0_u8), 2 => 0..30_u8, 1 => 0..101_u8]);
    let lag = prop_oneof![3 => Just(0_u64), 3 => 0..30_u64, 1 => 0..2500_u64];
    (lag, loss, doubles, reorder, 0..80_u64, any::<u64>()).prop_map(
        |(lag, loss, doubles, reorder, by, seed)| Way { lag, loss, doubles, reorder, by, seed },
    )
}

fn draw() -> impl Strategy<Value = Draw> {
    let client = (0..18_u8, any::<bool>(), prop::bool::weighted(0.15));
    let server = (any::<bool>(), prop::bool::weighted(0.2));
    let connect = prop_oneof![2 => Just(100_u64), 2 => 60..400_u64, 1 => 60..12_000_u64];
    let offer_at = prop_oneof![2 => Just(0_u64), 1 => 0..200_u64];
    let unreachable_at = prop_oneof![5 => Just(None), 1 => (0..300_u64).prop_map(Some)];
    let times = (offer_at, connect, 0..60_u64, unreachable_at);
    let flags = (any::<bool>(), prop::bool::weighted(0.9), any::<bool>());
    (talk(), way(), way(), client, server, times, flags).prop_map(
        |(talk, up, down, client, server, times, flags)| Draw {
            talk,
            up,
            down,
            client: ClientConfig { slots: client.0, early_data: client.1, hold: client.2 },
            server: ServerConfig {
                early_data: server.0,
                same_address: server.1,
                ..ServerConfig::default()
            },
            offer_at: times.0,
            // The edge refuses early data of an ended session: `timelines::early_data_too_old`.
            connect: times.1.min(if client.1 { 9_000 } else { 12_000 }),
            grace: times.2,
            unreachable_at: times.3,
            datagrams_first: flags.0,
            same_address: flags.1,
            splice: flags.2,
        },
    )
}

/// Returns the configuration: `PROPTEST_CASES` overrides the cases, `PROPTEST_RNG_SEED` repeats a
/// run.
fn proptest_config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::default() };
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if asked { config.cases } else { cases }, ..config }
}

fn count(cell: &Cell<u32>, hit: bool) {
    cell.set(cell.get() + u32::from(hit));
}

#[test]
fn any_run_is_as_good_as_plain() {
    let (joined, plain, early) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let config = proptest_config(1500);
    let cases = config.cases;
    let mut runner = TestRunner::new(config);
    let result = runner.run(&draw(), |draw| {
        let outcome = draw.check();
        count(
            &joined,
            outcome
                .when(|event: &ClientEvent| matches!(event, ClientEvent::JoinAccepted { .. }))
                .is_some(),
        );
        count(
            &plain,
            outcome
                .when(|event: &ClientEvent| *event == ClientEvent::Plain(PlainReason::Silence))
                .is_some(),
        );
        count(&early, outcome.first_request.is_some_and(|at| at < draw.connect()));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    println!(
        "{cases} runs: {} joined, {} fell back in silence, {} sent the request before TCP \
         connected",
        joined.get(),
        plain.get(),
        early.get()
    );
    // Ensures that the draws still reach the cases they are meant for.
    assert!(joined.get() > cases / 5 && plain.get() > cases / 20 && early.get() > cases / 50);
}

proptest! {
    #![proptest_config(proptest_config(400))]

    /// If the edge dies, the application gets a correct beginning and a reset, or everything.
    #[test]
    fn an_edge_restart_at_any_time_corrupts_nothing(draw in draw(), restart_at in 0..600_u64) {
        let mut scenario = draw.scenario();
        scenario.restart_at = Some(Duration::from_millis(restart_at));
        let plain = run(draw.scenario().plain());
        let outcome = run(scenario);
        prop_assert!(plain.app.0.starts_with(&outcome.app.0));
        let stream = draw.talk.script().client_stream();
        prop_assert!(outcome.origins.iter().all(|got| stream.starts_with(got)));
        let reset = outcome.app.1 == Some(End::Reset);
        prop_assert!(reset || outcome.app == plain.app, "end {:?}", outcome.app.1);
        prop_assert!(outcome.hellos <= 2 + usize::from(draw.origin_refuses()));
        prop_assert_eq!(outcome.unproven, 0);
    }
}
