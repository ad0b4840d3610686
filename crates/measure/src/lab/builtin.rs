//! The experiments that are part of the program, so that it needs no files beside it.

use std::path::Path;

use super::bench;
use super::browser;
use super::experiment::Experiment;
use super::soak;
use super::tor;
use headstart::base::failure::Failure;

/// Each by its text, from lab/experiments.
const TEXTS: [&str; 17] = [
    include_str!("../../../../lab/experiments/turbotls-table.toml"),
    include_str!("../../../../lab/experiments/loss.toml"),
    include_str!("../../../../lab/experiments/middleboxes.toml"),
    include_str!("../../../../lab/experiments/balancer.toml"),
    include_str!("../../../../lab/experiments/load.toml"),
    include_str!("../../../../lab/experiments/scale.toml"),
    include_str!("../../../../lab/experiments/size.toml"),
    include_str!("../../../../lab/experiments/links.toml"),
    include_str!("../../../../lab/experiments/careful-resume.toml"),
    include_str!("../../../../lab/experiments/careful-beside.toml"),
    include_str!("../../../../lab/experiments/ech.toml"),
    include_str!("../../../../lab/experiments/fop-table.toml"),
    include_str!("../../../../lab/experiments/fop-addresses.toml"),
    include_str!("../../../../lab/experiments/fop-privacy.toml"),
    include_str!("../../../../lab/experiments/sharing.toml"),
    include_str!("../../../../lab/experiments/cs244.toml"),
    include_str!("../../../../lab/experiments/pages.toml"),
];

/// All of them, with their texts.
pub(crate) fn all() -> Result<Vec<(Experiment, &'static str)>, Failure> {
    TEXTS.iter().map(|text| Ok((Experiment::parse("built in", text)?, *text))).collect()
}

/// The experiment of this name, or in this file; with its text.
pub(crate) fn find(name: &str) -> Result<(Experiment, String), Failure> {
    let known = all()?;
    if let Some((experiment, text)) = known.iter().find(|(known, _)| known.name == name) {
        return Ok((experiment.clone(), (*text).to_owned()));
    }
    let path = Path::new(name);
    if path.exists() || name.contains(['/', '.']) {
        return Experiment::read(path);
    }
    Err(Failure::usage(format!("there is no experiment '{name}'"))
        .hint(format!("there are {}; or name a file", names()?.join(", "))))
}

/// Names of everything that `headstart lab run` runs without a file.
pub(crate) fn names() -> Result<Vec<String>, Failure> {
    let usual = all()?.into_iter().map(|(known, _)| known.name);
    let others = bench::all()?.into_iter().map(|(bench, _)| bench.name);
    let apart = [tor::NAME, browser::NAME, soak::NAME].map(str::to_owned);
    Ok(usual.chain(apart).chain(others).collect())
}
