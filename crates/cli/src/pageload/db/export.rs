//! `db export`: the formats of servers and browsers.

use std::collections::BTreeMap;

use headstart_pageload::db::export::{Extension, Links, SpeculationRules, origins};
use headstart_pageload::db::{Database, Target};
use serde::Serialize;

use super::{file, show};
use crate::failure::Failure;
use crate::options::{DbExportOptions, DbFormat};
use crate::output;

/// Writes one format.
///
/// # Errors
/// The file cannot be read, or does not know the page.
pub(super) fn run(options: &DbExportOptions) -> Result<(), Failure> {
    let database = file::database(&options.file)?;
    let url = options.url.as_deref().map(show::target).transpose()?;
    let text = match (options.format, url) {
        (DbFormat::SpeculationRules, Some(url)) => {
            let rules = SpeculationRules::of(&database, &url.origin);
            if rules.prefetch.is_empty() {
                return Err(unknown(&url));
            }
            json(&rules)?
        }
        (DbFormat::SpeculationRules, None) => json(&speculation_rules(&database))?,
        (DbFormat::Links, Some(url)) => links(&database, &url)?,
        (DbFormat::Links, None) => json(&all_links(&database))?,
        (DbFormat::Extension, Some(_)) => {
            return Err(Failure::usage("the format of the extension is of a whole database")
                .hint("leave --url out"));
        }
        (DbFormat::Extension, None) => json(&Extension::of(&database, options.temporary))?,
    };
    output::print(text.as_bytes())
}

fn speculation_rules(database: &Database) -> BTreeMap<String, SpeculationRules> {
    let rules = |origin| (format!("{origin}"), SpeculationRules::of(database, &origin));
    origins(database).into_iter().map(rules).collect()
}

fn all_links(database: &Database) -> BTreeMap<String, Links> {
    let links = database.pages().iter().map(|page| (page.document.to_string(), Links::of(page)));
    links.filter(|(_, links)| *links != Links::default()).collect()
}

/// Header lines as they are sent.
fn links(database: &Database, url: &Target) -> Result<String, Failure> {
    let links = Links::of(database.page(url).ok_or_else(|| unknown(url))?);
    if links.left_out > 0 {
        eprintln!("note: {} that no Link field can say, or beyond the limit", links.left_out);
    }
    Ok(links.links.iter().map(|link| format!("Link: {link}\n")).collect())
}

fn unknown(url: &Target) -> Failure {
    Failure::negative(format!("nothing is known of {url}"))
        .hint("`headstart pageload db show FILE --json` lists the pages of a file")
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))
}
