//! Chromium through `headstart agent` to `headstart edge` before a built-in site, over an emulated
//! link: HEADSTART_TEST_NET=1 as well, as root.

use std::os::unix::process::CommandExt;

use headstart_openers::site::Site;
use headstart_testkit::has_net;

use crate::place::browser;
use crate::sites::is_as_described;
use crate::world::{AGENT, CLEAR, Daemon, MAPS, SITE, Syn, TLS, World};

/// The group whose connections are redirected.
const WEB: u32 = 4242;

/// Visits until one goes as it should on a busy machine.
const TRIES: usize = 4;

/// Connections of a page: those that Chromium opened, and what became of them.
struct Opened {
    turbo: u64,
    fast: u64,
    all: u64,
}

fn opened(agent: &Daemon<'_>) -> Opened {
    let [turbo, fast, all] = ["opening=\"turbo\"", "opening=\"fop\"", ""]
        .map(|label| agent.count("headstart_connections_total", &[label]));
    Opened { turbo, fast, all }
}

/// Returns what a load adds.
fn added(agent: &Daemon<'_>, load: impl FnOnce()) -> Opened {
    let before = opened(agent);
    load();
    agent.until_idle();
    let after = opened(agent);
    Opened {
        turbo: after.turbo - before.turbo,
        fast: after.fast - before.fast,
        all: after.all - before.all,
    }
}

#[test]
fn pages_come_over_turbotls_by_socks_by_connect_and_redirected() {
    let (true, Some(_turn)) = (has_net(), browser()) else { return };
    let world = World::new();
    let _site = world.site();
    let _edge = world.edge(&["--origin", TLS]);
    world.redirects(WEB, AGENT);
    let socks = format!("--proxy=socks5://127.0.0.1:{AGENT}");
    let connect = format!("--proxy=http://127.0.0.1:{AGENT}");
    let redirected = format!("--browser-arg=--host-resolver-rules=MAP * {}", world.server());
    for (way, group) in [(socks, None), (connect, None), (redirected, Some(WEB))] {
        // On a busy machine answers are later than is waited for, and an agent remembers that of
        // its network.
        assert!(
            (0..TRIES).any(|_| {
                let came = visit_by(&world, &way, group);
                println!("{way}: {} connections, {} TurboTLS", came.all, came.turbo);
                came.turbo > 0
            }),
            "{way}"
        );
    }
}

/// Returns the openings of a page's connections by a new agent.
fn visit_by(world: &World, way: &str, group: Option<u32>) -> Opened {
    let agent = world.agent("", &[]);
    added(&agent, || {
        let mut recorder = world.recorder(&[way]);
        if let Some(group) = group {
            recorder.gid(group);
        }
        is_as_described(&world.records(recorder), &Site::built_in(SITE).unwrap());
    })
}

/// Visits of new browsers to a site whose edge speaks TLS itself and hands out cookies.
struct Visits<'w> {
    world: &'w World,
    edge: &'w Daemon<'w>,
    agent: &'w Daemon<'w>,
}

impl Visits<'_> {
    /// Returns the openings of a visit's connections, and the SYNs with cookies. With HTTP/1.1
    /// there are several connections to a host, and later ones resume.
    fn visit(&self, port: u16, tls: &str) -> (Opened, Vec<Syn>) {
        let (proxy, tls) = (format!("socks5://127.0.0.1:{port}"), format!("--tls={tls}"));
        let load = ["--proxy", &proxy, "--browser-arg=--disable-http2", &tls];
        let before = self.handshakes();
        let came = added(self.agent, || {
            let recording = self.world.records(self.world.recorder(&load));
            assert_eq!(recording.page.resources().len(), 104);
        });
        let [full, resumed] = self.handshakes();
        let hosts = Site::built_in(SITE).unwrap().hosts().len() as u64;
        assert!(full - before[0] >= hosts, "a new browser has no session of another");
        // Where its early data are refused, Chromium gives the session up with the connection.
        assert!(resumed > before[1] || tls.contains("early-data"), "later connections resume");
        let syns = self.world.syns();
        let Opened { turbo, fast, all } = came;
        println!("{tls} by {port}: {all} connections, {turbo} TurboTLS, {fast} in the SYN");
        (came, syns)
    }

    /// Full ones and resumptions so far.
    fn handshakes(&self) -> [u64; 2] {
        ["resumed=\"no\"", "resumed=\"yes\""].map(|how| {
            let labels = ["result=\"done\"", how];
            self.edge.count("headstart_tls_handshakes_total", &labels)
        })
    }

    /// Connections whose early data the edge took.
    fn early(&self) -> u64 {
        self.edge.count("headstart_tls_handshakes_total", &["early_data=\"accepted\""])
    }
}

#[test]
fn data_leave_with_the_syn_where_the_client_hello_fits() {
    let (true, Some(_turn)) = (has_net(), browser()) else { return };
    let world = World::with_fast_open();
    let _site = world.site();
    let origin = format!("http://{CLEAR}");
    let tls = ["--origin", &origin, "--early-data-requests", "safe"];
    let fast = ["--fast-open", "--fast-open-maps", MAPS];
    let certificates = world.certificates();
    let certificates: Vec<&str> = certificates.iter().map(String::as_str).collect();
    let edge = world.edge(&[&tls[..], &fast, &certificates].concat());
    let profiles = ["--listen-for=work=127.0.0.1:1081", "--listen-for=private=127.0.0.1:1082"];
    let agent = world.agent(",fop=1,ed=1", &profiles);
    world.may_open_fast(&agent);
    let visits = Visits { world: &world, edge: &edge, agent: &agent };
    assert!((0..TRIES).any(|_| {
        let (came, syns) = visits.visit(1081, "no-ech");
        assert_eq!((came.fast, syns.len()), (0, 0), "the post-quantum share is too large");
        came.turbo > 0
    }));
    assert!(agent.log().contains("client_hello_too_large"));

    let mut cookies = Vec::new();
    for port in [1081, 1082] {
        assert!(
            (0..TRIES).any(|_| {
                let (came, syns) = visits.visit(port, "no-post-quantum,no-ech");
                assert!(syns.len() as u64 >= came.fast, "{} of {}", syns.len(), came.fast);
                assert!(
                    syns.iter().all(|syn| syn.data.first() == Some(&22)),
                    "a ClientHello in each"
                );
                cookies.extend(syns.into_iter().map(|syn| syn.cookie));
                came.fast > 0
            }),
            "{port}"
        );
    }
    let all = cookies.len();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), all, "no cookie was shown twice, by whatever profile");
    let counts = world.fast_open_counts();
    for outcome in ["replayed", "expired", "forged"] {
        assert_eq!(counts[outcome], 0, "{counts}");
    }
    for context in ["context=\"work\"", "context=\"private\""] {
        assert!(agent.log().contains(context), "{context}");
    }

    // An edge takes none in the first 20 s after its start.
    assert_eq!(visits.early(), 0, "off by default");
    assert!(
        (0..TRIES).any(|_| {
            let (came, syns) = visits.visit(1081, "early-data");
            assert_eq!((came.fast, syns.len()), (0, 0));
            visits.early() > 0
        }),
        "no early data was taken"
    );
    println!("early data on {} connections", visits.early());
}
