//! An origin that reads HTTP/1.1 by the letter of RFC 9112, and takes nothing else.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answer to every request.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Looks without any change after which nothing more is expected.
const QUIET: usize = 12;

/// Fields of one connection, and what a client must not say in the edge's place.
const NOT_PASSED: [&str; 18] = [
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
    "content_length",
    "transfer.encoding",
    "x_forwarded_for",
    "x-forwarded-host",
    "x-real-ip",
    "client-cert",
    "x-original-url",
    "proxy",
    ":method",
    ":path",
    ":authority",
    ":scheme",
];

/// The connections, which all stay open until their bytes are taken.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<Vec<Connection>>>);

struct Connection {
    bytes: Vec<u8>,
    task: tokio::task::JoinHandle<()>,
}

pub(super) struct Origin {
    pub(super) address: SocketAddr,
    connections: Connections,
}

impl Origin {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        let all = connections.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                // A reset, or the ports would be used up: each rests for a minute otherwise.
                tcp.set_zero_linger().unwrap();
                let mut locked = all.0.lock().unwrap();
                let task = tokio::spawn(serve(tcp, all.clone(), locked.len()));
                locked.push(Connection { bytes: Vec::new(), task });
            }
        });
        Self { address, connections }
    }

    /// Waits until nothing comes any more.
    pub(super) async fn quiet(&self) {
        let mut last = (0, 0);
        let mut looks = 0;
        while looks < QUIET {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let connections = self.connections.0.lock().unwrap();
            let now = (connections.len(), connections.iter().map(|one| one.bytes.len()).sum());
            looks = if now == last { looks + 1 } else { 0 };
            last = now;
        }
    }

    /// Ends the connections, and returns what was asked on them.
    pub(super) fn take(&self) -> Vec<Asked> {
        let connections = std::mem::take(&mut *self.connections.0.lock().unwrap());
        let all = connections.into_iter().flat_map(|one| {
            one.task.abort();
            requests(&one.bytes)
        });
        all.collect()
    }
}

async fn serve(mut tcp: TcpStream, all: Connections, index: usize) {
    let mut piece = [0; 4096];
    let mut answered = 0;
    while let Ok(length @ 1..) = tcp.read(&mut piece).await {
        let whole = {
            let mut connections = all.0.lock().unwrap();
            let bytes = &mut connections[index].bytes;
            bytes.extend_from_slice(&piece[..length]);
            requests(bytes).iter().filter(|one| one.is_whole).count()
        };
        for _ in answered..whole {
            let _ = tcp.write_all(ANSWER).await;
        }
        answered = whole;
    }
}

/// A request, the last of a connection perhaps without its end.
pub(super) struct Asked {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) is_chunked: bool,
    pub(super) is_whole: bool,
}

/// Reads requests by the letter, as far as they have come.
fn requests(mut bytes: &[u8]) -> Vec<Asked> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
        let mut request = head(&bytes[..end + 2]);
        bytes = &bytes[end + 4..];
        let length = request.one("content-length").map(|length| length.parse::<usize>().unwrap());
        let coding = request.one("transfer-encoding");
        assert!(length.is_none() || coding.is_none(), "two ways to find the end");
        assert!(coding.is_none_or(|coding| coding == "chunked"));
        request.is_chunked = coding.is_some();
        let rest = match (request.is_chunked, length) {
            (true, _) => chunks(bytes, &mut request.body),
            (false, None) => Some(bytes),
            (false, Some(length)) => {
                request.body = bytes[..length.min(bytes.len())].to_vec();
                bytes.get(length..)
            }
        };
        request.is_whole = rest.is_some();
        all.push(request);
        bytes = rest.unwrap_or_default();
    }
    // What is no whole head yet must be the beginning of one.
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    assert!(bytes.is_empty() || letters > 0 || !bytes.contains(&b' '), "{bytes:?}");
    all
}

/// Reads the lines of a head.
fn head(lines: &[u8]) -> Asked {
    let text = std::str::from_utf8(lines);
    let text = text.map_or_else(|_| String::from_utf8_lossy(lines).into_owned(), str::to_owned);
    let mut lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
    let words: Vec<_> = lines.next().unwrap().split(' ').collect();
    let &[method, target, "HTTP/1.1"] = &words[..] else { panic!("no request: {words:?}") };
    let fields = lines.map(|line| {
        assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("no field: {line:?}"));
        (name.to_ascii_lowercase(), value.to_owned())
    });
    let (method, target) = (method.to_owned(), target.to_owned());
    let fields = fields.collect();
    Asked { method, target, fields, body: Vec::new(), is_chunked: false, is_whole: false }
}

/// Reads chunks into `body`; returns what is behind the last.
fn chunks<'a>(mut bytes: &'a [u8], body: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let end = bytes.windows(2).position(|part| part == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        assert!(size.bytes().all(|byte| byte.is_ascii_hexdigit()), "{size:?}");
        let size = usize::from_str_radix(size, 16).unwrap();
        bytes = &bytes[end + 2..];
        let data = bytes.get(..size)?;
        let behind = bytes.get(size..size + 2)?;
        // Behind the last would be trailers, which do not pass.
        assert_eq!(behind, b"\r\n");
        body.extend_from_slice(data);
        bytes = &bytes[size + 2..];
        if size == 0 {
            return Some(bytes);
        }
    }
}

impl Asked {
    fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let found = self.fields.iter().filter(move |(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field that is there once or not at all.
    fn one(&self, name: &str) -> Option<&str> {
        let mut all = self.all(name);
        let one = all.next();
        assert_eq!(all.next(), None, "{name} twice");
        one
    }

    /// Checks the head: its words, the host, and what the edge alone says.
    pub(super) fn check(&self) {
        assert!(is_token(&self.method) && self.method != "CONNECT", "{}", self.method);
        let target = &self.target;
        assert!(target.starts_with('/') || target == "*", "{target}");
        assert!(target.bytes().all(|byte| byte > b' ' && byte != 0x7f), "{target}");
        for (name, _) in &self.fields {
            assert!(is_token(name) && !NOT_PASSED.contains(&name.as_str()), "{name}");
        }
        let host = self.one("host").expect("a host").to_ascii_lowercase();
        let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
        assert_eq!(name.strip_suffix('.').unwrap_or(name), "a.test");
        assert_eq!(self.one("forwarded"), Some("for=127.0.0.1;proto=https"));
        assert_eq!(self.one("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(self.one("x-forwarded-proto"), Some("https"));
        assert!(self.all("via").last().expect("a Via").ends_with(" headstart"));
        assert!(self.one("early-data").is_none_or(|early| early == "1"));
        assert!(self.all("cookie").count() <= 1);
        assert!(self.one("connection").is_none_or(|one| one == "upgrade"));
        assert_eq!(self.one("connection").is_some(), self.one("upgrade").is_some());
        let upgrade = self.one("upgrade").unwrap_or_default().to_ascii_lowercase();
        assert!(!upgrade.contains("h2") && !upgrade.contains("http"), "{upgrade}");
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
