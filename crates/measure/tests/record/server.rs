//! A small server of pages that misbehave.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use openssl::base64;
use openssl::sha::sha1;

/// Constant of a WebSocket's handshake (RFC 6455 section 1.3).
const WEB_SOCKET: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Serves until the process ends; written out it is its address.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Server {
    /// Returns how often it was asked for a path so far.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|requests| *requests == path).count()
    }
}

pub(crate) fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server { address, requests: Arc::default() };
    let requests = Arc::clone(&server.requests);
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let requests = Arc::clone(&requests);
            thread::spawn(move || serve(stream, &requests));
        }
    });
    server
}

fn serve(stream: TcpStream, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        requests.lock().unwrap().push(path.clone());
        line.clear();
        // The rest of the head.
        let mut key = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(value) = line.strip_prefix("Sec-WebSocket-Key: ") {
                value.trim().clone_into(&mut key);
            }
            line.clear();
        }
        line.clear();
        if path.ends_with("/never") {
            thread::sleep(Duration::from_secs(3600));
        }
        match path.as_str() {
            "/socket" => return endless(&stream, &web_socket(&key), b"\x81\x01x"),
            "/stream" => {
                let events = head("200 OK", "Content-Type: text/event-stream\r\n");
                return endless(&stream, &events, b"data: x\n\n");
            }
            _ => {}
        }
        if (&stream).write_all(&answer(&path)).is_err() {
            return;
        }
    }
}

/// Sends `head`, and then `piece` until the client has gone.
fn endless(mut stream: &TcpStream, head: &[u8], piece: &[u8]) {
    let mut written = stream.write_all(head);
    while written.is_ok() {
        thread::sleep(Duration::from_millis(5));
        written = stream.write_all(piece);
    }
}

fn web_socket(key: &str) -> Vec<u8> {
    let accept = base64::encode_block(&sha1(format!("{key}{WEB_SOCKET}").as_bytes()));
    let fields =
        format!("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n");
    head("101 Switching Protocols", &fields)
}

fn html(text: &str) -> Vec<u8> {
    ok("text/html", &format!("<!doctype html><link rel=icon href='data:,'>{text}"))
}

fn answer(path: &str) -> Vec<u8> {
    match path {
        "/plain" => html("<p>Hello"),
        // Forty that come, and one that does not.
        "/mostly" => html(&(images(40) + "<img src=/never>")),
        "/hardly" => html(&(images(3) + "<img src=/x/never><img src=/y/never>")),
        "/polls" => html(&(images(40) + "<script>setInterval(() => fetch('/poll'), 300)</script>")),
        "/rushes" => {
            let script = "const on = () => fetch('/poll').then(on); on()";
            html(&format!("{}<script>{script}</script>", images(40)))
        }
        "/streams" => html(&(images(40) + "<script>new EventSource('/stream')</script>")),
        "/chats" => {
            html(&(images(40) + "<script>new WebSocket(`ws://${location.host}/socket`)</script>"))
        }
        // Events of DevTools, and nothing else.
        "/floods" => {
            let script = "setInterval(() => { for (let i = 0; i < 100; i++) eval(i + '+' + \
                Math.random()) }, 5)";
            html(&format!("{}<script>{script}</script>", images(3)))
        }
        // A message of 70 MB, and one with half of a pair of UTF-16, which asks for more.
        "/shouts" => {
            html("<script>eval('1//# sourceURL=' + 'x'.repeat(70 << 20))</script><img src=/i1.svg>")
        }
        "/halves" => html("<script>eval('fetch(\"/poll\")//# sourceURL=a\\ud800')</script>"),
        "/circle" => head("302 Found", "Location: /circle\r\nContent-Length: 0\r\n"),
        "/ever-on" => {
            html("<script>setTimeout(() => location = '/ever-on?' + Math.random(), 20)</script>")
        }
        "/download" => head(
            "200 OK",
            "Content-Type: application/zip\r\nContent-Disposition: attachment\r\nContent-Length: \
                0\r\n",
        ),
        "/talks" => {
            html("<script>alert('hello'); window.open('/plain'); confirm('really?')</script>")
        }
        "/opens" => html(&(images(1) + "<script>window.open('/plain')</script>")),
        "/saves" => html("<p>Hello<a id=a href=/download download></a><script>a.click()</script>"),
        "/nothing" => head("204 No Content", ""),
        path if path.starts_with("/ever-on") => answer("/ever-on"),
        path if path.starts_with("/i") => {
            ok("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'/>")
        }
        "/poll" => ok("text/plain", "."),
        _ => head("404 Not Found", "Content-Length: 0\r\n"),
    }
}

fn images(count: usize) -> String {
    (0..count).map(|number| format!("<img src=/i{number}.svg>")).collect()
}

fn ok(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let fields = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
    [head("200 OK", &fields), body.into()].concat()
}

fn head(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}\r\n").into_bytes()
}
