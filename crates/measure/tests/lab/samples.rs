//! Samples of a run, in samples.csv.zst.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// The text of the samples.
pub(crate) fn text(place: &Path) -> String {
    let file = File::open(place.join("samples.csv.zst")).unwrap();
    String::from_utf8(zstd::decode_all(file).unwrap()).unwrap()
}

/// These columns of the rows whose columns have the wanted values.
pub(crate) fn samples<const N: usize>(
    place: &Path,
    wanted: &[(&str, &str)],
    columns: [&str; N],
) -> Vec<[String; N]> {
    let text = text(place);
    let mut samples = csv::Reader::from_reader(text.as_bytes());
    let names = samples.headers().unwrap().clone();
    let all = samples.records().map(|row| {
        let row = row.unwrap();
        let cells = names.iter().zip(&row).map(|(name, cell)| (name.to_owned(), cell.to_owned()));
        cells.collect::<HashMap<_, _>>()
    });
    let own = all.filter(|row| wanted.iter().all(|(name, value)| row[*name] == **value));
    own.map(|row| columns.map(|name| row[name].clone())).collect()
}

/// The least of a column. What other work of the machine adds is in most samples, and seldom in
/// all.
pub(crate) fn fastest(place: &Path, wanted: &[(&str, &str)], column: &str) -> f64 {
    let all = samples(place, wanted, [column]);
    all.iter().map(|[value]| value.parse().unwrap()).fold(f64::INFINITY, f64::min)
}
