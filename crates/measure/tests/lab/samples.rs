//! Samples of a run, in samples.csv.

use std::path::Path;

/// These columns of the rows whose columns have the wanted values.
pub(crate) fn samples<const N: usize>(
    place: &Path,
    wanted: &[(&str, &str)],
    columns: [&str; N],
) -> Vec<[String; N]> {
    let mut samples = csv::Reader::from_path(place.join("samples.csv")).unwrap();
    let names = samples.headers().unwrap().clone();
    let column = |name: &str| names.iter().position(|known| known == name).unwrap();
    let all = samples.records().map(Result::unwrap);
    let own = all.filter(|row| wanted.iter().all(|(name, value)| row[column(name)] == **value));
    own.map(|row| columns.map(|name| row[column(name)].to_owned())).collect()
}

/// The least of a column. What other work of the machine adds is in most samples, and seldom in
/// all.
pub(crate) fn fastest(place: &Path, wanted: &[(&str, &str)], column: &str) -> f64 {
    let all = samples(place, wanted, [column]);
    all.iter().map(|[value]| value.parse().unwrap()).fold(f64::INFINITY, f64::min)
}
