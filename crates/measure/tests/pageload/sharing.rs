//! `headstart pageload sharing` as a process: exit codes, hints, text, JSON, and the example of
//! its page.

use std::collections::HashMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::file::{Link, pcap, pcap_header, pcap_packet};
use crate::support::ip::Talk;
use crate::support::{EPOCH_MS, Visit, capture, tls};
use serde_json::Value;

use crate::place::{Place, outcome};

fn place(files: &[(&str, &[u8])]) -> Place {
    Place::new(&["sharing"], files)
}

fn small() -> Vec<u8> {
    capture(&[
        Visit::full(40_000, "198.51.100.1", 0, "a.example"),
        Visit::full(40_001, "198.51.100.1", 60, "a.example"),
        Visit::full(40_002, "198.51.100.2", 120, "a.example"),
        Visit::resumed(40_003, "203.0.113.9", 180, "b.example"),
    ])
}

const HAR: &str = r#"{"log": {"entries": [{
    "startedDateTime": "2026-11-21T10:00:00Z", "serverIPAddress": "198.51.100.1",
    "request": {"url": "https://a.example/"}, "response": {"httpVersion": "h2"},
    "timings": {"connect": 30, "ssl": 20, "send": 1, "wait": 30}
}]}}"#;

#[test]
fn the_figures_of_a_capture() {
    let place = place(&[("a.pcap", &small()), ("as.csv", b"198.51.100.0/24,AS64500\n")]);
    let text = place.prints(&["a.pcap"]);
    assert!(
        text.starts_with("4 TLS connections to 2 names at 3 addresses, within 3 min\n"),
        "{text}"
    );
    assert!(text.contains("  full handshakes"), "{text}");
    assert!(text.contains("3 (75.0 %)"), "{text}");
    assert!(text.contains("of name alone (an upper bound; --asn FILE"), "{text}");
    let text = place.prints(&["a.pcap", "--asn", "as.csv"]);
    assert!(text.contains("of autonomous system and name\n"), "{text}");
    assert!(text.contains("1 address is not in the table of autonomous systems"), "{text}");
}

#[test]
fn the_json_is_one_object_with_the_same_figures() {
    let place = place(&[("a.pcap", &small())]);
    let json = place.json(&["a.pcap"]);
    let full = ["today", "client_only", "client_and_server"].map(|arm| json[arm]["full"].as_u64());
    assert_eq!(full, [Some(3), Some(2), Some(1)]);
    assert_eq!(json["grouping"], "name_only");
    assert_eq!(json["recordings"][0]["kind"], "pcap");
    assert_eq!(json["services"][0]["name"], "a.example");
    assert_eq!(json["services"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["span"]["first_unix_ms"], EPOCH_MS);
}

#[test]
fn only_the_first_services_are_shown() {
    let place = place(&[("a.pcap", &small())]);
    let text = place.prints(&["a.pcap", "--top", "1"]);
    assert!(text.contains("a.example") && !text.contains("b.example"), "{text}");
    assert!(text.contains("  and 1 more (--top N)\n"), "{text}");
    assert!(!place.prints(&["a.pcap", "--top", "0"]).contains("a.example"));
    assert_eq!(place.json(&["a.pcap", "--top", "1"])["services"].as_array().map(Vec::len), Some(2));
}

#[test]
fn several_files_and_standard_input() {
    let place = place(&[("a.pcap", &small()), ("b.har", HAR.as_bytes())]);
    let json = place.json(&["a.pcap", "b.har"]);
    assert_eq!((&json["connections"], &json["connections_unknown"]), (&5.into(), &1.into()));
    let text = place.prints(&["b.har"]);
    assert!(text.contains("today, at most"), "{text}");
    assert!(text.contains("note: HAR files do not say which sessions were resumed"), "{text}");

    let mut child = place
        .command(&["-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&small()).unwrap();
    let (code, out, err) = outcome(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["connections"], 4);
}

#[test]
fn a_capture_that_ends_within_a_packet_is_read_up_to_there() {
    let whole = small();
    let place = place(&[("a.pcap", &whole[..whole.len() - 3])]);
    let (code, out, err) = place.call(&["a.pcap"]);
    assert_eq!(code, Some(0));
    assert_eq!(err, "warning: a.pcap ends within a packet; what is before it counts\n");
    // The packet was the last answer.
    assert!(out.starts_with("3 TLS connections"), "{out}");
    assert!(out.contains("handshakes without an answer, not counted: 1\n"), "{out}");
}

#[test]
fn without_a_handshake_the_answer_is_no() {
    let cut: Vec<(u64, Vec<u8>)> = Visit::full(40_000, "198.51.100.1", 0, "a.example").packets();
    let cut =
        pcap(Link::Raw, cut.iter().map(|(at, packet)| (*at, &packet[..packet.len().min(90)])));
    let other = pcap(Link::Other, [(EPOCH_MS, &[0; 60][..])]);
    let place = place(&[
        ("none.pcap", &capture(&[])),
        ("cut.pcap", &cut),
        ("other.pcap", &other),
        ("none.har", br#"{"log": {"entries": []}}"#),
    ]);
    for (file, hint) in [
        ("none.pcap", "begin to capture before the programs connect"),
        ("cut.pcap", "capture with `tcpdump -s 0`"),
        ("other.pcap", "the link type is not known"),
        ("none.har", "begin to capture before"),
    ] {
        let err = place.fails_as(&[file], 1);
        assert!(err.contains("there is no TLS handshake in what was recorded"), "{err}");
        assert!(err.contains(hint), "{file}: {err}");
    }
}

#[test]
fn unreadable_files_are_named_with_a_hint() {
    let mut lying = small();
    lying[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let place = place(&[
        ("a.pcap", &small()),
        ("lying.pcap", &lying),
        ("packed.gz", b"\x1f\x8b\x08\x00"),
        ("text.txt", b"hello"),
        ("empty.pcap", b""),
        ("cut.har", br#"{"log": {"entries": ["#),
        ("bad.csv", b"prefix,asn\n192.0.2.0/24,1\nnonsense\n"),
    ]);
    for (arguments, words) in [
        (&["missing.pcap"][..], "error: cannot read missing.pcap: No such file or directory"),
        (&["."], "error: cannot read .: "),
        (
            &["lying.pcap"],
            "error: cannot read lying.pcap: what begins at byte 24 says that it has more",
        ),
        (
            &["packed.gz"],
            "error: cannot read packed.gz: it is compressed\nhint: unpack it on the way: zcat",
        ),
        (
            &["text.txt"],
            "error: cannot read text.txt: it is neither a packet capture nor a HAR file",
        ),
        (&["empty.pcap"], "error: cannot read empty.pcap: it is empty"),
        (&["cut.har"], "error: cannot read cut.har: it is not the JSON of a HAR file: EOF"),
        (&["a.pcap", "text.txt"], "error: cannot read text.txt"),
        (
            &["a.pcap", "--asn", "bad.csv"],
            "error: cannot read bad.csv: line 3 is no prefix with an AS",
        ),
        (&["a.pcap", "--asn", "missing"], "error: cannot read missing: No such file"),
        (&["a.pcap", "--top", "few"], "error: invalid value 'few' for '--top <N>'"),
        (&[], "error: the following required arguments were not provided:"),
    ] {
        let err = place.fails_as(arguments, 2);
        assert!(err.starts_with(words), "{arguments:?}: {err}");
    }
}

#[test]
fn help_explains_how_to_record() {
    let help = place(&[]).prints(&["--help"]);
    assert!(help.contains("tcpdump -i any -s 0 -w today.pcap"), "{help}");
    assert!(help.contains("Exit code 1: there is no TLS connection"), "{help}");
}

/// What a handshake takes is not in a capture, and so not in the report, unless somebody says it.
#[test]
fn costs_are_those_that_are_given() {
    let place = place(&[("today.pcap", &capture(&day()))]);
    let plain = place.prints(&["today.pcap"]);
    assert!(!plain.contains("latency") && !plain.contains("energy"), "{plain}");
    let json = place.json(&["today.pcap"]);
    assert_eq!((&json["cost_model"], &json["today"]["latency_ms"]), (&Value::Null, &Value::Null));

    let own = place.prints(&["today.pcap", "--cost", "120ms,60ms"]);
    assert!(own.contains("\n  latency, ms a connection *") && !own.contains("energy"), "{own}");
    assert!(
        own.contains(
            "* not measured here: 120 ms a full handshake, 60 ms a resumed one, as --cost says\n"
        ),
        "{own}"
    );
    let json = place.json(&["today.pcap", "--cost", "120ms,60ms"]);
    let today = &json["today"];
    let [full, resumed] = ["full", "resumed"].map(|key| today[key].as_f64().unwrap());
    let mean = (120.0 * full + 60.0 * resumed) / (full + resumed);
    assert!((today["latency_ms"].as_f64().unwrap() - mean).abs() < 1e-6, "{today}");
    assert_eq!(today["energy_uah"], Value::Null);

    let paper = place.prints(&["today.pcap", "--cost", "paper"]);
    assert!(paper.contains("energy, uAh a connection *"), "{paper}");
    assert!(
        paper.contains("567.6 ms a resumed one, of phones of 2019 (Hiller et al.)\n"),
        "{paper}"
    );
    for wrong in ["fast", "120ms", "120ms,soon"] {
        assert!(place.fails(&["today.pcap", "--cost", wrong]).contains("write two times"));
    }
}

/// The example of docs/sharing.md is what the command prints for [`day`]; UPDATE_DOCS=1 writes it
/// anew.
#[test]
fn the_example_of_the_page() {
    let place = place(&[("today.pcap", &capture(&day())), ("as.csv", AS_OF_DAY.as_bytes())]);
    let printed = place.prints(&["today.pcap", "--asn", "as.csv", "--top", "5"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sharing.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- example -->\n```\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, format!("{before}<!-- example -->\n```\n{printed}```\n{after}")).unwrap();
        return;
    }
    assert_eq!(shown, printed, "UPDATE_DOCS=1 writes {} anew", PathBuf::from(&page).display());
}

const AS_OF_DAY: &str = "198.51.100.0/25,64500\n198.51.100.128/25,64501\n203.0.113.0/24,64502\n";

/// A service: name, its addresses from the first, how many they are, and minutes between two visits
/// of a program.
type Service = (&'static str, [u8; 4], u8, u64);

/// A made-up working day of three programs. Each keeps its own sessions, by address, for ten
/// minutes, as programs do.
fn day() -> Vec<Visit> {
    const SERVICES: [Service; 5] = [
        ("api.example", [198, 51, 100, 1], 1, 4),
        ("www.example", [198, 51, 100, 2], 2, 15),
        ("crash.example", [198, 51, 100, 130], 40, 11),
        ("ads.example", [203, 0, 113, 1], 22, 5),
        ("fonts.example", [203, 0, 113, 100], 4, 60),
    ];
    // Names that are seldom visited, each at an address of its own.
    const SELDOM: u8 = 120;
    const MINUTES: u64 = 8 * 60;
    let mut visits = Vec::new();
    let mut random = Mmix(1);
    for program in 0..3 {
        for (name, first, addresses, minutes) in SERVICES {
            let mut sessions: HashMap<u8, u64> = HashMap::new();
            let mut second = 60 * program + random.below(minutes * 60);
            while second < MINUTES * 60 {
                let which = u8::try_from(random.below(addresses.into())).unwrap();
                let [a, b, c, d] = first;
                let server = format!("{a}.{b}.{c}.{}", d + which);
                let port = 10_000 + u16::try_from(visits.len()).unwrap();
                let last = sessions.insert(which, second);
                let resumes = last.is_some_and(|last| second - last <= 600);
                let visit = if resumes { Visit::resumed } else { Visit::full };
                visits.push(visit(port, &server, second, name));
                second += 1 + minutes * 30 + random.below(minutes * 60);
            }
        }
    }
    for which in 1..=SELDOM {
        for _ in 0..=random.below(2) {
            let port = 10_000 + u16::try_from(visits.len()).unwrap();
            let (server, name) = (format!("192.0.2.{which}"), format!("seldom{which}.example"));
            visits.push(Visit::full(port, &server, random.below(MINUTES * 60), &name));
        }
    }
    visits
}

/// A capture of 300 MB, made while it is read, or of 3 GB with HEADSTART_TEST_LARGE=1: the program
/// never has more than a part of it in memory.
#[test]
fn memory_does_not_grow_with_the_capture() {
    let is_large = std::env::var_os("HEADSTART_TEST_LARGE").is_some_and(|value| value == "1");
    // More than are followed at the same time; the large capture has more than are counted, too.
    let visits: u32 = if is_large { 1_300_000 } else { 130_000 };
    let counted = u64::from(visits).min(1 << 20);
    // Kilobytes: the program itself with 65,536 places of connections, and what it keeps of each
    // that counts.
    let most = (64 << 10) + counted * 160 / 1024;

    let place = place(&[]);
    let mut child = place
        .command(&["-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = BufWriter::new(child.stdin.take().unwrap());
    input.write_all(&pcap_header(Link::Ethernet)).unwrap();
    let mut written = 0;
    for at in 0..visits {
        let packets = busy(at);
        written += packets.len() as u64;
        input.write_all(&packets).unwrap();
    }
    input.flush().unwrap();
    // All but what the pipe holds was read, and the program waits for more.
    let peak = peak(child.id());
    drop(input);
    let (code, out, err) = outcome(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["connections"], counted);
    assert_eq!(report["seen"]["left_out"], u64::from(visits) - counted);
    assert_eq!(report["seen"]["tcp_connections"], visits);
    assert_eq!((&report["names"], &report["client_only"]["full"]), (&1000.into(), &1000.into()));
    println!("{} MiB at most, of {} MiB read", peak >> 10, written >> 20);
    assert!(written > 2 * (most << 10), "{} MiB are too little to tell", written >> 20);
    assert!(peak < most, "{} MiB at most, of {} MiB read", peak >> 10, written >> 20);
}

/// The frames of a connection that goes on for a while after its handshake.
fn busy(at: u32) -> Vec<u8> {
    let [_, a, b, c] = at.to_be_bytes();
    let client = SocketAddr::new([10, a, b, c].into(), 40_000);
    let (server, name) = ("198.51.100.1:443".parse().unwrap(), format!("n{}.example", at % 1000));
    let mut talk = Talk::new(client, server);
    let mut packets = talk.open();
    packets.extend(talk.up(&tls::hello(&name).stream()));
    packets.extend(talk.down(&tls::answer13(false)));
    packets.extend(talk.down(&tls::record(23, &[0; 700])));
    let at = EPOCH_MS + u64::from(at);
    packets.iter().flat_map(|packet| pcap_packet(at, &Link::Ethernet.frame(packet))).collect()
}

/// The most memory that a process has had, in kilobytes.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A sequence without pattern that is the same in every run (Knuth's MMIX).
struct Mmix(u64);

impl Mmix {
    fn below(&mut self, bound: u64) -> u64 {
        let Self(state) = self;
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % bound
    }
}
