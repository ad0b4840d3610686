//! Chromium through `headstart agent` to `headstart edge` before a built-in site, over an emulated link: HEADSTART_TEST_NET=1 as
//! well, as root.

use std::os::unix::process::CommandExt;

use headstart_peers::site::Site;

use crate::place::browser;
use crate::sites::is_as_described;
use crate::world::{AGENT, CLEAR, Daemon, MAPS, SITE, TLS, World, has_net};

/// The group whose connections are redirected.
const WEB: u32 = 4242;

/// Connections of a page: those that Chromium opened, and what became of them.
struct Opened {
    turbo: u64,
    fast: u64,
    all: u64,
}

fn opened(agent: &Daemon<'_>) -> Opened {
    let with = |label: &str| agent.count("headstart_connections_total", &[label]);
    Opened { turbo: with("opening=\"turbo\""), fast: with("opening=\"fop\""), all: with("") }
}

/// What a load adds.
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
    let agent = world.agent("", &[]);
    let site = Site::built_in(SITE).unwrap();
    world.redirects(WEB, AGENT);
    let mapped = format!("--browser-arg=--host-resolver-rules=MAP * {}", world.server());
    let (socks, connect) =
        (format!("socks5://127.0.0.1:{AGENT}"), format!("http://127.0.0.1:{AGENT}"));
    for way in [["--proxy", &socks], ["--proxy", &connect], ["--language=en-US", &mapped]] {
        let came = added(&agent, || {
            let mut recorder = world.recorder(&way);
            if way[1] == mapped {
                recorder.gid(WEB);
            }
            is_as_described(&world.records(recorder), &site);
        });
        // On a busy machine some answers are later than is waited for.
        assert!(
            came.turbo >= site.hosts().len() as u64 / 2,
            "{way:?}: {} of {}",
            came.turbo,
            came.all
        );
    }
}

#[test]
fn data_leave_with_the_syn_where_the_client_hello_fits() {
    let (true, Some(_turn)) = (has_net(), browser()) else { return };
    let world = World::with_fast_open();
    let _site = world.site();
    let origin = format!("http://{CLEAR}");
    let fast = ["--origin", &origin, "--fast-open", "--fast-open-maps", MAPS].map(str::to_owned);
    let all = [&fast[..], &world.certificates()].concat();
    let edge = world.edge(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let profiles = ["work=127.0.0.1:1081", "private=127.0.0.1:1082"];
    let agent = world.agent(",fop=1", &["--listen-for", profiles[0], "--listen-for", profiles[1]]);
    world.may_open_fast(&agent);
    let handshakes =
        |how: &str| edge.count("headstart_tls_handshakes_total", &["result=\"done\"", how]);
    let hosts = Site::built_in(SITE).unwrap().hosts().len() as u64;
    // With HTTP/1.1 there are several connections to a host, and later ones resume.
    let visit = |port: &str, tls: Option<&str>| {
        let proxy = format!("socks5://127.0.0.1:{port}");
        let [full, resumed] =
            ["resumed=\"no\"", "resumed=\"yes\""].map(|how| (how, handshakes(how)));
        let came = added(&agent, || {
            let load = ["--proxy", &proxy, "--browser-arg=--disable-http2"];
            let recording = world.records(world.recorder(&[&load, tls.as_slice()].concat()));
            assert_eq!(recording.page.resources().len(), 104);
        });
        assert!(handshakes(full.0) - full.1 >= hosts, "a new browser has no session of another");
        assert!(handshakes(resumed.0) > resumed.1, "later connections resume");
        (came, world.syns())
    };
    for tls in [None, Some("--tls=no-ech")] {
        let (came, syns) = visit("1081", tls);
        assert_eq!((came.fast, syns.len()), (0, 0), "{tls:?}");
        assert!(came.turbo > 0, "{tls:?}");
    }
    assert!(agent.log().contains("client_hello_too_large"));
    let mut cookies = Vec::new();
    for port in ["1081", "1082"] {
        let (came, syns) = visit(port, Some("--tls=no-post-quantum,no-ech"));
        assert!(came.fast > 0 && syns.len() as u64 >= came.fast, "{} of {}", came.fast, came.all);
        assert!(syns.iter().all(|syn| syn.data.first() == Some(&22)), "a ClientHello is in each");
        cookies.extend(syns.into_iter().map(|syn| syn.cookie));
    }
    let all = cookies.len();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), all, "no cookie was shown twice, by whatever profile");
    let counts = world.fast_open_counts();
    for outcome in ["replayed", "expired", "forged"] {
        assert_eq!(counts[outcome], 0, "{counts}");
    }
}
