//! environment.json as names and texts: whatever a run says of itself is shown.

use serde_json::{Map, Value};

use crate::table::each_once;

/// A list whose entries have the same names.
#[derive(Debug)]
pub(super) struct List {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// A tree of values as dotted names and texts.
pub(super) fn flat(values: &Map<String, Value>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut open: Vec<(String, &Value)> =
        values.iter().rev().map(|(name, value)| (name.clone(), value)).collect();
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(inner) => {
                let inner = inner.iter().rev();
                open.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            Value::Array(values) if values.iter().all(|value| !value.is_object()) => {
                let values: Vec<_> = values.iter().map(plain).collect();
                lines.push((name, values.join(" ")));
            }
            // Lists are shown elsewhere.
            Value::Array(_) => {}
            value => lines.push((name, plain(value))),
        }
    }
    lines
}

/// The lists of a tree: arrays of objects.
pub(super) fn lists(values: &Map<String, Value>) -> Vec<List> {
    let lists = values.iter().filter_map(|(name, value): (&String, &Value)| {
        let entries: Vec<_> = value.as_array()?.iter().filter_map(Value::as_object).collect();
        (!entries.is_empty()).then(|| List::new(name, &entries))
    });
    lists.collect()
}

/// Returns the lateness of the slowest packet in a hundred, on the link where that was worst, in
/// us.
pub(super) fn lateness(environment: &Map<String, Value>) -> Option<f64> {
    let stages = environment.get("stages")?.as_array()?;
    let late = stages.iter().filter_map(|stage| stage.pointer("/lateness_us/p99")?.as_f64());
    late.reduce(f64::max)
}

impl List {
    fn new(name: &str, entries: &[&Map<String, Value>]) -> Self {
        let rows: Vec<Vec<(String, String)>> = entries.iter().map(|entry| flat(entry)).collect();
        let columns = each_once(rows.iter().flatten().map(|(column, _)| column.clone()));
        let rows = rows.iter().map(|row: &Vec<(String, String)>| {
            let cells = columns.iter().map(|column| {
                let found = row.iter().find(|(name, _)| name == column);
                found.map_or_else(|| "–".to_owned(), |(_, text)| text.clone())
            });
            cells.collect()
        });
        let rows = rows.collect();
        Self { name: name.to_owned(), columns, rows }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).into(),
        Value::Null => "unknown".into(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_shown_whole() {
        let values = serde_json::json!({
            "command": ["headstart", "lab"], "root": true,
            "forwarder": {"late": {"p99": 0.5}}, "git": null,
            "stages": [
                {"name": "x", "lateness_us": {"p99": 3}},
                {"name": "y", "lateness_us": {"p99": 7}},
            ],
        });
        let lines = flat(values.as_object().unwrap());
        let text: Vec<_> = lines.iter().map(|(name, text)| format!("{name}={text}")).collect();
        for line in ["command=headstart lab", "root=yes", "forwarder.late.p99=0.5", "git=unknown"] {
            assert!(text.contains(&line.into()), "{text:?}");
        }
        let lists = lists(values.as_object().unwrap());
        assert_eq!(lists.len(), 1);
        assert_eq!(lists[0].columns, ["lateness_us.p99", "name"]);
        assert_eq!(lists[0].rows, [["3", "x"], ["7", "y"]]);
        assert_eq!(lateness(values.as_object().unwrap()), Some(7.0));
    }
}
