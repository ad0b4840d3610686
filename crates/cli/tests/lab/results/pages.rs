//! Tables of loads in a browser: browser.json.

use serde_json::Value;

use super::{Quote, line};

/// The columns of one cell, or of one mean.
type Row = fn(&Value) -> Vec<String>;

/// `browser=cells`: each site with each arm; `browser=means`: each arm over all sites.
pub(super) fn table(quote: &Quote<'_>, which: &str) -> Vec<String> {
    let outcome = quote.file("browser.json");
    let all = outcome[which].as_array().unwrap();
    let chosen: Vec<&Value> = all.iter().filter(|row| quote.chooses(row)).collect();
    assert!(!chosen.is_empty(), "{}: nothing is chosen", quote.folder);
    let (head, row): (&[&str], Row) = match which {
        "cells" => (
            &[
                "link",
                "site",
                "arm",
                "page load, s",
                "saved",
                "`plan`: saved",
                "largest paint, s",
                "saved",
            ],
            cell,
        ),
        "means" => (
            &[
                "link",
                "arm",
                "page load, s",
                "`plan`, s",
                "error",
                "saved",
                "`plan`: saved",
                "BLAST",
            ],
            mean,
        ),
        other => panic!("{}: browser={other}", quote.folder),
    };
    let head: Vec<String> = head.iter().map(|&column| column.to_owned()).collect();
    let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    table.extend(chosen.into_iter().map(|of| line(&row(of))));
    table
}

fn cell(cell: &Value) -> Vec<String> {
    let failed = cell["failed"].as_u64().unwrap();
    let failed = if failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    vec![
        word(cell, "link"),
        word(cell, "variant"),
        format!("{}{failed}", word(cell, "arm")),
        seconds(&cell["page_load_ms"]),
        saved(&cell["page_load_saved"]),
        percent(&cell["predicted_saved"], 1),
        seconds(&cell["largest_paint_ms"]),
        saved(&cell["largest_paint_saved"]),
    ]
}

fn mean(mean: &Value) -> Vec<String> {
    let again = if mean["again"] == true { " again" } else { "" };
    let classical = if mean["classical"] == true { ", X25519" } else { "" };
    let s =
        |key: &str| mean[key].as_f64().map_or("–".to_owned(), |ms| format!("{:.2}", ms / 1e3));
    vec![
        word(mean, "link"),
        format!("{}{again}{classical}", word(mean, "arm")),
        s("page_load_ms"),
        s("predicted_ms"),
        mean["error"].as_f64().map_or("–".to_owned(), |share| format!("{:+.1} %", share * 100.0)),
        percent(&mean["saved"], 1),
        percent(&mean["predicted_saved"], 1),
        percent(&mean["published_saved"], 1),
    ]
}

fn word(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap().to_owned()
}

fn percent(share: &Value, digits: usize) -> String {
    share.as_f64().map_or("–".to_owned(), |share| format!("{:.digits$} %", share * 100.0))
}

/// A mean in ms, with its interval.
fn seconds(mean: &Value) -> String {
    let s = |value: &Value| value.as_f64().map(|ms| format!("{:.2}", ms / 1e3));
    let [low, high] = [0, 1].map(|end| s(&mean["ci95"][end]));
    match (s(&mean["value"]), low, high) {
        (Some(mean), Some(low), Some(high)) => format!("{mean} [{low} .. {high}]"),
        _ => "–".to_owned(),
    }
}

fn saved(saved: &Value) -> String {
    let [low, high] = [0, 1].map(|end| saved["share"]["ci95"][end].as_f64());
    match (saved["share"]["value"].as_f64(), low, high) {
        (Some(share), Some(low), Some(high)) => {
            format!("{:.1} % [{:.1} .. {:.1}]", share * 100.0, low * 100.0, high * 100.0)
        }
        _ => "–".to_owned(),
    }
}
