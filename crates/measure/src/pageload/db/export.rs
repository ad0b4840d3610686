//! `db export`: the formats of servers and browsers.

use std::collections::BTreeMap;
use std::path::Path;

use headstart_pageload::db::export::{Extension, Links, SpeculationRules, origins};
use headstart_pageload::db::{Database, SecretKey, Target};

use super::{file, keys, show};
use crate::json::json;
use crate::pageload::db::options::{DbExportOptions, DbFormat};
use headstart::base::failure::Failure;
use headstart::base::output;

/// Writes one format.
pub(super) fn run(options: &DbExportOptions) -> Result<(), Failure> {
    let key = options.sign.as_deref().map(keys::secret).transpose()?;
    let database = file::database(&options.file)?;
    if let (Some(key), Some(path)) = (key, &options.out) {
        return signed(&database, options, &key, path);
    }
    let url = options.url.as_deref().map(show::target).transpose()?;
    let text = match (options.format, url) {
        (DbFormat::SpeculationRules, Some(url)) => {
            let rules = SpeculationRules::for_origin(&database, &url.origin);
            if rules.prefetch.is_empty() {
                return Err(unknown(&url));
            }
            json(&rules)?
        }
        (DbFormat::SpeculationRules, None) => json(&speculation_rules(&database))?,
        (DbFormat::Links, Some(url)) => links(&database, &url)?,
        (DbFormat::Links, None) => json(&all_links(&database))?,
        (DbFormat::Extension, Some(_)) => return Err(whole()),
        (DbFormat::Extension, None) => {
            json(&Extension::from_database(&database, options.temporary))?
        }
    };
    match &options.out {
        Some(path) => file::replace(path, text.as_bytes()),
        None => output::print(text.as_bytes()),
    }
}

/// The one format that is signed.
fn signed(
    database: &Database,
    options: &DbExportOptions,
    key: &SecretKey,
    path: &Path,
) -> Result<(), Failure> {
    if options.format != DbFormat::Extension {
        return Err(Failure::usage("only the format of the extension is signed")
            .hint("leave --sign out; servers take the others from a place that they trust"));
    }
    if options.url.is_some() {
        return Err(whole());
    }
    let bytes = Extension::write(database, options.temporary, key).map_err(|error| {
        Failure::usage(format!("cannot make a file for the extension: {error}"))
            .hint("build the database of fewer pages: as JSON they take more room")
    })?;
    file::replace(path, &bytes)
}

fn whole() -> Failure {
    Failure::usage("the format of the extension is of a whole database").hint("leave --url out")
}

fn speculation_rules(database: &Database) -> BTreeMap<String, SpeculationRules> {
    origins(database)
        .into_iter()
        .map(|origin| (format!("{origin}"), SpeculationRules::for_origin(database, &origin)))
        .collect()
}

fn all_links(database: &Database) -> BTreeMap<String, Links> {
    let links =
        database.pages().iter().map(|page| (page.document.to_string(), Links::for_page(page)));
    links.filter(|(_, links)| *links != Links::default()).collect()
}

/// Header lines as they are sent.
fn links(database: &Database, url: &Target) -> Result<String, Failure> {
    let links = Links::for_page(database.page(url).ok_or_else(|| unknown(url))?);
    if links.left_out > 0 {
        eprintln!("note: {} that no Link field can say, or beyond the limit", links.left_out);
    }
    Ok(links.links.iter().map(|link| format!("Link: {link}\n")).collect())
}

fn unknown(url: &Target) -> Failure {
    Failure::negative(format!("nothing is known of {url}"))
        .hint("`headstart pageload db show FILE --json` lists the pages of a file")
}
