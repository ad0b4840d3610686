//! Databases of the recordings of a link, and where the extension finds them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use headstart_emulation::Node;
use headstart_pageload::db::export::{Extension, Links};
use headstart_pageload::db::{Database, Facts, Methods, Parts, Recordings, Rules, SecretKey};
use headstart_pageload::har::Recording;
use headstart_proto::UnixSeconds;
use openssl::pkey::{PKey, Private};
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::arm::Arm;
use super::servers::Front;
use super::stale::aged;
use headstart::base::clock::wall_clock;
use headstart::base::failure::Failure;

/// Time that a client may take to fetch a database.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a request for one, at most.
const REQUEST_MAX: u64 = 16 << 10;

/// Interval at which the thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(500);

/// Pause of accepting after it has failed.
const SHORTAGE: Duration = Duration::from_millis(10);

/// Signed files, by the arm that uses them.
type Files = BTreeMap<&'static str, Vec<u8>>;

#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) recording: Recording,
    pub(super) har: Vec<u8>,
}

/// Values of `Link` fields by URL, for documents that say what their pages need.
pub(super) type PageLinks = Vec<(String, Vec<String>)>;

/// Databases learned from the recordings of a link.
#[derive(Debug)]
pub(super) struct Databases {
    fresh: Database,
    stale: Database,
    key: PKey<Private>,
    files: Arc<Files>,
    pub(super) facts: DatabaseFacts,
}

/// Contents of a link's database.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DatabaseFacts {
    pub(crate) link: String,
    pub(crate) recordings: usize,
    /// Redirects, servers and URLs of all pages.
    pub(crate) redirects: usize,
    pub(crate) servers: usize,
    pub(crate) prefetch: usize,
    /// `Link` fields, and entries that these cannot say or that are beyond their 4 kB.
    pub(crate) links: usize,
    pub(crate) links_left_out: usize,
    /// Entries that are out of date in the stale database.
    #[serde(default)]
    pub(crate) stale: usize,
    pub(crate) bytes: usize,
}

impl Databases {
    /// Learns what the loads have in common, as `headstart pageload db build` does; `seed` draws
    /// what is out of date in a second, stale one.
    pub(super) fn learn(link: &str, recorded: &[Recorded], seed: u64) -> Result<Self, Failure> {
        let mut recordings = Recordings::new();
        for one in recorded {
            let methods = Methods::read(one.har.as_slice()).map_err(unusable)?;
            let page = &one.recording.page;
            let facts = Facts::of_resources(page, &one.recording.facts, &methods);
            let at = page.recorded().at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let at = at.map(|since| UnixSeconds(since.as_secs()));
            recordings.add(page, at, &facts).map_err(unusable)?;
        }
        let built = recordings.build(&Rules::default(), Parts::ALL, wall_clock());
        let fresh = built.map_err(unusable)?.database;
        let (stale, wrong) = aged(&fresh, seed).map_err(unusable)?;
        let key = PKey::generate_ed25519().map_err(unusable)?;
        let facts = DatabaseFacts {
            link: link.into(),
            recordings: recorded.len(),
            stale: wrong,
            ..DatabaseFacts::default()
        };
        let mut databases = Self { fresh, stale, key, files: Arc::default(), facts };
        databases.write()?;
        Ok(databases)
    }

    /// Writes the files, and counts.
    fn write(&mut self) -> Result<(), Failure> {
        let mut files = BTreeMap::new();
        for arm in
            [Arm::RedirectDb, Arm::ServerDb, Arm::Databases, Arm::Everything, Arm::EverythingStale]
        {
            let part = part(self.known_to(arm), arm.extension())?;
            files.insert(arm.name(), signed(&part, &self.key).map_err(unusable)?);
        }
        self.facts.count(&self.fresh, files.values().map(Vec::len).max().unwrap_or_default());
        for page in part(&self.fresh, PREFETCH)?.pages() {
            let Links { links, left_out } = Links::for_page(page);
            self.facts.links += links.len();
            self.facts.links_left_out += left_out;
        }
        self.files = Arc::new(files);
        Ok(())
    }

    /// All that a browser may use of an arm.
    pub(super) const fn known_to(&self, arm: Arm) -> &Database {
        if arm.is_stale() { &self.stale } else { &self.fresh }
    }

    /// The fields of documents at a front.
    pub(super) fn links(&self, front: Front) -> Result<PageLinks, Failure> {
        let known = if front == Front::StaleHinting { &self.stale } else { &self.fresh };
        let prefetch = part(known, PREFETCH)?;
        let pages = prefetch.pages().iter();
        Ok(pages.map(|page| (page.document.to_string(), Links::for_page(page).links)).collect())
    }

    /// Serves the files on a client's node.
    pub(super) fn serve(&self, node: &Node) -> Result<Served, Failure> {
        let listener = node.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).flatten();
        let (address, wanted) = listener
            .and_then(|listener| {
                Ok((listener.local_addr()?, serve(listener, Arc::clone(&self.files))?))
            })
            .map_err(|error| Failure::usage(format!("cannot serve databases: {error}")))?;
        let pem = self.key.public_key_to_pem();
        let pem = pem.map_err(|error| Failure::usage(format!("no public key: {error}")))?;
        Ok(Served { address, key: String::from_utf8_lossy(&pem).into_owned(), _wanted: wanted })
    }
}

/// For documents, which say it by `Link` fields.
const PREFETCH: Parts = Parts { prefetch: true, ..Parts::NONE };

fn part(database: &Database, parts: Parts) -> Result<Database, Failure> {
    let (pages, http2) = (database.pages().to_vec(), database.http2().clone());
    Database::new(database.created(), parts, pages, http2).map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("no database can be made of the recordings: {error}"))
}

/// Server of a link's files, on one client's node; stops when dropped.
#[derive(Debug)]
pub(super) struct Served {
    address: SocketAddr,
    key: String,
    _wanted: Arc<()>,
}

impl Served {
    pub(super) fn url(&self, arm: Arm) -> String {
        format!("http://{}/{}.hsdx", self.address, arm.name())
    }

    /// The public key, as `db keygen` writes it.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl DatabaseFacts {
    fn count(&mut self, all: &Database, bytes: usize) {
        for page in all.pages() {
            self.redirects += page.redirects.len();
            self.servers += page.servers.len();
            self.prefetch += page.prefetch.len();
        }
        self.bytes = bytes;
    }
}

fn signed(database: &Database, key: &PKey<Private>) -> Result<Vec<u8>, String> {
    let raw = key.raw_private_key().map_err(|error| error.to_string())?;
    let raw: &[u8; 32] = raw.as_slice().try_into().map_err(|_| "a key of another length")?;
    // A redirect by language is temporary, and the same for all loads here.
    Extension::write(database, true, &SecretKey::from_bytes(raw)).map_err(|error| error.to_string())
}

/// Serves them until what this gives is dropped.
fn serve(listener: TcpListener, files: Arc<Files>) -> io::Result<Arc<()>> {
    // For a listener, this bounds the wait for a client (socket(7): SO_RCVTIMEO).
    SockRef::from(&listener).set_read_timeout(Some(LOOK))?;
    let wanted = Arc::new(());
    let held = Arc::downgrade(&wanted);
    thread::spawn(move || {
        while held.strong_count() > 0 {
            match listener.accept() {
                // A client that disconnects gets nothing.
                Ok((stream, _)) => drop(answer(stream, &files)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A resource, such as file descriptors, is short for a while.
                Err(_) => thread::sleep(SHORTAGE),
            }
        }
    });
    Ok(wanted)
}

/// One request, and the file that it names.
fn answer(mut stream: TcpStream, files: &Files) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && (request.len() as u64) < REQUEST_MAX {
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        request.extend(byte);
    }
    let text = String::from_utf8_lossy(&request);
    let name =
        text.split(' ').nth(1).and_then(|path| path.strip_prefix('/')?.strip_suffix(".hsdx"));
    let common =
        "Access-Control-Allow-Origin: *\r\nCache-Control: no-store\r\nConnection: close\r\n";
    match name.and_then(|name| files.get(name)) {
        Some(file) => {
            let length = file.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: \
                    {length}\r\n{common}\r\n"
            )?;
            stream.write_all(file)
        }
        None => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{common}\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use headstart_testkit::until;

    use super::*;

    #[test]
    fn files_are_served_by_the_arm_that_uses_them() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let files = BTreeMap::from([("redirect-db", b"one".to_vec())]);
        let wanted = serve(listener, Arc::new(files)).unwrap();
        assert!(ask(address, "/redirect-db.hsdx").ends_with("\r\n\r\none"));
        for other in ["/server-db.hsdx", "/", "/../redirect-db", "redirect-db.hsdx"] {
            assert!(ask(address, other).starts_with("HTTP/1.1 404"), "{other}");
        }
        drop(wanted);
        until("the server's end", || TcpStream::connect(address).is_err());
    }

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}
