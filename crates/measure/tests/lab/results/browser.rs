//! Tables of loads in a browser: browser.json.

use std::fs::{self, File};

use flate2::read::GzDecoder;
use headstart_pageload::har;
use serde_json::Value;

use super::quote::{Quote, counts, line};
use super::root;

/// `browser=cells`: each site with each arm; `browser=means`: each arm over all sites;
/// `browser=recorded`: the same, predicted from what was recorded, less the share that the
/// simulator saves.
pub(super) fn table(quote: &Quote<'_>, which: &str) -> Vec<String> {
    let outcome = quote.file("browser.json");
    if which == "recorded" {
        return from_recorded(quote, &outcome);
    }
    let all = outcome[which].as_array().unwrap();
    let chosen: Vec<&Value> = all.iter().filter(|row| chooses(quote, row)).collect();
    assert!(!chosen.is_empty(), "{}: nothing is chosen", quote.folder);
    let columns: &[&str] = match which {
        "cells" => &["link", "site", "arm", "n (flagged)", "page load, s", "saved"],
        "means" => &["link", "arm", "n (flagged)", "page load, s", "`plan`, s", "saved"],
        other => panic!("{}: browser={other}", quote.folder),
    };
    let last: &[&str] = match which {
        "cells" => &["`plan`: saved", "largest paint, s", "saved"],
        _ => &["`plan`: saved", "BLAST"],
    };
    let mut head: Vec<String> =
        columns.iter().chain(last).map(|&column| column.to_owned()).collect();
    head[0] = quote.first_cell("link");
    let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    table.extend(chosen.into_iter().map(|of| match which {
        "cells" => line(&cell(of)),
        _ => line(&mean(of, &of_mean(&outcome, of))),
    }));
    table
}

fn chooses(quote: &Quote<'_>, row: &Value) -> bool {
    [("links", "link"), ("arms", "arm"), ("variants", "variant")]
        .iter()
        .all(|(list, key)| row[*key].as_str().is_none_or(|value| quote.keeps(list, value)))
}

/// The cells that a mean is of.
fn of_mean<'o>(outcome: &'o Value, mean: &Value) -> Vec<&'o Value> {
    let cells = outcome["cells"].as_array().unwrap().iter();
    let same = |cell: &&Value| {
        ["link", "arm", "again", "classical", "http1"].iter().all(|key| cell[*key] == mean[*key])
    };
    cells.filter(same).collect()
}

/// Of runs before the program predicted so by itself.
fn from_recorded(quote: &Quote<'_>, outcome: &Value) -> Vec<String> {
    let [cells, means] = ["cells", "means"].map(|key| outcome[key].as_array().unwrap());
    let head = ["link", "arm", "page load, s", "predicted, s", "error"].map(str::to_owned);
    let mut table = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    for of in means.iter().filter(|row| chooses(quote, row)) {
        let same = of_mean(outcome, of).into_iter();
        let all: Vec<f64> = same.map(|cell| predicted_ms(quote, cells, cell)).collect();
        let predicted = all.iter().sum::<f64>() / all.len() as f64;
        let measured = of["page_load_ms"].as_f64().unwrap();
        let error = format!("{:+.1} %", (predicted / measured - 1.0) * 100.0);
        let [measured, predicted] = [measured, predicted].map(|ms| format!("{:.2}", ms / 1e3));
        table.push(line(&[word(of, "link"), arm(of), measured, predicted, error]));
    }
    table
}

/// The recorded time of a cell's page, less the share that the simulator says the arm saves.
fn predicted_ms(quote: &Quote<'_>, cells: &[Value], cell: &Value) -> f64 {
    let (link, variant) = (word(cell, "link"), word(cell, "variant"));
    let site = variant.split(' ').next().unwrap();
    let plain = cells
        .iter()
        .find(|one| one["link"] == link && one["variant"] == site && one["arm"] == "plain");
    let [own, plain] = [cell, plain.unwrap()].map(|cell| cell["predicted_ms"].as_f64().unwrap());
    recorded_ms(quote, &link, site) * own / plain
}

/// The mean page load time of the recordings of a site over a link.
fn recorded_ms(quote: &Quote<'_>, link: &str, site: &str) -> f64 {
    let begin = format!("{}-{site}-plain-", link.replace(' ', "-"));
    let folder = root().join("lab/results").join(quote.folder).join("recordings");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let own = files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(&begin));
    let all: Vec<f64> = own
        .map(|file| {
            let har = har::read(GzDecoder::new(File::open(file).unwrap())).unwrap();
            har.recordings[0].page.recorded().page_load_time.unwrap().as_secs_f64() * 1e3
        })
        .collect();
    all.iter().sum::<f64>() / all.len() as f64
}

fn cell(cell: &Value) -> Vec<String> {
    let failed = cell["failed"].as_u64().unwrap();
    let failed = if failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    vec![
        word(cell, "link"),
        word(cell, "variant"),
        format!("{}{failed}", word(cell, "arm")),
        counts(&[cell]),
        seconds(&cell["page_load_ms"]),
        saved(&cell["page_load_saved"]),
        percent(&cell["predicted_saved"], 1),
        seconds(&cell["largest_paint_ms"]),
        saved(&cell["largest_paint_saved"]),
    ]
}

/// What is loaded how, by all that tells it from others.
fn arm(mean: &Value) -> String {
    let again = if mean["again"] == true { " again" } else { "" };
    let classical = if mean["classical"] == true { ", X25519" } else { "" };
    let http1 = if mean["http1"] == true { ", HTTP/1.1" } else { "" };
    format!("{}{again}{classical}{http1}", word(mean, "arm"))
}

fn mean(mean: &Value, cells: &[&Value]) -> Vec<String> {
    let [measured, predicted] = ["page_load_ms", "predicted_ms"]
        .map(|key| mean[key].as_f64().map_or("–".to_owned(), |ms| format!("{:.2}", ms / 1e3)));
    vec![
        word(mean, "link"),
        arm(mean),
        counts(cells),
        measured,
        predicted,
        saved_by_all(&mean["saved"], cells),
        percent(&mean["predicted_saved"], 1),
        percent(&mean["published_saved"], 1),
    ]
}

/// The mean share of several sites, whose errors are independent.
fn saved_by_all(share: &Value, cells: &[&Value]) -> String {
    let Some(share) = share.as_f64() else { return "–".to_owned() };
    let squares = cells.iter().map(|cell| {
        let [low, high] =
            [0, 1].map(|end| cell["page_load_saved"]["share"]["ci95"][end].as_f64().unwrap());
        ((high - low) / 2.0).powi(2)
    });
    let half = squares.sum::<f64>().sqrt() / cells.len() as f64;
    let [share, low, high] = [share, share - half, share + half].map(|share| share * 100.0);
    format!("{share:.1} % [{low:.1} .. {high:.1}]")
}

fn word(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap().to_owned()
}

fn percent(share: &Value, digits: usize) -> String {
    share.as_f64().map_or("–".to_owned(), |share| format!("{:.digits$} %", share * 100.0))
}

/// A mean in ms, with its interval.
fn seconds(mean: &Value) -> String {
    let figures = [&mean["value"], &mean["ci95"][0], &mean["ci95"][1]];
    match figures.map(|value| value.as_f64().map(|ms| format!("{:.2}", ms / 1e3))) {
        [Some(mean), Some(low), Some(high)] => format!("{mean} [{low} .. {high}]"),
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
