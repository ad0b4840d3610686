//! Counters that are there from the start, so that rates see their first count.

use metrics::counter;

use super::{
    DATAGRAMS, EARLY, FALLBACKS, FAST_OPEN, FILTER, FORWARDS_FAILED, JOINS, LIMITS,
    ORIGIN_FAILURES, QUIC_DATAGRAMS, QUIC_EVENTS, RELOADS, REQUESTS, Role, SECOND_SYNS, SESSIONS,
    SPARES, SYN_DATA, UPSTREAM,
};

/// Counters of one label by role, and its values (docs/metrics.md): they begin at 0.
const FROM_ZERO: &[(Role, &str, &str, &[&str])] = &[
    (
        Role::Edge,
        JOINS,
        "outcome",
        &["joined", "attached", "fresh", "forwarded", "passed", "refused"],
    ),
    (Role::Edge, FORWARDS_FAILED, "reason", &["unknown", "paused", "too_many", "away", "refused"]),
    (Role::Edge, EARLY, "outcome", &["passed", "held", "too_early"]),
    (
        Role::Edge,
        FILTER,
        "outcome",
        &["first", "seen", "new", "away", "slow", "failed", "clock", "too_many"],
    ),
    (Role::Edge, ORIGIN_FAILURES, "reason", &["unreachable", "connect_timeout", "late", "broken"]),
    (
        Role::Edge,
        FAST_OPEN,
        "outcome",
        &[
            "steered",
            "replayed",
            "expired",
            "forged",
            "early",
            "full",
            "no_listener",
            "stripped",
            "faults",
        ],
    ),
    (Role::Edge, QUIC_EVENTS, "event", &["begun", "ended", "displaced", "refused", "failed"]),
    (
        Role::Edge,
        LIMITS,
        "limit",
        &[
            "max_connections",
            "session_limit",
            "network_limit",
            "address_limit",
            "paused",
            "work_limit",
            "stray_joins",
            "unknown_name",
            "address_connections",
            "origin_requests",
            "answer_memory",
            "stalled_answers",
            "answer_not_taken",
            "request_head",
            "request_body_time",
            "malformed_body",
            "concurrent_streams",
            "broken_off_requests",
            "stream_resets",
            "stream_errors",
            "control_frames",
            "http2_excess",
        ],
    ),
    (
        Role::Agent,
        LIMITS,
        "limit",
        &[
            "max_connections",
            "waiting_clients",
            "managed_user",
            "managed_slow",
            "managed_token",
            "name_leads_inside",
            "silent",
            "slow",
            "closed",
            "unknown_protocol",
            "socks4",
            "authentication",
            "command",
            "not_connect",
            "malformed",
            "io",
        ],
    ),
    (
        Role::Agent,
        FALLBACKS,
        "reason",
        &[
            "not_advertised",
            "port",
            "address_literal",
            "not_tls",
            "advert_late",
            "other_address",
            "tcp_first",
            "client_hello",
            "silence",
            "unreachable",
            "no_server_bytes",
            "not_awaited",
            "tcp_late",
            "server_first",
            "held",
            "path_memory",
            "path_busy",
            "socket",
            "committed_refusal",
            "refused",
            "join_lost",
            "protocol",
            "early_data_too_old",
        ],
    ),
    (Role::Agent, SECOND_SYNS, "outcome", &["used", "lost", "in_vain"]),
    (Role::Agent, SYN_DATA, "outcome", &["accepted", "refused", "lost"]),
    (Role::Agent, SPARES, "outcome", &["used", "in_vain"]),
    (
        Role::Agent,
        SESSIONS,
        "event",
        &[
            "kept",
            "taken",
            "missed",
            "given_back",
            "refused",
            "outdated",
            "expired",
            "evicted",
            "forgotten",
        ],
    ),
];

/// A label and its values.
type Label = (&'static str, &'static [&'static str]);

/// Counters of two labels by role: they begin at 0.
const FROM_ZERO_BY_TWO: &[(Role, &str, Label, Label)] = &[
    (Role::Edge, RELOADS, ("what", &["certificates", "keys"]), ("result", &["ok", "kept"])),
    (
        Role::Edge,
        REQUESTS,
        ("protocol", &["http/1.1", "h2"]),
        ("status", &["2xx", "3xx", "4xx", "5xx"]),
    ),
    (
        Role::Edge,
        QUIC_DATAGRAMS,
        ("direction", &["to_server", "to_client"]),
        ("outcome", &["sent", "dropped"]),
    ),
    (Role::Edge, DATAGRAMS, ("direction", &["to_client"]), ("outcome", &["sent", "failed"])),
    (
        Role::Edge,
        DATAGRAMS,
        ("direction", &["to_server"]),
        (
            "outcome",
            &[
                "accepted",
                "malformed",
                "foreign_address",
                "repeated",
                "ended",
                "misfit",
                "not_hello",
                "hello_runs",
                "address_limit",
                "network_limit",
                "session_limit",
                "paused",
                "work_limit",
            ],
        ),
    ),
    (Role::Agent, DATAGRAMS, ("direction", &["to_server"]), ("outcome", &["sent", "failed"])),
    (
        Role::Agent,
        DATAGRAMS,
        ("direction", &["to_client"]),
        ("outcome", &["accepted", "ignored", "late"]),
    ),
    (
        Role::Agent,
        UPSTREAM,
        ("manner", &["optimistic", "waiting", "fallback"]),
        ("result", &["granted"]),
    ),
];

/// Shows the counters of a daemon as 0.
pub(super) fn begin(role: Role) {
    for (_, name, label, values) in FROM_ZERO.iter().filter(|(of, ..)| *of == role) {
        for value in *values {
            counter!(*name, *label => *value).absolute(0);
        }
    }
    for (_, name, (one, ones), (other, others)) in
        FROM_ZERO_BY_TWO.iter().filter(|(of, ..)| *of == role)
    {
        for first in *ones {
            for second in *others {
                counter!(*name, *one => *first, *other => *second).absolute(0);
            }
        }
    }
}
