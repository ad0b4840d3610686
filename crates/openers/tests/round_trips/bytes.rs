//! Bytes and packets of each opening, as a capture at the client shows them: the table of
//! bench/README.md. With `UPDATE_RESULTS=1` it is written anew.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use headstart_emulation::{CapturedPacket, Host, Lab, TcpSegment, read_capture};
use headstart_openers::{
    Arm, Carrier, Client, ClientOptions, OpeningPolicy, ServerOptions, Suite, Trial,
};
use headstart_testkit::has_net;

use super::{RTT, alone, lab, lab_with, runtime, serve};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/README.md");

/// Comment before the table, which ends before an empty line.
const MARK: &str = "<!-- bytes of openings -->\n";

/// Rows of the table: an opening and the carrier that it takes.
const ROWS: [(&str, Arm, Carrier); 9] = [
    ("plain TLS", Arm::TLS13, Carrier::Tcp),
    ("plain TLS, resumed", Arm::TLS13_RESUMED, Carrier::Tcp),
    ("Fast Open", Arm::FAST_OPEN, Carrier::FastOpen),
    ("Fast Open, resumed", Arm::FAST_OPEN_RESUMED, Carrier::FastOpen),
    ("TurboTLS", Arm::TURBO, Carrier::TurboTls),
    ("TurboTLS, resumed", Arm::TURBO_RESUMED, Carrier::TurboTls),
    (ATTACHED, Arm::TURBO, Carrier::Tcp),
    ("QUIC", Arm::QUIC, Carrier::Quic),
    ("QUIC, resumed with early data", Arm::QUIC_EARLY_DATA, Carrier::Quic),
];

/// The edge has the ClientHello, its answers are lost, and TCP takes over the session.
const ATTACHED: &str = "TurboTLS, answers lost";

/// Bytes that a join and its answer may have together.
const JOIN_MAX: usize = 700;

/// Difference between two runs, as a share: signatures with ECDSA differ by some bytes, and what
/// acknowledgements go with depends on the machine.
const TOLERANCE: f64 = 0.1;

/// Connections made before one that is counted: for sessions, cookies and the number of slots.
const WARM_UP: usize = 2;

/// Connections of which the one with the fewest packets counts: others retransmit, or acknowledge
/// more often.
const COUNTED: usize = 5;

/// IP packets and their bytes, to and from the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Counts {
    packets: [usize; 2],
    bytes: [usize; 2],
}

/// A connection, and its packets up to the response, which has one byte.
struct Opened {
    trial: Trial,
    packets: Vec<CapturedPacket>,
}

impl Opened {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for packet in &self.packets {
            let way = usize::from(!packet.from_node);
            counts.packets[way] += 1;
            counts.bytes[way] += packet.bytes.len();
        }
        counts
    }

    /// Lengths of the first record of each end on TCP: of a join and its answer.
    fn first_records(&self) -> [usize; 2] {
        [true, false].map(|from_client| {
            let own = self.packets.iter().filter(|packet| packet.from_node == from_client);
            let mut payloads =
                own.filter_map(|packet| Some(TcpSegment::read(&packet.bytes)?.payload));
            let first = payloads.find(|payload| payload.len() >= 5).unwrap();
            5 + usize::from(u16::from_be_bytes([first[3], first[4]]))
        })
    }
}

/// Opens connections one after the other.
fn opened(lab: &Lab, arm: Arm, directory: &Path) -> Vec<Opened> {
    let [client, server] = lab.nodes() else { panic!("two nodes") };
    let listen = (server.ipv4().unwrap(), 443).into();
    let serving = serve(server, ServerOptions::new(arm, Suite::P256, listen, directory));
    let mut options = ClientOptions::new(arm, Suite::P256, serving.to, directory);
    options.policy = OpeningPolicy::Turbo;
    let file = directory.join("capture");
    let open = async || {
        let client = Client::new(options).unwrap();
        for _ in 0..WARM_UP {
            client.open(1).await;
        }
        let mut opened = Vec::new();
        for _ in 0..COUNTED {
            // What closes the connection before, and its session tickets.
            tokio::time::sleep(RTT * 2).await;
            let capture = lab.capture("client", &file, 10_000_000).unwrap();
            let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let trial = client.open(1).await;
            capture.finish().unwrap();
            assert!(trial.ok, "{arm}: {trial:?}");
            let end =
                start + Duration::from_secs_f64(trial.ms_to_first_response_byte.unwrap() / 1e3);
            let mut packets = read_capture(&file).unwrap();
            // What brings the first byte is stamped about when the client has it.
            packets.retain(|packet| {
                let end = if packet.from_node { end } else { end + RTT / 4 };
                (start..=end).contains(&packet.at)
            });
            opened.push(Opened { trial, packets });
        }
        opened
    };
    client.run(|| runtime().block_on(open())).unwrap()
}

fn row(name: &str, counts: Counts, plain: Counts) -> String {
    let [sent, received] = [0, 1].map(|way| {
        let more =
            i64::try_from(counts.bytes[way]).unwrap() - i64::try_from(plain.bytes[way]).unwrap();
        format!("{} in {} | {more:+}", counts.bytes[way], counts.packets[way])
    });
    format!("| {name} | {sent} | {received} |\n")
}

/// The numbers of bytes in rows of the table.
fn bytes(table: &str) -> Vec<f64> {
    let columns = table.lines().skip(2).flat_map(|row| row.split(" | "));
    columns.filter_map(|column| column.split_once(" in ")?.0.parse().ok()).collect()
}

#[test]
fn bytes_of_each_opening() {
    if !has_net() {
        return;
    }
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let clear = lab();
    let path = format!("delay {}ms, down(drop udp)", RTT.as_millis() / 2).parse().unwrap();
    let deaf = lab_with(Host::new("client").path(path));
    let mut table =
        "| opening | client sends, bytes in packets | beside plain TLS | client gets | \
                     beside plain TLS |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut plain = None;
    for (name, arm, carrier) in ROWS {
        let lab = if name == ATTACHED { &deaf } else { &clear };
        let mut all = opened(lab, arm, directory.path());
        all.retain(|opened| {
            opened.trial.opening == carrier && opened.trial.resumed == arm.resumes()
        });
        let least = all.iter().min_by_key(|opened| opened.counts());
        let least = least.unwrap_or_else(|| panic!("{name}: none opened so"));
        let counts = least.counts();
        table += &row(name, counts, *plain.get_or_insert(counts));
        if carrier == Carrier::TurboTls {
            let [join, answer] = least.first_records();
            println!("{name}: the join has {join} bytes, its answer {answer}");
            assert!(join + answer <= JOIN_MAX);
        }
    }
    print!("{table}");
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(MARK).unwrap();
    let (known, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("UPDATE_RESULTS").is_some() {
        return fs::write(PAGE, format!("{before}{MARK}{table}\n{after}")).unwrap();
    }
    let [known, counted] = [known, &table].map(bytes);
    assert_eq!(known.len(), counted.len());
    for (known, counted) in known.into_iter().zip(counted) {
        assert!((counted / known - 1.0).abs() <= TOLERANCE, "{known} bytes are {counted}\n{table}");
    }
}
