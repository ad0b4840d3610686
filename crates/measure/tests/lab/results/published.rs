//! Published tables, ours beside them.

use std::fs;

use serde_json::Value;

use super::quote::{Quote, estimate, line, mean, percent, time};
use super::{report, root};

/// Difference from a published figure that is none, as a share.
const SAME: f64 = 0.02;

/// The rows of the table that the experiment reproduces, and whether ours is better: it takes less
/// time, fewer connections miss the first packet, or fewer handshakes are full.
pub(super) fn table(quote: &Quote<'_>) -> Vec<String> {
    let in_flight = quote.get("per_s").map(|count| count.parse::<f64>().unwrap());
    let rows = report(quote.folder)["published"].as_array().unwrap().iter();
    let rows: Vec<&Value> = rows
        .filter(|row| {
            quote.keeps("arms", row["arm"].as_str().unwrap())
                && quote.keeps("places", row["place"].as_str().unwrap())
                && quote.keeps("printed", row["printed"].as_str().unwrap())
                && row["ours"]["variant"].as_str().is_none_or(|own| quote.keeps("variants", own))
        })
        .collect();
    assert!(!rows.is_empty(), "{}: nothing is chosen", quote.folder);
    let of_shares = rows[0]["theirs"]["missed"].is_number();
    let mut head = vec!["", "", "paper", "ours"];
    if in_flight.is_some() {
        head.extend(["paper, per s", "ours, per s"]);
    }
    if !of_shares {
        head.extend(["paper, ratio", "ours, ratio"]);
    }
    head.extend(["n", ""]);
    let first = quote.first_cell("");
    head[0] = &first;
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    for row in rows {
        let (theirs, ours) = (&row["theirs"], &row["ours"]);
        let mut columns: Vec<String> =
            ["place", "printed"].map(|name| row[name].as_str().unwrap().to_owned()).into();
        columns.push(printed(theirs));
        columns.push(counterpart(theirs, ours));
        if let Some(in_flight) = in_flight {
            let own = ours["times"]["p50"].as_f64().map(|ms| in_flight / ms * 1e3);
            columns.push(theirs["handshakes_per_s"].to_string().replace(".0", ""));
            columns.push(own.map_or("–".to_owned(), |rate| format!("{rate:.0}")));
        }
        if !of_shares {
            let ratio = theirs["to_baseline"].as_f64();
            columns.push(ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.3}")));
            columns.push(estimate(&ours["to_baseline"]));
        }
        columns.push(ours["n"].to_string());
        columns.push(verdict(theirs, ours).to_owned());
        table.push(line(&columns));
    }
    table
}

/// A published row: a share in percent, a mean with its deviation, or a median.
fn printed(theirs: &Value) -> String {
    match ["missed", "mean", "sd", "p50"].map(|key| theirs[key].as_f64()) {
        [Some(share), ..] => percent(share),
        [_, Some(mean), Some(sd), _] => format!("{mean:.1} ({sd:.1})"),
        [_, Some(mean), None, _] => format!("{mean:.0}"),
        [.., Some(p50)] => format!("{p50}"),
        _ => panic!("neither a share nor a time: {theirs}"),
    }
}

/// Ours, of the same kind.
fn counterpart(theirs: &Value, ours: &Value) -> String {
    if let Some(share) = ours["missed"]["value"].as_f64() {
        let [low, high] = [0, 1].map(|end| ours["missed"]["ci95"][end].as_f64().unwrap() * 100.0);
        return format!("{} [{low:.1} .. {high:.1}]", percent(share));
    }
    match theirs["mean"].is_number() {
        true => mean(&ours["mean"]["value"], &ours["sd"]),
        false => time(&ours["times"]["p50"]),
    }
}

/// Compares ratios to the baseline, or shares.
fn verdict(theirs: &Value, ours: &Value) -> &'static str {
    let (theirs, ours) = match theirs["missed"].as_f64() {
        Some(share) => (Some(share), &ours["missed"]),
        None => (theirs["to_baseline"].as_f64(), &ours["to_baseline"]),
    };
    let ends = [&ours["value"], &ours["ci95"][0], &ours["ci95"][1]].map(Value::as_f64);
    let (Some(theirs), [Some(value), Some(low), Some(high)]) = (theirs, ends) else { return "" };
    match (value - theirs).abs() <= SAME * theirs || (low..=high).contains(&theirs) {
        true => "same",
        false if value < theirs => "better",
        false => "worse",
    }
}

/// The arms' connections, and whether others can link them.
pub(super) fn privacy(quote: &Quote<'_>) -> Vec<String> {
    let cells = quote.groups().iter().flat_map(|group| group["cells"].as_array().unwrap());
    let cells: Vec<&Value> = cells.collect();
    let arms = quote.list("arms").expect("arms");
    let file = root().join("lab/papers/fop-privacy.toml");
    let published: toml::Table = fs::read_to_string(file).unwrap().parse().unwrap();
    let mut boundaries: Vec<(&str, &str)> = Vec::new();
    for cell in &cells {
        let row =
            (cell["privacy"]["boundary"].as_str().unwrap(), cell["variant"].as_str().unwrap());
        if !boundaries.contains(&row) {
            boundaries.push(row);
        }
    }
    let mut head = vec![quote.first_cell("")];
    head.extend(["TFO in the paper", "FOP in the paper"].map(str::to_owned));
    head.extend(arms.iter().map(|arm| format!("`{arm}`")));
    let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    for (boundary, title) in boundaries {
        let mut theirs = published["row"].as_array().unwrap().iter();
        let theirs = theirs.find(|row| row["boundary"].as_str() == Some(boundary));
        let mut columns = vec![title.to_owned()];
        columns.extend(["tfo", "fop"].map(|key| {
            let word = theirs.and_then(|row| row.get(key)).and_then(toml::Value::as_str);
            word.unwrap_or("–").to_owned()
        }));
        columns.extend(arms.iter().map(|arm| {
            let cell = cells
                .iter()
                .find(|cell| cell["arm"] == *arm && cell["privacy"]["boundary"] == boundary);
            cell.map_or("–".to_owned(), |cell| linkable(&cell["privacy"]))
        }));
        table.push(line(&columns));
    }
    table
}

/// Formats the finding of a row, with the number of cases.
fn linkable(finding: &Value) -> String {
    let all: u64 = ["viable", "bounded", "blocked", "undecided"]
        .map(|word| finding[word].as_u64().unwrap())
        .iter()
        .sum();
    let word = finding["linkable"].as_str().unwrap_or("undecided");
    let period = match (finding["boundary"].as_str().unwrap(), word) {
        ("period", "viable") => ", no end seen",
        ("period", "bounded") => ", until expiry",
        _ => "",
    };
    format!("{word}{period} ({} of {all})", finding[word])
}
