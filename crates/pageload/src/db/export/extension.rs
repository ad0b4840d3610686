//! Exports the part of a database that the browser extension can use, as signed JSON.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::write::GzEncoder;
use serde::Serialize;

use super::super::database::{Connect, Database, PageEntry, Parts};
use super::super::file::{FileError, Form, SecretKey, frame};
use super::super::limits::BODY_BYTES;
use super::super::target::Target;
use super::is_mixed;

/// First bytes of every such file.
pub const EXTENSION_MAGIC: [u8; 8] = *b"\x89HSDE\r\n\x1a";

/// Version of the JSON. Version 1 had rules and lists of URLs to prefetch.
const VERSION: u32 = 2;

const FORM: Form = Form { magic: EXTENSION_MAGIC, context: b"headstart extension database\0" };

/// Data for the browser extension: targets of documents' URLs, and connections of their pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// Version of this format.
    pub version: u32,
    /// When the database was made, in seconds since 1970.
    pub created: u64,
    /// Databases that it was made from: `redirect`, `server`.
    pub databases: Vec<&'static str>,
    /// Redirects to documents, by their first URL.
    pub redirects: Vec<Leads>,
    /// Number of redirects to documents that no rule of declarativeNetRequest can express.
    pub redirects_left_out: usize,
    /// Connections to open, by the URL of the document; on https pages none over http.
    pub pages: BTreeMap<String, Vec<Preconnect>>,
}

/// A redirect, from its first URL to its final target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leads {
    /// First URL.
    pub from: String,
    /// Final target.
    pub to: String,
}

/// Connections to open to one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preconnect {
    /// Origin of the server.
    pub origin: String,
    /// True for requests without credentials.
    pub anonymous: bool,
    /// Number of connections.
    pub connections: u8,
}

impl Extension {
    /// Exports a whole database; unless `temporary` is set, only redirects whose steps are all
    /// permanent.
    #[must_use]
    pub fn from_database(database: &Database, temporary: bool) -> Self {
        let (redirects, redirects_left_out) = redirects(database, temporary);
        let pages = database.pages().iter().map(|page| (page.document.to_string(), servers(page)));
        Self {
            version: VERSION,
            created: database.created().0,
            databases: parts(database).names().collect(),
            redirects,
            redirects_left_out,
            pages: pages.filter(|(_, servers)| !servers.is_empty()).collect(),
        }
    }

    /// As a file: the header of databases, with a beginning and a context of its own, and the JSON
    /// in gzip (RFC 1952), which browsers can decompress.
    ///
    /// # Errors
    /// It is larger than files may be.
    pub fn write(
        database: &Database,
        temporary: bool,
        key: &SecretKey,
    ) -> Result<Vec<u8>, FileError> {
        let extension = Self::from_database(database, temporary);
        let json = serde_json::to_vec(&extension).map_err(|_| FileError::Compression)?;
        if json.len() > BODY_BYTES {
            return Err(FileError::TooLarge);
        }
        let mut compressed = GzEncoder::new(Vec::new(), flate2::Compression::best());
        let written = compressed.write_all(&json).and_then(|()| compressed.finish());
        let compressed = written.map_err(|_| FileError::Compression)?;
        let (created, parts) = (database.created(), parts(database));
        frame(&FORM, json.len(), &compressed, created, parts, Some(key))
    }
}

/// Returns the databases that the extension uses.
fn parts(database: &Database) -> Parts {
    let Parts { redirect, server, .. } = database.parts();
    Parts { redirect, server, ..Parts::NONE }
}

fn redirects(database: &Database, temporary: bool) -> (Vec<Leads>, usize) {
    let redirects = database.pages().iter().flat_map(|page| &page.redirects);
    let wanted = redirects.filter(|of| of.of_document && (temporary || of.is_permanent()));
    let (expressible, left_out): (Vec<_>, Vec<_>) =
        wanted.partition(|redirect| can_be_said(&redirect.from));
    let leads = expressible
        .iter()
        .map(|of| Leads { from: of.from.to_string(), to: of.to().to_string() })
        .collect();
    (leads, left_out.len())
}

/// Returns false for URLs with characters that have a special meaning in filters (`urlFilter` of
/// declarativeNetRequest).
fn can_be_said(from: &Target) -> bool {
    !from.to_string().contains(['*', '^', '|'])
}

fn servers(page: &PageEntry) -> Vec<Preconnect> {
    page.servers
        .iter()
        .filter(|of| !is_mixed(page, &of.origin))
        .map(|server: &Connect| Preconnect {
            origin: server.origin.to_string(),
            anonymous: server.anonymous,
            connections: server.connections,
        })
        .collect()
}
