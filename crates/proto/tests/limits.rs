//! The tables of constants in the draft and in docs/fop.md have each limit, with its value.

// All limits are meant.
#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use headstart_proto::limits::*;

/// Limits of the driver alone: no other implementation has to know them.
const OWN: [&str; 1] = ["STREAM_BUFFER"];

/// Rows of the tables: the limits in it, name and value.
macro_rules! rows {
    ($($($limit:ident),+ => $name:literal: $value:expr;)+) => {
        [$((&[$(stringify!($limit)),+][..], $name, $value.to_string())),+]
    };
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn seconds(time: Duration) -> String {
    format!("{} s", grouped(usize::try_from(time.as_secs()).unwrap()))
}

/// A number as the documents write it: 16,384.
fn grouped(number: usize) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{},{rest:03}", grouped(thousands)),
    }
}

#[test]
fn the_documents_have_each_limit() {
    let early = seconds(EARLY_DATA_LIFE);
    let ms = |time: Duration| time.as_micros() as f64 / 1e3;
    let rows = rows! {
        DATAGRAM_MAX => "datagram, largest": format!("{} bytes", grouped(DATAGRAM_MAX));
        REQUEST_MIN => "request, smallest": format!("{REQUEST_MIN} bytes");
        AMPLIFICATION => "amplification": AMPLIFICATION;
        SEQUENCES => "sequence numbers": SEQUENCES;
        SLOTS_MAX => "slots, at most": format!("{SLOTS_MAX} + 1");
        CLIENT_BYTES => "client bytes over UDP": grouped(CLIENT_BYTES);
        SERVER_BYTES => "server bytes over UDP": grouped(SERVER_BYTES);
        SESSIONS => "sessions": grouped(SESSIONS);
        SESSIONS_GATHERING => "gathering sessions": SESSIONS_GATHERING;
        SESSIONS_PER_ADDRESS => "sessions per address (IPv4, IPv6 /64)": SESSIONS_PER_ADDRESS;
        SESSIONS_PER_NETWORK => "sessions per network (/24, /48)": SESSIONS_PER_NETWORK;
        SESSIONS_PER_JOINER =>
            "sessions per address that joins what it begins, and per its network":
            format!("{SESSIONS_PER_ADDRESS} and as many as it joined, up to {SESSIONS_PER_JOINER}");
        UNPROVEN_SHARE => "share of unproven sessions":
            format!("1/{UNPROVEN_SHARE} of the origin streams");
        UNPROVEN_WORK_SHARE, UNPROVEN_WORK_BURST =>
            "processor time for handshakes of unproven sessions":
            format!("1/{UNPROVEN_WORK_SHARE}, and {UNPROVEN_WORK_BURST} s of that at once");
        HANDSHAKE_COST => "processor time of a handshake that is not measured":
            format!("{} ms", ms(HANDSHAKE_COST));
        COST_MEMORY => "memory of the costliest handshake": seconds(COST_MEMORY);
        GATHERING_LIFE => "gathering life": seconds(GATHERING_LIFE);
        SESSION_LIFE => "session life, from the acknowledgement": seconds(SESSION_LIFE);
        JOIN_MARGIN => "client: gives a session up":
            format!("{} after the application's first byte", seconds(SESSION_LIFE - JOIN_MARGIN));
        SESSION_LIFE_SPARE => "session life, while nobody needs its room":
            seconds(SESSION_LIFE_SPARE);
        EARLY_DATA_LIFE => "client: may repeat early data with a join":
            format!("until {early} after the application's first byte; then reset");
        JOIN_ANSWER_LIFE => "client: wait for the answer to a join": seconds(JOIN_ANSWER_LIFE);
        HELLO_MEMORY, RECENT_ENTRIES => "memory of ended ids and of ClientHellos":
            format!("{}, {} each", seconds(HELLO_MEMORY), grouped(RECENT_ENTRIES));
        GRACE_MIN, GRACE_MAX_FLOOR, GRACE_MAX_FIRST => "grace":
            format!("{0} ms .. max({1} ms, RTT/2); first {0}..{2} ms",
                ms(GRACE_MIN), ms(GRACE_MAX_FLOOR), ms(GRACE_MAX_FIRST));
        DEVIATION_FIRST => "least first deviation of the lag":
            format!("{} ms", ms(DEVIATION_FIRST));
        WORTHWHILE => "least saving worth a wait": format!("RTT/{WORTHWHILE}");
        LAG_MAX => "late samples": seconds(LAG_MAX);
        SYN_DATA_WAIT => "wait for data of a SYN": format!("{} ms", ms(SYN_DATA_WAIT));
        SYN_SILENCE => "silence until plain TCP starts beside a SYN with data":
            format!("max({} ms, 2 RTT)", ms(SYN_SILENCE));
        TICKET_MIN => "ticket that may begin with a cookie, shortest":
            format!("{TICKET_MIN} bytes");
        COOKIE_LIFE => "life of a cookie, default": seconds(COOKIE_LIFE);
        COOKIE_LIFE_MAX => "life of a cookie, at most": seconds(COOKIE_LIFE_MAX);
    };
    let pages = ["docs/draft-headstart-turbotls.md", "docs/fop.md"]
        .map(|page| fs::read_to_string(root().join(page)).unwrap())
        .concat();
    for (limits, name, value) in &rows {
        let row = format!("\n| {name} | {value} |");
        assert!(pages.contains(&row), "{limits:?} want the row{row}");
    }
    let documented = rows.iter().flat_map(|(limits, ..)| *limits).chain(&OWN);
    let documented: BTreeSet<&str> = documented.copied().collect();
    let source = fs::read_to_string(root().join("crates/proto/src/limits.rs")).unwrap();
    let all = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    assert_eq!(all.collect::<BTreeSet<_>>(), documented);
}
