//! The agent's JSON responses as tables.

use std::time::Duration;

use serde_json::Value;

use crate::base::printable::printable_word;

const SESSIONS: [&str; 8] =
    ["SERVER", "CONTEXT", "UID", "ALPN", "TICKETS", "NEWEST", "EXPIRES", "EARLY DATA"];
const POLICIES: [&str; 5] = ["CONTEXT", "UID", "SHARING", "LIFETIME", "EARLY DATA"];

/// Formats one row per server.
pub(super) fn sessions(response: &Value) -> String {
    table(&SESSIONS, rows(response, "sessions").map(session))
}

/// Formats one row per policy, from a list or a single one.
pub(super) fn policies(response: &Value) -> String {
    if response.get("policies").is_some() {
        table(&POLICIES, rows(response, "policies").map(policy))
    } else {
        table(&POLICIES, [policy(response)].into_iter())
    }
}

fn rows<'a>(response: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    response[name].as_array().into_iter().flatten()
}

fn session(row: &Value) -> [String; 8] {
    let server = match row.get("server") {
        Some(name) => word(name),
        None => list(&row["certificate"]),
    };
    let (newest, expires) = (time(&row["newest_ms"]), time(&row["expires_ms"]));
    let (context, uid) = (word(&row["context"]), word(&row["uid"]));
    let (alpn, tickets) = (list(&row["alpn"]), word(&row["tickets"]));
    [server, context, uid, alpn, tickets, newest, expires, word(&row["early_data"])]
}

fn policy(row: &Value) -> [String; 5] {
    let (context, uid) = (word(&row["context"]), word(&row["uid"]));
    let (lifetime, early_data) = (time(&row["lifetime_ms"]), word(&row["early_data"]));
    [context, uid, word(&row["sharing"]), lifetime, early_data]
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => printable_word(text).into_owned(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> String {
    let words: Vec<_> = value.as_array().into_iter().flatten().map(word).collect();
    if words.is_empty() { "-".into() } else { words.join(",") }
}

fn time(value: &Value) -> String {
    let seconds = value.as_u64().unwrap_or_default() / 1000;
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// Aligns the columns, with two spaces between them.
fn table<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let all: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    all.iter()
        .map(|row: &[String; N]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sessions_are_rows() {
        let response = json!({ "sessions": [{
            "server": "www.example.com", "context": null, "uid": 1000, "alpn": ["h2", "http/1.1"],
            "tickets": 2, "bytes": 2000, "newest_ms": 61_500, "expires_ms": 7_200_000,
            "early_data": 0,
        }] });
        assert_eq!(
            sessions(&response),
            "SERVER           CONTEXT  UID   ALPN         TICKETS  NEWEST  EXPIRES  EARLY DATA\n\
             www.example.com  -        1000  h2,http/1.1  2        1m 1s   2h       0\n"
        );
        assert_eq!(sessions(&json!({ "sessions": [] })).lines().count(), 1);
    }

    #[test]
    fn control_characters_of_other_users_are_escaped() {
        let response = json!({ "sessions": [{
            "server": "a.example\u{1b}]0;owned\u{7}\nb.example  -  0", "context": "\u{202e}x",
            "uid": 1000, "alpn": ["\u{1b}[7m"], "tickets": 1, "newest_ms": 0, "expires_ms": 0,
            "early_data": 0,
        }] });
        let text = sessions(&response);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(text.contains("a.example\\u001b]0;owned\\u0007\\u000ab.example"), "{text:?}");
        assert!(text.contains("\\u202ex") && text.contains("\\u001b[7m"), "{text:?}");
    }

    #[test]
    fn one_policy_is_one_row() {
        let one = json!({
            "context": "work", "uid": 1000, "sharing": "off", "lifetime_ms": 0, "early_data": true,
        });
        let expected = "CONTEXT  UID   SHARING  LIFETIME  EARLY DATA\nwork     1000  off      0\
            s        true\n";
        assert_eq!(policies(&one), expected);
        assert_eq!(policies(&json!({ "policies": [one] })), expected);
    }
}
