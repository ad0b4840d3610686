//! `db build --proven`: of each page only what makes it faster on loads that it was not learned
//! from.

use std::collections::BTreeMap;

use headstart_pageload::db::{Built, Database, DatabaseError, Facts, PageEntry, Parts, Rules};
use headstart_pageload::har;
use headstart_pageload::page::Page;
use headstart_pageload::policy::{self, Policy, Recorded, Tried};
use headstart_pageload::sim::tcp::{Delivery, Link, Overhead, Settings};
use serde::Serialize;

use crate::pageload::db::options::DbBuildOptions;
use crate::table::table;

/// A load to try policies on.
pub(super) struct LoadFacts {
    pub(super) page: Page,
    pub(super) resources: Vec<har::Facts>,
    pub(super) facts: Facts,
}

/// Loads by document.
pub(super) type Loads = BTreeMap<String, Vec<LoadFacts>>;

/// A page, and what was tried on it.
#[derive(Serialize)]
pub(super) struct Proof {
    page: String,
    loads: usize,
    kept: String,
    tried: Vec<Tried>,
}

/// Keeps of each page in a database what wins, if that was asked for; returns what was tried.
pub(super) fn keep(
    options: &DbBuildOptions,
    loads: &Loads,
    rules: &Rules,
    built: &mut Built,
) -> Result<Vec<Proof>, DatabaseError> {
    let Some(rtt) = options.proven else { return Ok(Vec::new()) };
    let link = Link { rtt, down: options.rate, up: options.rate, ..Link::default() };
    let (delivery, overhead) = (Delivery::Document, Overhead::MEASURED);
    let settings = Settings { link, delivery, overhead, ..Settings::default() };
    let database = &built.database;
    let (proofs, mut pages): (Vec<Proof>, Vec<PageEntry>) = database
        .pages()
        .iter()
        .map(|entry| proof(entry, loads, &settings, rules, database.parts()))
        .unzip();
    pages.retain(|page| {
        !(page.redirects.is_empty() && page.servers.is_empty() && page.prefetch.is_empty())
    });
    let http2 = database.http2().clone();
    built.database = Database::new(database.created(), database.parts(), pages, http2)?;
    Ok(proofs)
}

fn proof(
    entry: &PageEntry,
    loads: &Loads,
    settings: &Settings,
    rules: &Rules,
    parts: Parts,
) -> (Proof, PageEntry) {
    let page = entry.document.to_string();
    let own = loads.get(&page).map(Vec::as_slice).unwrap_or_default();
    let recorded: Vec<Recorded<'_>> = own
        .iter()
        .map(|LoadFacts { page, resources, facts }| Recorded { page, resources, facts })
        .collect();
    let tried = policy::tried(&recorded, settings, rules, parts);
    let kept = policy::kept(&tried);
    (Proof { page, loads: own.len(), kept: kept.to_string(), tried }, kept.keep(entry))
}

/// Policies that were kept and rejected, with the effect on loads that were held out.
pub(super) fn text(proofs: &[Proof]) -> String {
    if proofs.is_empty() {
        return String::new();
    }
    let header = ["page", "policy", "", "saved", "surely", "load event", "largest paint"];
    let mut rows: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    for proof in proofs {
        if proof.tried.is_empty() {
            let why = format!("nothing: {} loads to try it on", proof.loads);
            rows.push(
                [proof.page.clone(), why].into_iter().chain(vec![String::new(); 5]).collect(),
            );
        }
        rows.extend(proof.tried.iter().map(|tried| row(proof, tried)));
    }
    format!("\nTried on loads that were held out\n{}", table(&rows, &[0, 1, 2]))
}

fn row(proof: &Proof, tried: &Tried) -> Vec<String> {
    let Tried { policy, saved, surely, others, wins } = tried;
    let verdict = match () {
        () if policy.to_string() == proof.kept && *wins => "kept",
        () if *wins => "wins, too",
        () => "rejected",
    };
    let mean = saved.iter().sum::<f64>() / saved.len() as f64;
    let [on_load, paint] = others.map(|share| share.map_or_else(|| "-".to_owned(), percent));
    let names = [proof.page.clone(), Policy::to_string(policy), verdict.to_owned()];
    names.into_iter().chain([percent(mean), percent(*surely), on_load, paint]).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
