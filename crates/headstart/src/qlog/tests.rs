use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt, symlink};

use headstart_net::upstream::{Objection, UpstreamEvent};
use headstart_net::{
    ClientEvent, EdgeEvent, FastOpenEvent, FastOpenNotUsed, NotFast, NotUsed, OpeningEvent,
    PlainReason, ResetReason,
};
use headstart_proto::Discard;

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/qlog.md");
const NAMES: &str = include_str!("event.rs");

/// One event at least of each name, with all fields that it may have.
fn events() -> Vec<Event> {
    let address = SocketAddr::from(([192, 0, 2, 1], 443));
    let (seq, ack, offset, bytes) = (0, 1, 0, 517);
    let (client_offset, server_offset) = (0, 0);
    let transport = [
        ClientEvent::FlightSent { seq, offset, bytes },
        ClientEvent::SlotSent { seq },
        ClientEvent::DatagramReceived { seq, ack, offset, bytes },
        ClientEvent::DatagramIgnored,
        ClientEvent::Unreachable,
        ClientEvent::TcpConnected,
        ClientEvent::Plain(PlainReason::Silence),
        ClientEvent::GivenUp(PlainReason::Silence),
        ClientEvent::JoinSent { client_offset, server_offset },
        ClientEvent::JoinAccepted { server_offset },
        ClientEvent::FirstServerBytes { udp: true },
        ClientEvent::FirstServerBytes { udp: false },
        ClientEvent::LateDatagram,
        ClientEvent::Reset(ResetReason::Refused),
    ];
    let fast_open = [
        FastOpenEvent::Waiting,
        FastOpenEvent::NotFast(NotFast::TooLarge),
        FastOpenEvent::SynSent { bytes, early_data: true },
        FastOpenEvent::Silent,
        FastOpenEvent::Failed,
        FastOpenEvent::Answered { accepted: true },
    ];
    let upstream = [
        UpstreamEvent::Connected,
        UpstreamEvent::SentEarly(bytes),
        UpstreamEvent::Granted,
        UpstreamEvent::Answered,
        UpstreamEvent::FellBack(Objection::Closed),
    ];
    let opening = [
        OpeningEvent::Resolved(1),
        OpeningEvent::Offered,
        OpeningEvent::Syn(address),
        OpeningEvent::SecondSyn(address),
        OpeningEvent::Spare(address),
        OpeningEvent::SpareDead,
        OpeningEvent::NotUsed(NotUsed::Policy),
        OpeningEvent::FastOpenNotUsed(FastOpenNotUsed::NoCookie),
        OpeningEvent::HandedOver,
    ];
    let edge = [
        EdgeEvent::DatagramReceived { seq, offset, bytes },
        EdgeEvent::DatagramDropped(Discard::Repeated),
        EdgeEvent::DatagramSent { seq, ack, offset, bytes },
        EdgeEvent::SessionStarted,
        EdgeEvent::SessionExpired,
        EdgeEvent::TcpConnected,
        EdgeEvent::JoinReceived { client_offset, server_offset },
        EdgeEvent::JoinAnswered { server_offset },
        EdgeEvent::JoinRefused,
        EdgeEvent::Attached,
        EdgeEvent::Forwarded,
        EdgeEvent::PassedOn,
        EdgeEvent::CarefulResume { from: "reconnaissance", to: "unvalidated", window: 340 },
        EdgeEvent::HandedOver,
    ];
    let opening = opening.into_iter().chain(fast_open.map(OpeningEvent::FastOpen));
    let opening = opening.chain(transport.map(OpeningEvent::Transport));
    let opening = opening.chain(upstream.map(OpeningEvent::Upstream));
    let ended = Event::Ended { opening: "turbo", result: "closed", remote: Some(address) };
    opening.map(Event::Opening).chain(edge.map(Event::Edge)).chain([ended]).collect()
}

/// The fields of each name; `?` stands behind those that an event may lack.
fn schema() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<_, Vec<BTreeSet<String>>> = BTreeMap::new();
    for (event, shown) in events().iter().flat_map(|event| [(event, false), (event, true)]) {
        let (name, data) = event.entry(shown);
        let fields = data.as_object().unwrap().keys().cloned().collect();
        all.entry(name.to_owned()).or_default().push(fields);
    }
    let fields = |seen: Vec<BTreeSet<String>>| {
        let is_always = |field: &String| seen.iter().all(|fields| fields.contains(field));
        let known: BTreeSet<_> = seen.iter().flatten().cloned().collect();
        let marked = known.into_iter().map(|it| if is_always(&it) { it } else { format!("{it}?") });
        marked.collect()
    };
    all.into_iter().map(|(name, seen)| (name, fields(seen))).collect()
}

/// Returns what stands in backquotes in a cell of a table.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn the_document_has_every_event_with_its_fields_and_no_other() {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeMap<_, BTreeSet<_>> = rows
        .filter(|row| row.contains(':'))
        .map(|row| {
            let cells: Vec<_> = row.split('|').collect();
            (cells[0].trim_end_matches(['`', ' ']).to_owned(), quoted(cells[1]).collect())
        })
        .collect();
    assert_eq!(documented, schema());
    let written = NAMES.split('"').filter(|word| {
        ["turbotls:", "tcp:", "proxy:"].iter().any(|namespace| word.starts_with(namespace))
    });
    assert_eq!(written.collect::<BTreeSet<_>>(), schema().keys().map(String::as_str).collect());
}

fn trace() -> Trace {
    let now = Instant::now();
    let events = events().into_iter().map(|event| (now, event)).collect();
    Trace { events, shows_addresses: false }
}

fn files(directory: &Path) -> Vec<fs::DirEntry> {
    fs::read_dir(directory).unwrap().map(Result::unwrap).collect()
}

#[test]
fn files_are_their_owners_alone_and_hold_no_address_unless_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qlog");
    let mut directory = Directory::open(&path, Vantage::Agent).unwrap();
    directory.write(&trace());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let [file] = &files(&path)[..] else { panic!("one file") };
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(file.path()).unwrap().contains("192.0.2.1"));
    directory.write(&Trace { shows_addresses: true, ..trace() });
    let shown = files(&path)
        .iter()
        .any(|file| fs::read_to_string(file.path()).unwrap().contains("192.0.2.1"));
    assert!(shown);
}

#[test]
fn links_are_not_followed_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = Directory::open(dir.path(), Vantage::Edge).unwrap();
    let victim = dir.path().join("victim");
    let name = format!("edge-{}-{}-000000.sqlog", directory.start, process::id());
    symlink(&victim, dir.path().join(name)).unwrap();
    directory.write(&trace());
    assert!(!victim.exists());
    directory.write(&trace());
    assert_eq!(directory.files, 1);
}

#[test]
fn a_full_directory_gets_no_more_files_and_keeps_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for number in 1..FILES_MAX {
        File::create(dir.path().join(format!("{number}{ENDING}"))).unwrap();
    }
    let mut directory = Directory::open(dir.path(), Vantage::Edge).unwrap();
    (0..3).for_each(|_| directory.write(&trace()));
    assert_eq!(files(dir.path()).len(), FILES_MAX);
    let mut next = Directory::open(dir.path(), Vantage::Edge).unwrap();
    next.write(&trace());
    assert_eq!(files(dir.path()).len(), FILES_MAX);
}

#[test]
fn directories_that_cannot_be_written_to_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    File::create(&file).unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (path, advice) in [(&file, "name a directory"), (&open, "chmod go-w")] {
        let failure = Directory::open(path, Vantage::Get).unwrap_err();
        assert!(failure.message().starts_with("--qlog"), "{failure}");
        assert!(failure.advice().unwrap().contains(advice), "{failure}");
        assert!(failure.is_usage());
    }
}
