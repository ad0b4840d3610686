//! Pages in Chromium, with and without what saves round trips: recorded, learned from, loaded, and
//! held against what was predicted.

mod agent;
mod arm;
mod databases;
mod experiment;
mod extension;
mod load;
pub(crate) mod outcome;
mod predict;
mod run;
mod servers;
mod stage;
mod stale;
pub(crate) mod text;
pub(crate) mod validate;
pub(crate) mod visit;
mod whole;

pub(super) use experiment::{BrowserExperiment, NAME, Plan, find};
pub(super) use run::PagesInBrowser;
