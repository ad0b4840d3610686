//! `headstart lab list` and `run` as processes.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use headstart_emulation::{CapturedPacket, TcpSegment, read_packets};
use headstart_proto::hello::{self, Progress};
use headstart_testkit::has_net;

use crate::library::library;
use crate::samples::{self, fastest, samples};
use crate::{alone, beside_others, headstart};

const EXPERIMENT: &str = r#"
name = "shape"
title = "Round trips of three arms"
about = "A test: counts, not times"
trials = 3
quick_trials = 3
arms = ["tls13", "turbo", "quic"]
suites = ["p256"]

[[link]]
name = "100 ms"
rtt = "100ms"

[[bar]]
arm = "turbo"
against = "tls13"
ratio_max = 0.9

[[bar]]
arm = "*"
complete_min = 1.0
"#;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_list_has_every_experiment_and_its_time() {
    let output = headstart(&["lab", "list", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|one| one["name"].as_str()).collect();
    let expected = [
        "turbotls-table",
        "loss",
        "middleboxes",
        "balancer",
        "load",
        "scale",
        "size",
        "links",
        "careful-resume",
        "careful-beside",
        "ech",
        "fop-table",
        "fop-addresses",
        "fop-privacy",
        "sharing",
        "cs244",
        "pages",
        "tor",
        "browser",
        "soak",
        "relay",
        "handshakes",
        "managed",
        "attack",
        "attack-http",
        "idle",
    ]
    .map(Some);
    assert_eq!(names, expected);
}

#[test]
fn an_unknown_experiment_lists_the_known_ones() {
    let output = headstart(&["lab", "run", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("there is no experiment 'nothing'\nhint: there are turbotls-table, "),
        "{text}"
    );
}

#[test]
fn a_small_run_counts_round_trips() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("shape.toml"), dir.path().join("results"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Between the round trips of an arm and one more, with the programs' own time.
    for (cell, (arm, least, most)) in [("tls13", 1.9, 2.6), ("turbo", 0.9, 1.6), ("quic", 0.9, 1.6)]
        .iter()
        .enumerate()
        .map(|(number, expected)| (&cells[number], *expected))
    {
        assert_eq!((cell["arm"].as_str(), cell["n"].as_u64()), (Some(arm), Some(3)), "{cells}");
        assert_eq!(cell["failed"].as_u64(), Some(0), "{cells}");
        let rtts = fastest(&place, &[("arm", arm)], "rtts");
        assert!((least..most).contains(&rtts), "{arm}: {rtts}");
    }
    assert_eq!(samples::text(&place).lines().count(), 1 + 9);
    assert!(place.join("environment.json").exists() && place.join("experiment.toml").exists());
}

const BESIDE: &str = r#"
name = "beside"
title = "A download and a connection"
about = "A test: counts, not rates"
trials = 2
quick_trials = 2
arms = ["tls13"]
suites = ["p256"]

[[link]]
name = "narrow"
rtt = "20ms"
path = "delay 10ms, rate 8Mbit queue 100kB"

[[variant]]
work.beside = { ahead = "300ms", times = ["1s", "2s"] }

[[bar]]
arm = "*"
complete_min = 1.0
"#;

#[test]
fn a_download_beside_a_connection_counts_apart() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("beside.toml"), dir.path().join("results"));
    std::fs::write(&file, BESIDE).unwrap();
    let arguments = [file.to_str().unwrap(), "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let column = |variant: &str| -> Vec<[f64; 3]> {
        let columns = ["bytes", "ms_to_last_response_byte", "round"];
        let rows = samples(&place, &[("variant", variant)], columns);
        rows.into_iter().map(|row| row.map(|cell| cell.parse().unwrap())).collect()
    };
    let [answers, first, both] = ["answer", "1s of the download", "2s of the download"].map(column);
    assert_eq!((answers.len(), first.len(), both.len()), (2, 2, 2));
    assert!(answers.iter().all(|[bytes, ..]| *bytes == 1000.0), "{answers:?}");
    for ([first, ms, round], [both, _, of_both]) in first.into_iter().zip(both) {
        assert!(0.0 < first && first <= both && round == of_both, "{first} {both}");
        // The time of a megabyte, where that many bytes came in a second.
        assert!((ms * first / 1e9 - 1.0).abs() < 0.01, "{first} bytes: {ms} ms");
    }
}

/// A turn of each arm, which needs no program of others.
const ATTACK: &str = r#"
name = "small"
title = "An edge under attack"
about = "A test: counts, not rates"
bench = "attack"
rounds = 2
quick_rounds = 1
turn = "300ms"
quick_turn = "300ms"
rate = 1000
arms = ["edge", "sink"]

[[variant]]
name = "well-formed hellos"
work.flood = "well-formed"

[[bar]]
arm = "*"
complete_min = 1.0
"#;

#[test]
fn a_benchmark_is_reported_as_other_experiments_are() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("small.toml"), dir.path().join("results"));
    std::fs::write(&file, ATTACK).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (cell, arm) in ["edge", "sink"].into_iter().enumerate() {
        let cell = &cells[cell];
        assert_eq!((cell["arm"].as_str(), cell["n"].as_u64()), (Some(arm), Some(2)), "{cells}");
        assert!(cell["exchanges_per_s"].as_f64().unwrap() > 0.0, "{cells}");
    }
    let [environment, turns] =
        ["environment.json", "turns.json"].map(|name| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(place.join(name)).unwrap()).unwrap()
        });
    let account = &environment["attack: well-formed hellos"]["account"]["account"];
    assert!(account["sent"].as_u64() > Some(0), "{environment}");
    assert!(account["answers"].as_u64() > Some(0), "{environment}");
    assert_eq!(account["wrong"].as_u64(), Some(0), "{environment}");
    assert_eq!(turns["turns"].as_array().unwrap().len(), 4, "{turns}");
    let report = headstart(&["lab", "report", place.to_str().unwrap()]);
    assert!(report.status.success(), "{}", stderr(&report));
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("well-formed hellos"), "{report}");
}

/// Two lists of numbers, and two ways to hold connections.
const HELD: [&str; 2] = [
    r#"
name = "relayed"
title = "Connections beside others"
about = "A test: counts, not rates"
bench = "relay"
rounds = 1
quick_rounds = 1
turn = "300ms"
quick_turn = "300ms"
arms = ["edge"]

[[variant]]
name = "some"
held = [1, 40]
names = [1, 300]
work.connections = 2

[[bar]]
arm = "*"
complete_min = 1.0
"#,
    r#"
name = "ended"
title = "TLS beside others"
about = "A test: counts, not rates"
bench = "attack-http"
rounds = 1
quick_rounds = 1
turn = "300ms"
quick_turn = "300ms"
arms = ["edge"]

[[variant]]
name = "some"
held = [20]
work.connections = 2

[[bar]]
arm = "*"
complete_min = 1.0
"#,
];

#[test]
fn connections_are_made_beside_those_that_wait_and_to_one_of_many_names() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for (number, text) in HELD.into_iter().enumerate() {
        let file = dir.path().join(format!("{number}.toml"));
        let place = dir.path().join(format!("results-{number}"));
        std::fs::write(&file, text).unwrap();
        let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
        let output = headstart(&[&["lab", "run"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for cell in cells.as_array().unwrap() {
            assert!(cell["exchanges_per_s"].as_f64().unwrap() > 0.0, "{cells}");
            names.push(cell["variant"].as_str().unwrap().to_owned());
        }
    }
    let expected = [
        "some, 1 held, 1 names",
        "some, 1 held, 300 names",
        "some, 40 held, 1 names",
        "some, 40 held, 300 names",
        "some, 20 held",
    ];
    assert_eq!(names, expected);
}

/// The built-in one in short, without its bars on growth: seconds show none.
#[test]
fn a_soak_has_its_events_and_is_reported_over_time() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("small.toml"), dir.path().join("results"));
    let text = include_str!("../../../../lab/experiments/soak.toml");
    let text = text.replace("quick_duration = \"240s\"", "quick_duration = \"40s\"");
    let (text, _) = text.split_once("# Over forty minutes").unwrap();
    std::fs::write(&file, text).unwrap();
    let arguments = [file.to_str().unwrap(), "--quick", "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = cells.as_array().unwrap();
    let count =
        |of: &dyn Fn(&serde_json::Value) -> bool| cells.iter().filter(|one| of(one)).count();
    assert_eq!(count(&|cell| cell["growth"].is_object()), 4 * 3, "{cells:?}");
    let good =
        |cell: &serde_json::Value| cell["variant"] == "small" && cell["blame"]["outside"] == 0;
    assert_eq!(count(&good), 6 + 3 * 4, "{cells:?}");
    assert!(count(&|cell| cell["openings"]["turbo"].is_u64()) >= 2, "{cells:?}");
    let events = zstd::decode_all(&*std::fs::read(place.join("events.csv.zst")).unwrap()).unwrap();
    let events = String::from_utf8(events).unwrap();
    for event in ["edge-3 killed", "agent killed", "redis killed", "key ring rotated", "UDP back"] {
        assert!(events.contains(event), "{events}");
    }
    let report = headstart(&["lab", "report", place.to_str().unwrap()]);
    assert!(report.status.success(), "{}", stderr(&report));
    let report = std::fs::read_to_string(place.join("report.html")).unwrap();
    for part in ["exchanges a second", "resident memory, MB", "threads", "edge-1 killed</title>"] {
        assert!(report.contains(part), "{part}");
    }
}

/// Two attacks, one of them on connections and one on handshakes.
const SIEGE: &str = r#"
name = "siege"
title = "A server that speaks TLS under attack"
about = "A test: counts, not rates"
bench = "attack-http"
rounds = 1
quick_rounds = 1
turn = "400ms"
quick_turn = "400ms"
honest = 20
arms = ["edge"]

[[variant]]
name = "reset"
work.siege = { kind = "rapid-reset", connections = 2, rate = 20000 }

[[variant]]
name = "hellos"
work.siege = { kind = "spoofed-hellos", rate = 1000 }

[[variant]]
name = "passed"
passes = true
work.siege = { kind = "spoofed-hellos", rate = 1000 }

[[bar]]
arm = "*"
complete_min = 1.0
"#;

#[test]
fn honest_clients_are_measured_before_during_and_after_an_attack() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("siege.toml"), dir.path().join("results"));
    std::fs::write(&file, SIEGE).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [environment, turns] =
        ["environment.json", "turns.json"].map(|name| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(place.join(name)).unwrap()).unwrap()
        });
    for (number, variant) in ["reset", "hellos"].into_iter().enumerate() {
        let (cell, turn) = (&cells[number], &turns["turns"][number]);
        assert_eq!((cell["variant"].as_str(), cell["n"].as_u64()), (Some(variant), Some(1)));
        assert!(cell["kept"]["rate"].as_f64() > Some(0.0), "{cells}");
        assert!(cell["kept"]["recovery_s"].is_number(), "{cells}");
        assert!(turn["quiet_per_s"].as_f64() > Some(0.0), "{turns}");
        assert!(turn["sent"].as_u64() > Some(0), "{turns}");
    }
    // More streams than an edge lets a client break off or reset, so connections were ended.
    assert!(turns["turns"][0]["ended"].as_u64() > Some(0), "{turns}");
    let counters = environment["attack: reset"]["counters"].to_string();
    assert!(counters.contains("headstart_limits_hit_total"), "{environment}");
    for variant in ["hellos", "passed"] {
        let account = &environment[&format!("attack: {variant}")]["account"];
        assert!(account["answers"].as_u64() > Some(0), "{environment}");
        assert_eq!(account["wrong"].as_u64(), Some(0), "{environment}");
    }
}

const FAST: &str = r#"
name = "fast"
title = "Fast Open by the kernel's cookies and by private ones"
about = "A test: counts, not times"
trials = 3
quick_trials = 3
arms = ["tfo-0rtt", "fop", "fop-resumed", "fop-0rtt", "fop-agent"]
suites = ["p256"]

[[link]]
name = "100 ms"
rtt = "100ms"

[[variant]]
work.first_and_later = 3

[[bar]]
arm = "*"
complete_min = 1.0
"#;

#[test]
fn private_cookies_save_what_those_of_the_kernel_save() {
    if !has_net() {
        return;
    }
    let _machine = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("fast.toml"), dir.path().join("results"));
    std::fs::write(&file, FAST).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Round trips before the first request byte of later connections, and what opened them.
    for (arm, opening, trips) in [
        ("tfo-0rtt", "tfo", 0.0),
        ("fop", "fop", 1.0),
        ("fop-resumed", "fop", 1.0),
        ("fop-0rtt", "fop", 0.0),
        ("fop-agent", "fop", 1.0),
    ] {
        let [later, first] = ["later", "first"].map(|variant| {
            let mut all = cells.as_array().unwrap().iter();
            all.find(|cell| cell["arm"] == arm && cell["variant"] == variant).unwrap()
        });
        // Of six; on a busy machine a SYN may not wait long enough for its ClientHello.
        let fast = later["openings"][opening].as_u64().unwrap_or(0);
        assert!(fast >= 4, "{arm}: {later}");
        let rtts = fastest(&place, &[("arm", arm), ("variant", "later")], "rtts");
        assert!((trips..trips + 0.6).contains(&rtts), "{arm}: {rtts}");
        let early = if arm.ends_with("0rtt") { fast } else { 0 };
        assert_eq!(later["zero_rtt"], early, "{arm}: {later}");
        assert!(first["openings"].get("fop").is_none(), "{arm}: {first}");
    }
    // No control group of the run stays behind.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let root = mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        (fields[2] == "cgroup2").then(|| fields[1].to_owned())
    });
    let groups = std::fs::read_dir(root.unwrap()).unwrap().flatten();
    let names = groups.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let processes =
        names.filter_map(|name| Some(name.strip_prefix("headstart-emulation-")?.to_owned()));
    // Other tests may run now, with groups of their own.
    let left: Vec<_> =
        processes.filter(|process| !Path::new("/proc").join(process).exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

const SEEN: &str = r#"
name = "seen"
title = "Fast Open, by what clients say and by packets"
about = "A test: counts, not times"
trials = 8
quick_trials = 8
warmup = 0
arms = ["tfo-0rtt", "fop-0rtt"]
suites = ["p256"]

[[link]]
name = "20 ms"
rtt = "20ms"

[[variant]]
work.first_and_later = 2
"#;

/// One connection as packets show it.
#[derive(Debug)]
struct Seen {
    server: SocketAddr,
    /// Bytes of the cookie in the SYN, and whether all of ClientHello and early data was in it and
    /// never sent again.
    cookie: usize,
    in_syn: bool,
    isn: u32,
}

/// The connections of a client in the order of their SYNs.
fn seen(packets: &[CapturedPacket]) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    let mut known = HashMap::new();
    for packet in packets {
        let Some(segment) = TcpSegment::read(&packet.bytes) else { continue };
        let ends = match packet.from_node {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        if packet.from_node && segment.syn {
            let cookie = segment.fast_open().first().map_or(0, |cookie| cookie.len());
            let in_syn = match hello::read(segment.payload) {
                Ok(Progress::Complete(hello)) => {
                    hello.early_data && hello.end < segment.payload.len()
                }
                _ => false,
            };
            known.insert(ends, all.len());
            all.push(Seen { server: segment.destination, cookie, in_syn, isn: segment.seq });
            continue;
        }
        let Some(one) = known.get(&ends).and_then(|number: &usize| all.get_mut(*number)) else {
            continue;
        };
        let is_first = segment.seq == one.isn.wrapping_add(1) && !segment.payload.is_empty();
        one.in_syn &= !(packet.from_node && is_first);
    }
    all
}

/// Clients, by what the kernel tells them, and captures agree on what left with the SYN.
#[test]
fn clients_and_captures_agree_on_what_left_with_the_syn() {
    if !has_net() {
        return;
    }
    let _machine = beside_others();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("seen.toml"), dir.path().join("results"));
    std::fs::write(&file, SEEN).unwrap();
    let arguments = [file.to_str().unwrap(), "--pcap", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let file = File::open(place.join("captures/01-20-ms-client-1.pcapng.zst")).unwrap();
    let packets = read_packets(zstd::Decoder::new(file).unwrap()).unwrap();
    let connections = seen(&packets);
    // Cookies of Linux have 8 bytes.
    for (arm, cookie) in [("tfo-0rtt", 8), ("fop-0rtt", 16)] {
        let server = connections.iter().find(|one| one.cookie == cookie).unwrap().server;
        let connections: Vec<_> = connections.iter().filter(|one| one.server == server).collect();
        let rows = samples(&place, &[("arm", arm)], ["variant", "opening", "early_data"]);
        assert_eq!((connections.len(), rows.len()), (16, 16), "{arm}");
        for (seen, [variant, opening, early]) in connections.iter().zip(&rows) {
            let in_syn = opening != "plain" && early == "true";
            assert_eq!(seen.in_syn, in_syn, "{arm}: {seen:?}, {opening}, {early}");
            assert!(!in_syn || variant == "later", "{arm}: {seen:?}, {opening}, {early}");
        }
        // All eight that could, but where a busy machine was late.
        assert!(connections.iter().filter(|seen| seen.in_syn).count() >= 4, "{arm}: {rows:?}");
    }
}

/// The bars of the experiment are what the paper found of plain Fast Open, and what private cookies
/// promise.
#[test]
fn captures_show_who_can_link_connections() {
    if !has_net() {
        return;
    }
    let _machine = beside_others();
    let dir = tempfile::tempdir().unwrap();
    // One trial of each decides; on a busy machine it may come to nothing.
    let place = (1..=3).map(|number| dir.path().join(format!("results-{number}"))).find(|place| {
        let place = place.to_str().unwrap();
        let output = headstart(&["lab", "run", "fop-privacy", "--quick", "--out", place]);
        eprintln!("{}", stderr(&output));
        output.status.success()
    });
    let place = place.expect("the bars are met");
    let captures = std::fs::read_dir(place.join("captures")).unwrap().flatten();
    let mut kinds = [0, 0];
    for entry in captures {
        kinds[usize::from(entry.path().extension().is_some_and(|kind| kind == "json"))] += 1;
    }
    assert_eq!(kinds, [10, 10], "a capture and its cases for each row");
    let report = dir.path().join("report.html");
    let arguments = ["lab", "report", place.to_str().unwrap(), "--html", report.to_str().unwrap()];
    let output = headstart(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("third parties, linked by the server"), "{text}");
    assert!(std::fs::read_to_string(report).unwrap().contains("Who can link a client"));
}

#[test]
fn only_some_experiments_have_a_full_form() {
    let output = headstart(&["lab", "run", "ech", "--full"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ech has no longer form\nhint: "), "{}", stderr(&output));
    let output = headstart(&["lab", "run", "fop-table", "--full", "--quick"]);
    assert_eq!(output.status.code(), Some(2));
}

/// The row would otherwise be read as how arms fare with the box.
#[test]
fn a_box_that_does_nothing_breaks_its_cells() {
    if !has_net() {
        return;
    }
    let _machine = beside_others();
    let dir = tempfile::tempdir().unwrap();
    let (file, place) = (dir.path().join("idle.toml"), dir.path().join("results"));
    // No packet of these connections is long enough for the link to drop it.
    let idle = "rtt = \"100ms\"\npath = \"delay 50ms, mtu 1500 silent\"\nacts = \"drops\"\n";
    let text = EXPERIMENT.replace("rtt = \"100ms\"\n", idle);
    std::fs::write(&file, text.replace("trials = 3", "trials = 1")).unwrap();
    let arguments = [file.to_str().unwrap(), "--json", "--out", place.to_str().unwrap()];
    let output = headstart(&[&["lab", "run"][..], &arguments].concat());
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("broken: 100 ms: the box did nothing"), "{printed}");
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for cell in cells.as_array().unwrap() {
        assert!(cell["broken"].is_string() && cell["links"]["dropped"] == 0, "{cell}");
    }
}

#[test]
fn a_round_trip_unlike_its_elements_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    let wrong = "rtt = \"68ms\"\npath = \"preset lte\"\n";
    std::fs::write(&file, EXPERIMENT.replace("rtt = \"100ms\"\n", wrong)).unwrap();
    let output = headstart(&["lab", "run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("rtt is 68ms, its elements make 59.") && text.contains("\nhint: "),
        "{text}"
    );
}

const PROGRAMS: &str = r#"
name = "programs"
title = "Sessions of curl, Python and Perl"
about = "A test: counts, not times"
trials = 24
quick_trials = 24
warmup = 0
timeout = "60s"
arms = ["today", "client", "client-server", "client-server-turbo"]
suites = ["p256"]

[[link]]
name = "60 ms"
rtt = "60ms"

[[variant]]
servers = 2
balance = "five-tuple"
work.programs.hosts = [2, 1]
[variant.work.programs.shares]
curl = 3
python = 2
nginx = 1

[[bar]]
arm = "*"
complete_min = 1.0

[[bar]]
arm = "client"
against = "today"
fewer_full_min = 0.01

[[bar]]
arm = "client-server"
against = "client"
fewer_full_min = 0.01

# Two hosts of curl, two of Python, as they offer other protocols, and one of nginx.
[[bar]]
arm = "client-server"
full_max = 0.21

[[bar]]
arm = "client-server-turbo"
full_max = 0.21

# One of six is of nginx. Few others find no answer in time on a busy machine: the grace is a
# share of the round trip.
[[bar]]
arm = "client-server-turbo"
plain_max = 0.6
"#;

/// All but the first connection have a session, by whichever program.
const EARLY: &str = r#"
name = "early"
title = "Early data of programs that have the agent speak TLS"
about = "A test: counts, not times"
trials = 12
quick_trials = 12
warmup = 0
timeout = "60s"
arms = ["client-server-turbo-0rtt"]
suites = ["p256"]

[[link]]
name = "4 ms"
rtt = "4ms"

[[variant]]
work.programs.hosts = [1]
[variant.work.programs.shares]
node = 1
perl = 1
php = 1
ruby = 1

[[bar]]
arm = "*"
complete_min = 1.0

[[bar]]
arm = "*"
zero_rtt_min = 0.3
"#;

#[test]
fn programs_share_sessions_by_an_agent_and_more_by_servers() {
    if !has_net() {
        return;
    }
    let _machine = beside_others();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("results");
    let cells = run_programs(dir.path(), PROGRAMS);
    for cell in cells.as_array().unwrap() {
        let handshakes = &cell["handshakes"];
        assert_eq!(count(handshakes, "full") + count(handshakes, "resumed"), 24, "{cells}");
        for which in ["full", "resumed"] {
            assert_eq!(count(handshakes, which), count(&handshakes["seen"], which), "{cells}");
        }
        assert!(count(&handshakes["seen"], "bytes") > 24 * 1000, "{cells}");
        // With an agent alone it depends on which of the edges a connection meets.
        for (program, most) in [("curl", 12 - 2), ("python", 8 - 2)] {
            let resumed = count(&handshakes["programs"][program], "resumed");
            match cell["arm"].as_str().unwrap() {
                "today" => assert_eq!(resumed, 0, "{program}: {cells}"),
                "client-server" | "client-server-turbo" => {
                    assert_eq!(resumed, most, "{program}: {cells}");
                }
                _ => assert!(resumed <= most, "{program}: {cells}"),
            }
        }
        assert!(cell["client_cpu_ms"].as_f64().unwrap() > 0.0, "{cells}");
        assert!(cell["server_cpu_ms"].as_f64().unwrap() > 0.0, "{cells}");
    }
    let connections = place.join("captures/01-60-ms-connections.json");
    let connections = std::fs::read_to_string(connections).unwrap();
    let connections: serde_json::Value = serde_json::from_str(&connections).unwrap();
    let [first, last] = [0, 3].map(|cell: usize| {
        let all = connections[cell]["connections"].as_array().unwrap().iter();
        all.map(|one| (&one["program"], &one["host"])).collect::<Vec<_>>()
    });
    assert_eq!((first.len(), &first), (24, &last), "the same for all arms");
}

#[test]
fn programs_send_early_data_by_an_agent_or_the_request_behind_it() {
    if !has_net() {
        return;
    }
    let _machine = beside_others();
    let dir = tempfile::tempdir().unwrap();
    let cells = run_programs(dir.path(), EARLY);
    let handshakes = &cells[0]["handshakes"];
    assert_eq!((count(handshakes, "full"), count(handshakes, "early")), (1, 11), "{cells}");
    assert_eq!(count(&handshakes["seen"], "resumed"), 11, "{cells}");
}

/// The cells of an experiment that runs programs and meets its bars; its results are in `dir`.
fn run_programs(dir: &Path, experiment: &str) -> serde_json::Value {
    // Beside the program, where it is looked for.
    library();
    let (file, temporary) = (dir.join("programs.toml"), dir.join("temporary"));
    std::fs::write(&file, experiment).unwrap();
    std::fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(crate::programs::LAB);
    command.args(["lab", "run", "--json"]).arg(&file).arg("--out").arg(dir.join("results"));
    let output = command.env("TMPDIR", &temporary).output().unwrap();
    let cells = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}\n{cells}", stderr(&output));
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "sockets are left over");
    serde_json::from_str(&cells).unwrap()
}

fn count(of: &serde_json::Value, which: &str) -> u64 {
    of[which].as_u64().unwrap()
}
