//! The sharing audit as text.

use std::fmt::Write as _;
use std::time::Duration;

use headstart_pageload::sharing::{
    CostModel, Grouping, Lifetime, PAPER_APPS, PAPER_WEB, PaperColumn, Report, Seen, Service,
};

use crate::chart::figure::percent;
use crate::table::{header, table};

/// Characters of a name that are shown.
const NAME_MAX: usize = 48;

/// The whole report, with the first `top` services.
pub(super) fn report(report: &Report, top: usize) -> String {
    let mut text = summary(report);
    text.push_str(&handshakes(report));
    text.push_str(&grouping(report));
    text.push_str(&revisits(report));
    text.push_str(&services(report, top));
    text.push_str(&notes(report));
    text
}

fn summary(report: &Report) -> String {
    let span = report.span.as_ref().map_or(Duration::ZERO, |span| span.length());
    format!(
        "{} to {} at {}, within {}\n\n",
        counted(report.connections, "TLS connection", "TLS connections"),
        counted(report.names, "name", "names"),
        counted(report.addresses, "address", "addresses"),
        in_words(span),
    )
}

/// The paper's Table I, for what was recorded.
fn handshakes(report: &Report) -> String {
    let arms = [&report.today, &report.client_only, &report.client_and_server];
    let today = if report.connections_unknown > 0 { "today, at most" } else { "today" };
    let mut rows: Vec<Vec<String>> = vec![
        ["", today, "client only", "client + server"].map(str::to_owned).into(),
        row("full handshakes", arms.map(|arm| with_share(arm.full, arm.full_share))),
        row("resumptions", arms.map(|arm| grouped(arm.resumed))),
        row("saved", arms.map(|arm| grouped(arm.avoided))),
    ];
    let cost = |of: Option<f64>| of.map_or_else(|| "–".into(), |cost| format!("{cost:.1}"));
    if let Some(model) = &report.cost_model {
        rows.push(row("latency, ms a connection *", arms.map(|arm| cost(arm.latency_ms))));
        if model.full_uah.is_some() {
            rows.push(row("energy, uAh a connection *", arms.map(|arm| cost(arm.energy_uah))));
        }
    }
    let mut text = table(&rows, &[0]);
    if let Some(model) = &report.cost_model {
        let whose = if *model == CostModel::PAPER {
            "of phones of 2019 (Hiller et al.)"
        } else {
            "as --cost says"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  * not measured here: {} ms a full handshake, {} ms a resumed one, {whose}",
            model.full_ms, model.resumed_ms
        );
    }
    for (of, columns) in [("apps", PAPER_APPS), ("web", PAPER_WEB)] {
        let [today, client, both] = columns.map(full_share);
        let _ = writeln!(
            text,
            "  Hiller et al. 2019, {of}: {today} full handshakes, {client} and {both} if shared"
        );
    }
    text
}

fn row(name: &str, cells: [String; 3]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(cells).collect()
}

fn full_share(column: PaperColumn) -> String {
    share(column.full, column.full + column.resumed)
}

/// A count with its share.
fn with_share(count: u64, share: f64) -> String {
    format!("{} ({})", grouped(count), percent(share))
}

fn grouping(report: &Report) -> String {
    let (near, far) = (&report.client_only, &report.client_and_server);
    let mut text = String::from("\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "client only: one store for all programs; {} of address and name",
        counted(near.groups, "group", "groups")
    );
    let by = match report.grouping {
        Grouping::AsAndName => "autonomous system and name",
        Grouping::NameOnly => "name alone (an upper bound; --asn FILE groups as the paper does)",
    };
    let groups = counted(far.groups, "group", "groups");
    let _ = writeln!(text, "client + server: servers share keys as well; {groups} of {by}");
    if report.addresses_without_as > 0 {
        let _ = writeln!(
            text,
            "{} not in the table of autonomous systems: each counts as one of its own",
            counted(report.addresses_without_as, "address is", "addresses are")
        );
    }
    if near.avoided_by_waiting + far.avoided_by_waiting > 0 {
        let _ = writeln!(
            text,
            "of the saved, {} and {} began before the first of their group could have a ticket: \
                only waiting saves these",
            grouped(near.avoided_by_waiting),
            grouped(far.avoided_by_waiting)
        );
    }
    text
}

fn revisits(report: &Report) -> String {
    let revisits = &report.revisits;
    if revisits.connections == 0 {
        return "\nNo name was visited twice.\n".into();
    }
    let mut rows: Vec<Vec<String>> =
        vec![header(&["session lives", "client only", "client + server"])];
    rows.extend(revisits.lifetimes.iter().map(lifetime));
    let mut text = format!(
        "\nRevisits that find a session, and so could be 0-RTT, of {}\n",
        counted(revisits.connections, "revisit", "revisits")
    );
    text.push_str(&table(&rows, &[0]));
    text
}

fn lifetime(of: &Lifetime) -> Vec<String> {
    let lifetime = in_words(Duration::from_millis(of.lifetime_ms));
    vec![lifetime, percent(of.shares.client_only), percent(of.shares.client_and_server)]
}

fn services(report: &Report, top: usize) -> String {
    let shown = report.services.iter().take(top);
    let mut rows: Vec<Vec<String>> = vec![
        ["service", "connections", "addresses", "full", "saved by client", "with servers"]
            .map(str::to_owned)
            .into(),
    ];
    rows.extend(shown.map(service));
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = String::from("\nServices where sharing saves most\n");
    text.push_str(&table(&rows, &[0]));
    if let Some(more) = report.services.len().checked_sub(top).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {} (--top N)", counted(more as u64, "more", "more"));
    }
    text
}

fn service(of: &Service) -> Vec<String> {
    vec![
        shortened(&of.name),
        grouped(of.connections),
        grouped(of.addresses),
        grouped(of.full),
        with_share(of.avoidable_client_only, of.shares.client_only),
        with_share(of.avoidable_client_and_server, of.shares.client_and_server),
    ]
}

/// Notes of what else there was, and what could not be told.
fn notes(report: &Report) -> String {
    let mut text = String::new();
    let versions = &report.versions;
    let by_version = [
        (versions.tls13, "TLS 1.3"),
        (versions.tls12, "TLS 1.2"),
        (versions.older, "older"),
        (versions.unknown, "of an unknown version"),
    ];
    let by_version = by_version.iter().filter(|(count, _)| *count > 0);
    let by_version: Vec<String> =
        by_version.map(|(count, name)| format!("{} {name}", grouped(*count))).collect();
    let _ = writeln!(text, "\nAlso seen\n  {}", by_version.join(", "));
    let tickets = &report.tickets.offered;
    if tickets.count > 0 {
        let _ = writeln!(
            text,
            "  {} offered, {:.0} bytes in the mean, {} at most (the paper: 188 in the mean)",
            counted(tickets.count, "ticket", "tickets"),
            tickets.mean_bytes,
            tickets.largest_bytes
        );
    }
    for (count, words) in facts(&report.seen) {
        if count > 0 {
            let _ = writeln!(text, "  {words}: {}", grouped(count));
        }
    }
    if report.connections_unknown > 0 {
        let _ = writeln!(
            text,
            "note: HAR files do not say which sessions were resumed; {} as full today",
            counted(report.connections_unknown, "connection counts", "connections count")
        );
    }
    if report.is_partial() {
        text.push_str("note: much could not be counted, see above; the figures are of the rest\n");
    }
    text
}

fn facts(seen: &Seen) -> [(u64, &'static str); 22] {
    [
        (seen.resumption_offered, "offered a session"),
        (seen.resumption_refused, "of these refused"),
        (seen.early_data_offered, "with early data"),
        (seen.hello_retry, "with a HelloRetryRequest"),
        (seen.client_certificate_requested, "a client certificate asked for, never shared"),
        (
            seen.encrypted_client_hello,
            "with encrypted_client_hello, where sites behind one outer name count as one",
        ),
        (seen.without_name, "without a server's name, grouped by address"),
        (seen.quic_connections, "QUIC connections, not counted"),
        (seen.har_quic_requests, "requests over QUIC, not counted"),
        (seen.turbotls_datagrams, "datagrams of TurboTLS clients, not counted"),
        (seen.turbotls_joins, "connections that TurboTLS began, not counted"),
        (seen.not_tls, "TCP connections without TLS"),
        (seen.copies, "handshakes seen twice (NAT, proxy, another capture), counted once"),
        (seen.unanswered, "handshakes without an answer, not counted"),
        (seen.cut_off, "handshakes cut off by the capture (tcpdump -s 0 has all), not counted"),
        (seen.unreadable, "malformed ClientHellos, not counted"),
        (seen.har_incomplete, "handshakes without name, address or time, not counted"),
        (seen.displaced, "connections that gave way to others, not counted"),
        (seen.left_out, "connections beyond the limits, not counted"),
        (seen.fragments, "pieces of IP packets, not read"),
        (seen.unknown_link_packets, "packets of an unknown link type, not read"),
        (seen.other_packets, "other packets"),
    ]
}

pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// Formats a count with commas between thousands.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let mut text = head.to_owned();
    for (at, digit) in tail.chars().enumerate() {
        if at % 3 == 0 && !text.is_empty() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn share(part: u64, all: u64) -> String {
    percent(part as f64 / all.max(1) as f64)
}

pub(super) fn shortened(name: &str) -> String {
    shortened_to(name, NAME_MAX)
}

/// Returns as many letters of a name as fit.
pub(super) fn shortened_to(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    // The end of a name tells more than its beginning.
    let end: Vec<char> = name.chars().rev().take(most.saturating_sub(1)).collect();
    format!("…{}", end.into_iter().rev().collect::<String>())
}

/// A time in its two largest units.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let from = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let words = parts.iter().skip(from).take(2).filter(|(count, _)| *count > 0);
    let words: Vec<String> = words.map(|(count, name)| format!("{count} {name}")).collect();
    if words.is_empty() { "a second".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 7, 999, 1000, 12_345, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn times_have_two_units_at_most() {
        for (seconds, words) in [
            (0, "a second"),
            (59, "59 s"),
            (300, "5 min"),
            (3_600, "1 h"),
            (3_661, "1 h 1 min"),
            (86_400, "1 d"),
            (90_061, "1 d 1 h"),
        ] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("example.com"), "example.com");
        let long = format!("{}.example.com", "x".repeat(100));
        assert_eq!(shortened(&long).chars().count(), NAME_MAX);
        assert!(shortened(&long).ends_with("x.example.com"));
        assert!(shortened(&long).starts_with('…'));
    }
}
