//! Files of a load: a HAR file, its tree with times, and a picture; each whole or not at all.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use headstart_pageload::har::{Kind, Recording};
use headstart_pageload::page::{Confidence, Timings};
use headstart_pageload::tree::Tree;
use serde::Serialize;
use tempfile::NamedTempFile;
use url::Url;

use headstart::base::failure::Failure;

/// Recordings of one page in a folder at most: their names have four digits.
const NUMBERS: u32 = 9999;

/// Letters of a name at most, without number and end.
const NAME_MAX: usize = 80;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) url: String,
    pub(super) file: PathBuf,
    pub(super) browser: String,
    pub(super) resources: usize,
    pub(super) hosts: usize,
    pub(super) height: u32,
    pub(super) response_bytes: u64,
    /// Redirects to the document.
    pub(super) redirects: usize,
    /// Requests that are no resources: cached, failed and so on.
    pub(super) ignored: usize,
    /// Resources whose parent the recording tells.
    pub(super) recorded_parents: usize,
    /// Until 95 % of the resources were there.
    pub(super) page_load_ms: Option<f64>,
    pub(super) on_load_ms: Option<f64>,
    pub(super) largest_paint_ms: Option<f64>,
    /// Things out of the ordinary.
    pub(super) notes: Vec<String>,
}

/// A row of the tree: the five times are since the first request, in ms.
#[derive(Debug, Serialize)]
struct Row<'r> {
    id: usize,
    parent: Option<usize>,
    parent_known: &'static str,
    depth: u32,
    kind: Kind,
    status: u16,
    host: &'r str,
    protocol: &'static str,
    connection: Option<u32>,
    request_bytes: u64,
    response_bytes: u64,
    created_ms: f64,
    connecting_ms: f64,
    sent_ms: f64,
    first_byte_ms: f64,
    last_byte_ms: f64,
    url: &'r str,
}

/// The first figures of a recording; file, browser, picture and notes are the caller's.
pub(super) fn summary(url: &str, recording: &Recording) -> Summary {
    let page = &recording.page;
    let shape = Tree::from_page(page).shape(page);
    let hosts: BTreeSet<&str> = page.servers().iter().map(|server| server.host.as_str()).collect();
    let recorded = page.recorded();
    let [page_load_ms, on_load_ms] = [recorded.page_load_time, recorded.on_load]
        .map(|time| time.map(|time| time.as_secs_f64() * 1e3));
    Summary {
        url: url.to_owned(),
        file: PathBuf::new(),
        browser: String::new(),
        resources: shape.resources,
        hosts: hosts.len(),
        height: shape.height,
        response_bytes: shape.response_bytes,
        redirects: shape.redirects,
        ignored: page.ignored().total(),
        recorded_parents: recording.parents.recorded,
        page_load_ms,
        on_load_ms,
        largest_paint_ms: None,
        notes: Vec::new(),
    }
}

/// Puts a recording into a folder under the next number that is free; its path.
pub(super) fn put(folder: &Path, url: &str, har: &[u8]) -> Result<PathBuf, Failure> {
    let name = name(url);
    let mut file = whole(folder, har).map_err(|error| unusable(folder, &error))?;
    for number in 1..=NUMBERS {
        let path = folder.join(format!("{name}-{number:04}.har"));
        match file.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => file = error.file,
            Err(error) => return Err(unusable(folder, &error.error)),
        }
    }
    Err(Failure::usage(format!("{} has {NUMBERS} recordings of {url}", folder.display()))
        .hint("name another folder with --out"))
}

/// Puts something beside a recording, with another end of its name.
pub(super) fn put_beside(recording: &Path, end: &str, bytes: &[u8]) -> Result<(), Failure> {
    let folder = recording.parent().unwrap_or(Path::new("."));
    let path = recording.with_extension(end);
    let written = whole(folder, bytes).and_then(|file| Ok(file.persist(path)?));
    written.map(drop).map_err(|error| unusable(folder, &error))
}

/// The tree of a page and its measured times, as CSV.
pub(super) fn tree(recording: &Recording) -> Result<Vec<u8>, Failure> {
    let tree = Tree::from_page(&recording.page);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for id in 0..recording.page.resources().len() {
        if let Some(row) = row(recording, &tree, id) {
            writer.serialize(row).map_err(untold)?;
        }
    }
    writer.into_inner().map_err(untold)
}

fn untold(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("cannot write the tree: {error}"))
}

fn row<'r>(recording: &'r Recording, tree: &Tree, id: usize) -> Option<Row<'r>> {
    let page = &recording.page;
    let (one, facts) = (page.resources().get(id)?, recording.facts.get(id)?);
    let server = page.servers().get(one.server)?;
    let times = one.measured.unwrap_or_default();
    let [created_ms, connecting_ms, sent_ms, first_byte_ms, last_byte_ms] = five(&times);
    Some(Row {
        id,
        parent: one.parent(),
        parent_known: match one.confidence {
            Confidence::Recorded => "recorded",
            Confidence::Only => "only",
            Confidence::Chosen => "chosen",
            Confidence::Last => "last",
        },
        depth: tree.depth(id),
        kind: facts.kind,
        status: facts.status,
        host: &server.host,
        protocol: match server.protocol {
            headstart_pageload::page::Protocol::Http1 => "http/1.1",
            headstart_pageload::page::Protocol::Http2 => "h2",
            headstart_pageload::page::Protocol::Http3 => "h3",
        },
        connection: one.connection,
        request_bytes: one.request_bytes,
        response_bytes: one.response_bytes,
        created_ms,
        connecting_ms,
        sent_ms,
        first_byte_ms,
        last_byte_ms,
        url: &one.url,
    })
}

/// When it was asked for; when there was a connection for it, or one was begun; when the request
/// was sent; when the first and the last byte of the answer were there.
fn five(times: &Timings) -> [f64; 5] {
    let connecting = times.started + times.queued;
    let sent = connecting + times.dns + times.connect + times.tls + times.send;
    let first = sent + times.wait;
    let all = [times.started, connecting, sent, first, first + times.receive];
    all.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3)
}

/// Written and on disk, under no name yet.
fn whole(folder: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".recording-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

pub(super) fn unusable(folder: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write to {}: {error}", folder.display()))
        .hint("name a folder that you may write to with --out")
}

/// Host and path, with nothing in it that means something to a file system.
fn name(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let host = parsed.as_ref().and_then(Url::host_str).unwrap_or("page");
    let path = parsed.as_ref().map_or("", |url| url.path().trim_matches('/'));
    let text = if path.is_empty() { host.to_owned() } else { format!("{host}-{path}") };
    let plain =
        text.replace(|char: char| !char.is_ascii_alphanumeric() && !".-_".contains(char), "-");
    let name: String = plain.chars().take(NAME_MAX).collect();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_of_host_and_path() {
        assert_eq!(name("https://www.daily.test/"), "www.daily.test");
        assert_eq!(name("https://a.test:8443/x/%2e%2e/y?q=1"), "a.test-y");
        assert_eq!(name("https://a.test/a b/ü"), "a.test-a-20b--C3-BC");
        assert_eq!(name("https://[::1]/"), "---1-");
        assert_eq!(name(&format!("https://a.test/{}", "x".repeat(500))).len(), NAME_MAX);
    }

    #[test]
    fn recordings_get_the_next_number_and_leave_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let first = put(folder.path(), "https://a.test/", b"one").unwrap();
        let second = put(folder.path(), "https://a.test/", b"two").unwrap();
        put_beside(&second, "csv", b"2").unwrap();
        assert_eq!(
            (fs::read(first).unwrap(), fs::read(second).unwrap()),
            (b"one".into(), b"two".into())
        );
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["a.test-0001.har", "a.test-0002.csv", "a.test-0002.har"]);
        assert!(put(&folder.path().join("none"), "https://a.test/", b"").is_err());
    }

    #[test]
    fn the_five_times_come_one_after_the_other() {
        let ms = Duration::from_millis;
        let times = Timings {
            started: ms(10),
            queued: ms(1),
            dns: ms(2),
            connect: ms(4),
            tls: ms(8),
            send: ms(16),
            wait: ms(32),
            receive: ms(64),
        };
        assert_eq!(five(&times), [10.0, 11.0, 41.0, 73.0, 137.0]);
    }
}
