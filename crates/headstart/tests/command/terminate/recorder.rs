//! An origin that records requests byte for byte, and responds as a test likes.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::edge::until;

/// Return value of a responder that closes the connection.
pub(crate) const CLOSE: bool = false;

/// Takes connections as long as the test runs.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    recorded: Arc<Mutex<Vec<Recorded>>>,
    begun: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// The head, with the empty line behind it.
    pub(crate) head: String,
    /// Without chunks.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
    /// True if the body came to its end.
    pub(crate) is_whole: bool,
    /// Number of requests before it on its connection.
    pub(crate) position: usize,
}

impl Recorded {
    pub(crate) fn is(&self, method_and_path: &str) -> bool {
        self.head.starts_with(&format!("{method_and_path} HTTP/1.1\r\n"))
    }

    /// All values of a header, which edges write in small letters.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
    }

    fn read_body(&mut self, reader: &mut impl BufRead) {
        let length = self.values("content-length").first().map(|length| length.parse().unwrap());
        self.is_whole = match (self.values("transfer-encoding").as_slice(), length) {
            (["chunked"], None) => self.read_chunks(reader).is_some(),
            ([], Some(length)) => {
                self.body.resize(length, 0);
                reader.read_exact(&mut self.body).is_ok()
            }
            ([], None) => true,
            _ => panic!("it has two ends, or none: {}", self.head),
        };
    }

    /// Reads the chunks; `None` if they are cut off.
    fn read_chunks(&mut self, reader: &mut impl BufRead) -> Option<()> {
        loop {
            let size = usize::from_str_radix(&line(reader)?, 16).expect("a size and no more");
            if size == 0 {
                break;
            }
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            assert!(chunk.ends_with(b"\r\n"));
            self.body.extend_from_slice(&chunk[..size]);
        }
        loop {
            match line(reader)?.as_str() {
                "" => return Some(()),
                trailer => self.trailers.push_str(trailer),
            }
        }
    }
}

/// A line without its end; none if that is not there.
fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_suffix(b"\r\n")?;
    Some(String::from_utf8(line.to_vec()).unwrap())
}

impl Recorder {
    /// Calls `respond` when a request has come; it returns true to keep the connection.
    pub(crate) fn start(
        respond: impl Fn(&Recorded, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let recorder = Self {
            address,
            recorded: Arc::default(),
            begun: Arc::default(),
            closed: Arc::default(),
        };
        let (respond, all) = (Arc::new(respond), Arc::clone(&recorder.recorded));
        let (heads, closed) = (Arc::clone(&recorder.begun), Arc::clone(&recorder.closed));
        thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let (all, heads) = (Arc::clone(&all), Arc::clone(&heads));
                let (respond, closed) = (Arc::clone(&respond), Arc::clone(&closed));
                thread::spawn(move || {
                    serve(tcp, &heads, &all, &*respond);
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        recorder
    }

    /// Responds `ok` to everything.
    pub(crate) fn ok() -> Self {
        Self::start(|_, tcp| respond_ok(tcp))
    }

    /// Responds to everything with these bytes.
    pub(crate) fn sending(bytes: &'static [u8], keeps: bool) -> Self {
        Self::start(move |_, tcp| {
            let _ = tcp.write_all(bytes);
            keeps
        })
    }

    /// Returns the option for an edge that sends everything there.
    pub(crate) fn option(&self) -> String {
        format!("--origin=http://{}", self.address)
    }

    /// Returns the option for one name alone.
    pub(crate) fn option_for(&self, name: &str) -> String {
        format!("--origin={name}=http://{}", self.address)
    }

    /// Returns all requests so far.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap().clone()
    }

    /// Returns the number of requests that have begun to come.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of connections it has closed.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the number of requests for `METHOD PATH`.
    pub(crate) fn requests(&self, method_and_path: &str) -> usize {
        self.recorded().iter().filter(|recorded| recorded.is(method_and_path)).count()
    }

    /// Returns the newest request, once there are `count`.
    pub(crate) fn newest(&self, count: usize) -> Recorded {
        until("the origin has its requests", || self.recorded().len() >= count);
        let mut recorded = self.recorded();
        assert_eq!(recorded.len(), count);
        recorded.pop().unwrap()
    }
}

/// Sends the response of [`Recorder::ok`].
pub(crate) fn respond_ok(tcp: &mut TcpStream) -> bool {
    tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_ok()
}

fn serve(
    mut tcp: TcpStream,
    begun: &AtomicUsize,
    all: &Mutex<Vec<Recorded>>,
    respond: &impl Fn(&Recorded, &mut TcpStream) -> bool,
) {
    let mut reader = BufReader::new(tcp.try_clone().unwrap());
    for position in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(reader.read_until(b'\n', &mut head), Ok(1..)) {
                assert!(head.is_empty(), "a head was cut off");
                return;
            }
        }
        begun.fetch_add(1, Ordering::Relaxed);
        let head = String::from_utf8(head).unwrap();
        let mut recorded = Recorded { head, position, ..Recorded::default() };
        recorded.read_body(&mut reader);
        all.lock().unwrap().push(recorded.clone());
        if !recorded.is_whole || !respond(&recorded, &mut tcp) {
            return;
        }
    }
}
