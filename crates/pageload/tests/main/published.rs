//! The published data set of BLAST, and what is held against it. HEADSTART_DATA names the folder.

mod plan;
mod simulator;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use headstart_pageload::blast::{self, Logged, Record};

/// Returns the lines of the training set; `None` without the folder of data sets.
pub(crate) fn lines() -> Option<Vec<String>> {
    let Some(folder) = std::env::var_os("HEADSTART_DATA") else {
        eprintln!("skipped: HEADSTART_DATA names no folder of data sets");
        return None;
    };
    let file = std::fs::File::open(PathBuf::from(folder).join("blast/blast-train.jsonl.gz"));
    let lines = BufReader::new(flate2::read::GzDecoder::new(file.unwrap())).lines();
    Some(lines.map(Result::unwrap).collect())
}

/// Returns the recorded pages of the training set.
pub(crate) fn logged() -> Option<Vec<Logged>> {
    let records = lines()?.into_iter().map(|line| blast::read(&line).unwrap());
    let logged = records.filter_map(|record| match record {
        Record::Logged(logged) => Some(logged),
        _ => None,
    });
    Some(logged.collect())
}
