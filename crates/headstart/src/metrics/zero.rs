//! Series that are there from the start, so that rates see their first count.

use std::slice;

use metrics::{Label, counter, gauge, histogram};

use super::Role::{Agent, Edge};
use super::{
    ANSWER_MEMORY, CAREFUL_ENDS, CAREFUL_JUMPS, CAREFUL_PATHS, DATAGRAMS, EARLY, FALLBACKS,
    FAST_OPEN, FILTER, FORWARDS_FAILED, HANDSHAKE_TIME, HANDSHAKES, JOINS, LIMITS, OPENING_TIME,
    ORIGIN_FAILURES, ORIGIN_TIME, ORIGINS, QUIC_DATAGRAMS, QUIC_EVENTS, QUIC_FLOWS, RELOADS,
    REQUESTS, Role, SAVED, SAVED_RATIO, SECOND_SYNS, SESSIONS, SESSIONS_HELD, SPARES, SPARES_HELD,
    SYN_DATA, UNPROVEN, UPSTREAM,
};

/// Labels with their values, separated by spaces: a series has one value of each.
type Labels = &'static [(&'static str, &'static str)];

const RESUMED: (&str, &str) = ("resumed", "yes no");

/// Handshakes that are done; TLS 1.2 has no early data.
const TLS12: Labels = &[("result", "done"), ("version", "1.2"), RESUMED, ("early_data", "none")];
const TLS13: Labels =
    &[("result", "done"), ("version", "1.3"), RESUMED, ("early_data", "none accepted refused")];

/// Counters by role (docs/metrics.md): they begin at 0.
const COUNTERS: &[(Role, &str, Labels)] = &[
    (Edge, JOINS, &[("outcome", "joined attached fresh forwarded passed refused")]),
    (Edge, FORWARDS_FAILED, &[("reason", "unknown paused too_many away refused")]),
    (Edge, EARLY, &[("outcome", "passed held too_early")]),
    (Edge, FILTER, &[("outcome", "first seen new away slow failed clock too_many")]),
    (Edge, ORIGIN_FAILURES, &[("reason", "unreachable connect_timeout late broken")]),
    (
        Edge,
        FAST_OPEN,
        &[("outcome", "steered replayed expired forged early full no_listener stripped faults")],
    ),
    (
        Edge,
        CAREFUL_JUMPS,
        &[(
            "outcome",
            "jumped unknown expired in_use rtt_small rtt_large unconfirmed small kernel",
        )],
    ),
    (Edge, CAREFUL_ENDS, &[("result", "validated unused retreated closed failed")]),
    (Edge, QUIC_EVENTS, &[("event", "begun ended displaced refused failed")]),
    (
        Edge,
        LIMITS,
        &[(
            "limit",
            "max_connections session_limit network_limit address_limit paused work_limit \
             stray_joins unknown_name address_connections origin_requests answer_memory \
             stalled_answers answer_not_taken request_head request_head_time request_body_time \
             malformed_body concurrent_streams broken_off_requests stream_resets stream_errors \
             control_frames http2_excess",
        )],
    ),
    (
        Agent,
        LIMITS,
        &[(
            "limit",
            "max_connections waiting_clients managed_user managed_slow managed_token \
             name_leads_inside silent slow closed unknown_protocol socks4 authentication \
             command not_connect malformed io",
        )],
    ),
    (
        Agent,
        FALLBACKS,
        &[(
            "reason",
            "not_advertised port address_literal not_tls advert_late other_address tcp_first \
             client_hello silence unreachable no_server_bytes not_awaited tcp_late \
             server_first held path_memory path_busy socket committed_refusal refused \
             join_lost protocol early_data_too_old",
        )],
    ),
    (Agent, SECOND_SYNS, &[("outcome", "used lost in_vain")]),
    (Agent, SYN_DATA, &[("outcome", "accepted refused lost")]),
    (Agent, SPARES, &[("outcome", "used in_vain")]),
    (
        Agent,
        SESSIONS,
        &[("event", "kept taken missed given_back refused outdated expired evicted forgotten")],
    ),
    (Edge, RELOADS, &[("what", "certificates keys configuration"), ("result", "ok kept")]),
    (Edge, REQUESTS, &[("protocol", "http/1.1 h2"), ("status", "1xx 2xx 3xx 4xx 5xx")]),
    (Edge, QUIC_DATAGRAMS, &[("direction", "to_server to_client"), ("outcome", "sent dropped")]),
    (Edge, DATAGRAMS, &[("direction", "to_client"), ("outcome", "sent failed")]),
    (
        Edge,
        DATAGRAMS,
        &[
            ("direction", "to_server"),
            (
                "outcome",
                "accepted malformed foreign_address repeated ended misfit not_hello hello_runs \
                 address_limit network_limit session_limit paused work_limit",
            ),
        ],
    ),
    (Agent, DATAGRAMS, &[("direction", "to_server"), ("outcome", "sent failed")]),
    (Agent, DATAGRAMS, &[("direction", "to_client"), ("outcome", "accepted ignored late")]),
    (
        Agent,
        UPSTREAM,
        &[
            ("manner", "optimistic waiting fallback"),
            (
                "result",
                "granted upstream_unreachable upstream_closed upstream_garbage upstream_silent \
                 upstream_login upstream_refused",
            ),
        ],
    ),
    (Agent, SAVED, &[]),
    (Edge, HANDSHAKES, TLS12),
    (Edge, HANDSHAKES, TLS13),
    (
        Edge,
        HANDSHAKES,
        &[
            ("result", "failed timed_out"),
            ("version", "none"),
            ("resumed", "no"),
            ("early_data", "none"),
        ],
    ),
    (Agent, HANDSHAKES, TLS12),
    (Agent, HANDSHAKES, TLS13),
    (
        Agent,
        HANDSHAKES,
        &[
            (
                "result",
                "roots certificate_not_allowed not_allowed internal name unreachable refused \
                 connect certificate_expired certificate_not_yet_valid certificate_name \
                 certificate_untrusted certificate upstream_unreachable upstream_closed \
                 upstream_garbage upstream_login upstream_refused upstream_silent tls \
                 overloaded timed_out",
            ),
            ("version", "none"),
            ("resumed", "no"),
            ("early_data", "none"),
        ],
    ),
    (Agent, RELOADS, &[("what", "configuration"), ("result", "ok kept")]),
];

/// Gauges by role that begin at 0.
const GAUGES: &[(Role, &str, Labels)] = &[
    (Edge, ANSWER_MEMORY, &[]),
    (Edge, ORIGINS, &[("state", "up down")]),
    (Edge, QUIC_FLOWS, &[]),
    (Edge, CAREFUL_PATHS, &[]),
    (Edge, UNPROVEN, &[]),
    (Agent, SESSIONS_HELD, &[("what", "servers tickets bytes")]),
    (Agent, SPARES_HELD, &[]),
];

/// Histograms by role.
const HISTOGRAMS: &[(Role, &str, Labels)] = &[
    (Edge, HANDSHAKE_TIME, &[RESUMED]),
    (Edge, ORIGIN_TIME, &[]),
    (Agent, HANDSHAKE_TIME, &[RESUMED]),
    (Agent, OPENING_TIME, &[("opening", "plain spare fop turbo")]),
];

/// Shows the series of a daemon: counters and gauges as 0, histograms without a value.
pub(super) fn begin(role: Role) {
    for (name, labels) in series_of(role, COUNTERS) {
        counter!(name, labels).absolute(0);
    }
    for (name, labels) in series_of(role, GAUGES) {
        gauge!(name, labels).set(0);
    }
    for (name, labels) in series_of(role, HISTOGRAMS) {
        // The handle is enough.
        drop(histogram!(name, labels));
    }
    // There is no ratio of nothing.
    gauge!(SAVED_RATIO, "role" => role.label()).set(f64::NAN);
}

/// Returns the names of a role's metrics with the labels of each series.
fn series_of(
    role: Role,
    all: &'static [(Role, &'static str, Labels)],
) -> impl Iterator<Item = (&'static str, Vec<Label>)> {
    let mine = all.iter().filter(move |(of, ..)| *of == role);
    mine.flat_map(|(_, name, labels)| series(labels).into_iter().map(|labels| (*name, labels)))
}

/// Returns the labels of each series.
fn series(labels: Labels) -> Vec<Vec<Label>> {
    let mut all = vec![Vec::new()];
    for (name, values) in labels {
        let values = values.split_whitespace();
        let labels: Vec<_> = values.map(|value| Label::from_static_parts(name, value)).collect();
        all = all
            .iter()
            .flat_map(|begun| {
                labels.iter().map(|label| [begun.as_slice(), slice::from_ref(label)].concat())
            })
            .collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_one_value_of_each_label() {
        let all = series(&[("a", "1 2"), ("b", "3")]);
        let pairs = ["1", "2"].map(|value| {
            vec![Label::from_static_parts("a", value), Label::from_static_parts("b", "3")]
        });
        assert_eq!(all, pairs);
        assert_eq!(series(&[]), [vec![]]);
    }
}
