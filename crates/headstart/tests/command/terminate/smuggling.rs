//! Requests that two servers could take for different ones (RFC 9112 section 11.2).

use std::io::{Read, Write};

use super::recorder::{Recorded, Recorder};
use super::tools::tls;
use crate::edge::{Edge, until};
use crate::files::Files;

const NAME: &str = "www.example.com";

/// Request that would be smuggled.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: www.example.com\r\n\r\n";

fn site(files: &Files) -> (Recorder, Edge) {
    let origin = Recorder::ok();
    files.issue(NAME);
    let edge = Edge::start(files, &[NAME], &[&origin.option_for(NAME)]);
    (origin, edge)
}

/// A request with this head and body.
fn post(lines: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n{lines}\r\n{body}")
}

/// Returns the edge's response to `bytes`, until it closes.
fn says(edge: &Edge, bytes: &str) -> String {
    let mut stream = tls(edge, NAME);
    stream.write_all(bytes.as_bytes()).unwrap();
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn ambiguous_requests_are_refused() {
    let files = Files::new();
    let (origin, edge) = site(&files);
    let chunks = "0\r\n\r\n";
    for (what, status, bytes) in [
        ("two lengths", 400, post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!")),
        ("a list of lengths", 400, post("Content-Length: 5, 6\r\n", "hello!")),
        ("a signed length", 400, post("Content-Length: +5\r\n", "hello")),
        ("a hexadecimal length", 400, post("Content-Length: 0x5\r\n", "hello")),
        ("an endless length", 400, post("Content-Length: 99999999999999999999\r\n", "hello")),
        ("a blank before the colon", 400, post("Content-Length : 5\r\n", "hello")),
        ("a folded line", 400, post("X: a\r\n b\r\n", "")),
        ("a line that begins with a blank", 400, post(" Content-Length: 5\r\n", "hello")),
        ("no colon", 400, post("X\r\n", "")),
        ("a zero byte", 400, post("X: a\0b\r\n", "")),
        ("a carriage return in a line", 400, post("X: a\rContent-Length: 5\r\n", "hello")),
        ("another coding behind chunked", 400, post("Transfer-Encoding: chunked, x\r\n", chunks)),
        ("no coding that is known", 400, post("Transfer-Encoding: xchunked\r\n", chunks)),
        ("a vertical tab", 400, post("Transfer-Encoding: \x0bchunked\r\n", chunks)),
        ("another coding before", 501, post("Transfer-Encoding: gzip, chunked\r\n", chunks)),
        ("chunked twice", 501, post("Transfer-Encoding: chunked, chunked\r\n", chunks)),
        (
            "chunked in two lines",
            501,
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunks),
        ),
        (
            "chunks in HTTP/1.0",
            400,
            post("Transfer-Encoding: chunked\r\n", chunks).replace("HTTP/1.1", "HTTP/1.0"),
        ),
        ("no version that is known", 400, post("", "").replace("HTTP/1.1", "HTTP/1.2")),
        ("two hosts", 400, post("Host: other.example.com\r\n", "")),
        ("no path", 400, post("", "").replace("POST / ", &format!("POST {NAME}:443 "))),
        (
            "another host in the target",
            421,
            post("", "").replace("POST / ", "POST https://other.example.com/ "),
        ),
        ("a blank in the target", 400, post("", "").replace("POST / ", "POST /a b ")),
    ] {
        let text = says(&edge, &format!("{bytes}{SMUGGLED}"));
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{what}: {text}");
    }
    assert!(origin.recorded().is_empty(), "{:?}", origin.recorded());
}

/// The one request that the origin gets for `bytes`, of which the edge takes no second one.
fn one(origin: &Recorder, edge: &Edge, bytes: &str) -> Recorded {
    let before = origin.recorded().len();
    let text = says(edge, bytes);
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 1, "{text}");
    let recorded = origin.newest(before + 1);
    let lines = recorded.head.replace("\r\n", "");
    assert!(!lines.contains(['\r', '\n']), "{:?}", recorded.head);
    assert!(recorded.is_whole && recorded.trailers.is_empty());
    recorded
}

#[test]
fn a_request_ends_where_the_edge_says() {
    let files = Files::new();
    let (origin, edge) = site(&files);
    let one = |bytes: &str| one(&origin, &edge, bytes);

    // A recipient that believes the length sees a second request. RFC 9112 section 6.3: it does not
    // count, and no more is taken of the connection.
    let both = "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n";
    let open = |lines| post(lines, "0\r\n\r\n").replace("Connection: close\r\n", "");
    for lines in [both, "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n"] {
        let recorded = one(&format!("{}{SMUGGLED}", open(lines)));
        assert_eq!(recorded.values("transfer-encoding"), ["chunked"]);
        assert!(recorded.values("content-length").is_empty() && recorded.body.is_empty());
    }
    // Lines may end without a carriage return; the edge adds it towards the origin.
    let recorded = one(&post("Content-Length: 5\r\n", "hello").replace("\r\n", "\n"));
    assert_eq!((recorded.values("content-length"), &recorded.body[..]), (vec!["5"], &b"hello"[..]));
    let recorded = one(&post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"));
    assert_eq!(recorded.values("content-length"), ["5"]);
    let recorded = one(&post("Connection: content-length\r\nContent-Length: 5\r\n", "hello"));
    assert_eq!((recorded.values("content-length"), &recorded.body[..]), (vec!["5"], &b"hello"[..]));
    let recorded = one(&post("Transfer-Encoding: chunked\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n"));
    assert_eq!(recorded.body, b"hello");
    let recorded = one(&post("", ""));
    assert_eq!(recorded.values("content-length"), ["0"]);
    // A message that the client library would not show.
    let get = |text: String| text.replace("POST", "GET");
    let recorded = one(&get(post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n")));
    assert_eq!(recorded.body, b"hello");
    let recorded = one(&get(post("Content-Length: 5\r\n", "hello")));
    assert_eq!(recorded.body, b"hello");
    assert_eq!(origin.requests("GET /smuggled"), 0);
}

#[test]
fn trailers_of_a_request_claim_nothing() {
    let files = Files::new();
    let (origin, edge) = site(&files);
    let lines = "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, Early-Data\r\n";
    let trailers = "X-Forwarded-For: 192.0.2.66\r\nEarly-Data: 1\r\n";
    let recorded = one(&origin, &edge, &post(lines, &format!("5\r\nhello\r\n0\r\n{trailers}\r\n")));
    assert_eq!(recorded.body, b"hello");
    assert!(recorded.values("trailer").is_empty(), "{}", recorded.head);
    assert_eq!(recorded.values("x-forwarded-for"), ["127.0.0.1"]);
}

#[test]
fn a_body_that_is_malformed_is_not_made_whole() {
    let files = Files::new();
    let (origin, edge) = site(&files);
    let bodies = [
        "5\r\nhelloXX0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ];
    for body in bodies {
        says(&edge, &format!("{}{SMUGGLED}", post("Transfer-Encoding: chunked\r\n", body)));
    }
    until("each has its end", || origin.recorded().len() == origin.begun());
    for recorded in origin.recorded() {
        assert!(recorded.head.starts_with("POST /") && !recorded.is_whole, "{recorded:?}");
    }
}

#[test]
fn a_body_that_is_cut_off_is_not_made_whole() {
    let files = Files::new();
    let (origin, edge) = site(&files);
    let cut = [
        ("POST /chunks", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"),
        ("POST /length", "Content-Length: 6\r\n", "hello"),
    ];
    for (what, lines, body) in cut {
        let mut stream = tls(&edge, NAME);
        let request = post(lines, body).replace("POST /", what);
        let before = origin.begun();
        stream.write_all(request.as_bytes()).unwrap();
        until("the origin is asked", || origin.begun() > before);
        drop(stream);
        until("the origin sees its end", || origin.requests(what) == 1);
    }
    assert!(origin.recorded().iter().all(|recorded| !recorded.is_whole));
}
