//! The status pages of an edge and an agent between curl and an origin, as readers see them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::daemon::{Daemon, until};
use crate::edge::Edge;
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.site.localhost";

/// Connections that go through both.
const CONNECTIONS: usize = 3;

/// An edge that shows names, an agent that does not, and connections that have ended.
struct Site {
    edge: Edge,
    agent: Daemon,
    _files: Files,
    _origin: Origin,
}

impl Site {
    fn visited() -> Self {
        let (files, origin) = (Files::new(), Origin::start());
        files.issue(NAME);
        let status = ["--status", "127.0.0.1:0"];
        let server = origin.http();
        let edge = [&["--origin", &server, "--status-names"][..], &status].concat();
        let edge = Edge::start(&files, &[NAME], &edge);
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command.args(["agent", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]).args(status);
        command.args(["--edge", &format!("{NAME}={}", edge.address)]);
        command.args(["--tls-ports", &edge.address.port().to_string()]);
        let agent = Daemon::start(command.env_clear().stdin(Stdio::null()));
        let proxy = format!("socks5h://{}", agent.address("listening address=").unwrap());
        for _ in 0..CONNECTIONS {
            let mut curl = Command::new("curl");
            curl.args([
                "-sS",
                "--max-time",
                "150",
                "--cacert",
                &files.path(&format!("{NAME}.pem")),
            ]);
            curl.args(["--proxy", &proxy, &format!("https://{}/", edge.at(NAME))]);
            curl.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
            let output = curl.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let site = Self { edge, agent, _files: files, _origin: origin };
        for daemon in [&site.agent, &*site.edge] {
            until("its connections have ended", || recent(daemon).len() >= CONNECTIONS);
        }
        site
    }
}

fn page(daemon: &Daemon) -> SocketAddr {
    daemon.address("status address=").expect("a status page")
}

/// Returns the head and the body of an answer.
fn ask(address: SocketAddr, path: &str, host: &str) -> (String, String) {
    let mut tcp = TcpStream::connect(address).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn json(daemon: &Daemon) -> Value {
    serde_json::from_str(&ask(page(daemon), "/status.json", "localhost").1).unwrap()
}

fn recent(daemon: &Daemon) -> Vec<Value> {
    json(daemon)["recent"].as_array().unwrap().clone()
}

/// Returns the connections of all openings.
fn connections(status: &Value) -> u64 {
    let openings = status["openings"].as_object().unwrap();
    openings.values().map(|opening| opening["connections"].as_u64().unwrap()).sum()
}

#[test]
fn pages_show_what_happened_and_no_names_unless_asked_to() {
    let site = Site::visited();
    let status = json(&site.agent);
    assert_eq!(connections(&status), CONNECTIONS as u64);
    // Over loopback, TCP may be sooner than any datagram.
    let plain = status["openings"]["plain"]["connections"].as_u64().unwrap_or(0);
    let trips = &status["round_trips"];
    assert_eq!(trips["plain"], CONNECTIONS);
    assert_eq!(trips["saved"], CONNECTIONS as u64 - plain);
    for record in status["recent"].as_array().unwrap() {
        let text = record.to_string();
        assert!(record["name"].is_null() && !text.contains("127.0.0.1"), "{text}");
        assert!(text.contains("SYN") && record["rtt_ms"].as_f64().unwrap() > 0.0, "{text}");
    }
    let html = ask(page(&site.agent), "/", "localhost").1;
    let (_, records) = html.split_once("Recent connections").unwrap();
    assert!(!records.contains(NAME) && !records.contains("127.0.0.1"), "{records}");
    assert_eq!(records.matches("<svg").count(), CONNECTIONS);

    let status = json(&site.edge);
    let origin = &status["origins"][0];
    assert_eq!([&origin["name"], &origin["state"]], ["all others", "up"]);
    assert!(origin["since"].as_u64() >= status["started"].as_u64(), "{origin}");
    assert_eq!(status["certificates"][0]["name"], NAME);
    let epochs: Vec<_> = status["keys"].as_array().unwrap().iter().map(|it| &it["epoch"]).collect();
    assert_eq!(epochs, ["current", "next"]);
    for record in status["recent"].as_array().unwrap() {
        assert_eq!(record["name"], format!("{NAME} from 127.0.0.1"));
    }
}

#[test]
fn metrics_have_the_figure_of_the_page_and_those_of_the_process() {
    let site = Site::visited();
    let metrics = site.agent.address("metrics address=").unwrap();
    let (_, text) = ask(metrics, "/metrics", "localhost");
    let value = |series: &str| -> f64 {
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().unwrap()
    };
    let ratio = value("headstart_round_trips_saved_ratio{role=\"agent\"}");
    assert_eq!(json(&site.agent)["round_trips"]["saved_ratio"].as_f64(), Some(ratio));
    assert!(value("process_open_fds") <= value("process_max_fds"));
    assert!(value("process_resident_memory_bytes") > 0.0);
    assert!(value("headstart_limit{limit=\"max_connections\"}") > 0.0);
    // They are there before anything fell back.
    assert_eq!(value("headstart_fallbacks_total{reason=\"committed_refusal\"}"), 0.0);

    let expiry = format!("headstart_certificate_expiry_seconds{{name=\"{NAME}\"}} ");
    let metrics = site.edge.address("metrics address=").unwrap();
    // It is shown when the edge looks at its files for the first time.
    until("the certificate is shown", || ask(metrics, "/metrics", "localhost").1.contains(&expiry));
}

#[test]
fn strangers_names_lead_to_no_status() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let arguments = ["--origin", &origin.http(), "--status", "0.0.0.0:0"];
    let edge = Edge::start(&files, &[NAME], &arguments);
    assert_eq!(edge.logged("other machines can ask for status"), 1);
    let address = SocketAddr::from(([127, 0, 0, 1], page(&edge).port()));
    for path in ["/", "/status.json"] {
        let (head, body) = ask(address, path, "rebound.example");
        assert!(head.starts_with("HTTP/1.1 421 ") && !body.contains("openings"), "{head}{body}");
        let (head, _) = ask(address, path, &address.to_string());
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("content-security-policy: default-src 'none'; "), "{head}");
        assert!(head.contains("cross-origin-resource-policy: same-origin"), "{head}");
    }
    assert!(ask(address, "/metrics", "localhost").0.starts_with("HTTP/1.1 404 "));
}

/// Returns the text of the element with this id.
fn figure<'a>(dom: &'a str, id: &str) -> &'a str {
    let rest = dom.split_once(&format!("id=\"{id}\">"));
    let text = rest.unwrap_or_else(|| panic!("{id} is not in\n{dom}")).1;
    text.split('<').next().unwrap()
}

#[test]
fn chromium_reads_the_figures_and_applies_the_style() {
    if std::env::var_os("HEADSTART_TEST_BROWSER").is_none() {
        eprintln!("skipped: HEADSTART_TEST_BROWSER=1 runs it, with Chromium");
        return;
    }
    let site = Site::visited();
    let profile = tempfile::tempdir().unwrap();
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/", page(&site.agent)));
    let output = chromium.output().unwrap();
    let (dom, log) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    let status = json(&site.agent);
    assert_eq!(figure(&dom, "plain"), status["round_trips"]["plain"].to_string());
    assert_eq!(figure(&dom, "saved"), status["round_trips"]["saved"].to_string());
    for (opening, facts) in status["openings"].as_object().unwrap() {
        let count = facts["connections"].to_string();
        assert_eq!(figure(&dom, &format!("opening-{opening}")), count);
    }
    assert!(dom.matches("<circle").count() > CONNECTIONS, "{dom}");
    assert!(!log.contains("Content Security Policy"), "{log}");
}
