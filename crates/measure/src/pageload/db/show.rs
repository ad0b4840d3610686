//! `db show` and `db check`: what is in a file, and whether it may be used.

use std::path::Path;
use std::process::ExitCode;

use headstart_pageload::db::update::{InUse, Wanted};
use headstart_pageload::db::{
    Connect, Database, FileError, Header, Hop, PageEntry, Prefetch, PublicKey, Target,
    read_unverified,
};
use headstart_proto::UnixSeconds;
use serde_json::{Value, json};

use super::super::text::{counted, grouped};
use super::{file, keys};
use crate::pageload::db::options::{DbCheckOptions, DbShowOptions};
use crate::table::table;
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

/// Shows a file, or what it says of a URL.
pub(super) fn run(options: &DbShowOptions) -> Result<ExitCode, Failure> {
    let bytes = file::read(&options.file)?;
    let (header, database) = Header::read(&bytes)
        .and_then(|header| Ok((header, read_unverified(&bytes)?)))
        .map_err(|error: FileError| {
            Failure::usage(format!("cannot read {}: {error}", options.file.display()))
                .hint(error.hint())
        })?;
    let Some(url) = &options.url else {
        let text = match options.json {
            true => format!("{:#}\n", summary_json(&header, &database)),
            false => summary(&header, &database),
        };
        output::print(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let known = Known::from_database(&database, &target(url)?);
    let text = if options.json { format!("{:#}\n", known.json()) } else { known.text() };
    output::print(text.as_bytes())?;
    Ok(if known.is_nothing() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

/// Checks signature and content.
pub(super) fn check(options: &DbCheckOptions) -> Result<(), Failure> {
    let keys = keys::public(&options.key)?;
    let in_use = options.in_use.as_deref().map(|path| in_use(path, &keys)).transpose()?;
    let (wanted, database) = file::judged(&options.file, in_use, &keys)?;
    let same = if wanted == Wanted::Nothing { ", the same as the one in use" } else { "" };
    let pages = counted(database.pages().len() as u64, "page", "pages");
    output::print(format!("good: {pages}, made {}{same}\n", date(database.created())).as_bytes())
}

/// Reads the file that is in use already.
///
/// # Errors
/// It cannot be read, or nobody vouches for its date.
fn in_use(path: &Path, keys: &[PublicKey]) -> Result<InUse, Failure> {
    InUse::from_file(&file::read(path)?, keys).ok_or_else(|| {
        Failure::usage(format!("{} is no database that one of the keys signed", path.display()))
            .hint(
                "name the file in use with --in-use, and the key that it is signed with; leave \
                it out if there is none",
            )
    })
}

/// A URL of the command line.
pub(super) fn target(url: &str) -> Result<Target, Failure> {
    url.parse::<Target>().map_err(|error| {
        Failure::usage(format!("cannot look for {url}: {error}"))
            .hint("name a URL with its scheme, for example https://www.example.com/")
    })
}

/// A date of a file.
pub(in crate::pageload) fn date(at: UnixSeconds) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(at.0));
    // Invalid dates are shown unchanged.
    time.filter(|_| at.0 < 253_402_300_800).map_or_else(
        || format!("{} s", at.0),
        |time| humantime::format_rfc3339_seconds(time).to_string(),
    )
}

fn summary(header: &Header, database: &Database) -> String {
    let key = header.key.map_or_else(|| "nobody".into(), |id| format!("key {id} (not checked)"));
    let names: Vec<&str> = database.parts().names().collect();
    let rows = counts(database).map(|(name, count)| vec![name.to_owned(), grouped(count as u64)]);
    format!(
        "made {}, signed by {key}\ndatabases: {}\n{} bytes, {} uncompressed\n\n{}",
        date(header.created),
        names.join(", "),
        grouped(header.compressed_bytes as u64),
        grouped(header.body_bytes as u64),
        table(&rows, &[0]),
    )
}

fn counts(database: &Database) -> [(&'static str, usize); 5] {
    let Totals { redirects, servers, http2, prefetch } = Totals::new(database);
    [
        ("pages", database.pages().len()),
        ("redirects", redirects),
        ("servers", servers),
        ("http2", http2),
        ("prefetch", prefetch),
    ]
}

/// Entries of a database, over all pages.
pub(super) struct Totals {
    pub(super) redirects: usize,
    pub(super) servers: usize,
    pub(super) http2: usize,
    pub(super) prefetch: usize,
}

impl Totals {
    pub(super) fn new(database: &Database) -> Self {
        let http2 = database.http2().len();
        let mut totals = Self { redirects: 0, servers: 0, http2, prefetch: 0 };
        for page in database.pages() {
            totals.redirects += page.redirects.len();
            totals.servers += page.servers.len();
            totals.prefetch += page.prefetch.len();
        }
        totals
    }
}

fn summary_json(header: &Header, database: &Database) -> Value {
    let counts: serde_json::Map<String, Value> =
        counts(database).into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "created": date(header.created),
        "key": header.key.map(|id| id.to_string()),
        "databases": database.parts().names().collect::<Vec<_>>(),
        "bytes": header.compressed_bytes,
        "bytes_uncompressed": header.body_bytes,
        "counts": counts,
        "pages": database.pages().iter().map(|page| page.document.to_string()).collect::<Vec<_>>(),
    })
}

/// All that a database says of a URL: where it leads, and the page there.
struct Known<'a> {
    redirect: Option<&'a headstart_pageload::db::Redirect>,
    document: Target,
    page: Option<&'a PageEntry>,
    http2: Option<headstart_pageload::db::Http2>,
}

impl<'a> Known<'a> {
    fn from_database(database: &'a Database, url: &Target) -> Self {
        let redirect = database.redirect(url);
        let document = redirect.map_or(url, |redirect| redirect.to()).clone();
        let http2 = database.speaks(document.origin.host());
        Self { redirect, page: database.page(&document), http2, document }
    }

    fn is_nothing(&self) -> bool {
        self.redirect.is_none() && self.page.is_none() && self.http2.is_none()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(redirect) = self.redirect {
            for hop in &redirect.hops {
                let kind = if hop.permanent { "permanent" } else { "temporary" };
                text += &format!("redirect, {kind}: {}\n", hop.to);
            }
        }
        if let Some(http2) = self.http2 {
            text += &format!("{} speaks {http2:?}\n", self.document.origin.host());
        }
        let Some(page) = self.page else {
            return if text.is_empty() {
                format!("nothing is known of {}\n", self.document)
            } else {
                text
            };
        };
        let age = page.age_days.map_or_else(String::new, |days| {
            format!(", the newest {} old when it was made", counted(days.into(), "day", "days"))
        });
        let recordings = counted(page.recordings.into(), "recording", "recordings");
        text += &format!("{}: {recordings}{age}\n", page.document);
        for server in &page.servers {
            let pool = if server.anonymous { ", without credentials" } else { "" };
            let connections = counted(server.connections.into(), "connection", "connections");
            text += &format!("  connect   {}  {connections}{pool}\n", server.origin);
        }
        for of in &page.prefetch {
            let kind = json!(of.kind);
            text += &format!("  prefetch  {}  {}\n", of.target, kind.as_str().unwrap_or_default());
        }
        text
    }

    fn json(&self) -> Value {
        let hops = self.redirect.map(|of| {
            let hops = of.hops.iter();
            let hops =
                hops.map(|hop: &Hop| json!({"to": hop.to.to_string(), "permanent": hop.permanent}));
            hops.collect::<Vec<_>>()
        });
        json!({
            "redirect": hops,
            "speaks": self.http2.map(|speaks| format!("{speaks:?}")),
            "page": self.page.map(page_json),
        })
    }
}

fn page_json(page: &PageEntry) -> Value {
    let servers = page.servers.iter().map(|connect: &Connect| {
        json!({
            "origin": connect.origin.to_string(),
            "anonymous": connect.anonymous,
            "connections": connect.connections,
        })
    });
    let prefetch = page.prefetch.iter();
    let prefetch = prefetch
        .map(|entry: &Prefetch| json!({"url": entry.target.to_string(), "kind": entry.kind}));
    json!({
        "document": page.document.to_string(),
        "recordings": page.recordings,
        "age_days": page.age_days,
        "servers": servers.collect::<Vec<_>>(),
        "prefetch": prefetch.collect::<Vec<_>>(),
    })
}
