//! HTTP through the edge: the requests that origins get, and the responses that clients get.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use openssl::ssl::{ShutdownResult, SslStream};

use super::tools::{curl, read_until, request, s_client, tls};
use crate::edge::{Edge, closed, until};
use crate::files::Files;
use crate::origin::{Origin, pattern, sum};

const NAME: &str = "www.example.com";

/// An edge before an origin for [`NAME`].
fn site(files: &Files, arguments: &[&str]) -> (Origin, Edge) {
    let origin = Origin::start();
    files.issue(NAME);
    let before = format!("--origin={NAME}={}", origin.http());
    let mut all = vec![before.as_str()];
    all.extend(arguments);
    let edge = Edge::start(files, &[NAME], &all);
    (origin, edge)
}

#[test]
fn both_versions_of_http_tell_the_origin_who_asks() {
    let files = Files::new();
    let (origin, edge) = site(&files, &[]);
    for (flag, version, via) in [("--http1.1", "1.1", "1.1"), ("--http2", "2", "2")] {
        let flags =
            [flag, "-w", "%{http_version}", "-H", "X-Forwarded-For: 192.0.2.66", "-H", "a: b"];
        let text = String::from_utf8(curl(&edge, &files, NAME, "/head?q=1", &flags).ok()).unwrap();
        assert!(text.starts_with("GET /head?q=1\n") && text.ends_with(version), "{text}");
        for line in [
            "a: b",
            &format!("host: {}", edge.at(NAME)),
            "forwarded: for=127.0.0.1;proto=https",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-proto: https",
            &format!("via: {via} headstart"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("192.0.2.66") && !text.contains("early-data"), "{text}");
    }
    assert_eq!(origin.requests("GET /head"), 2);
    let requests =
        |protocol| edge.count("headstart_http_requests_total", &[protocol, "status=\"2xx\""]);
    assert_eq!((requests("protocol=\"http/1.1\""), requests("protocol=\"h2\"")), (1, 1));
    until("the handshakes are counted", || {
        edge.count("headstart_tls_handshakes_total", &["result=\"done\"", "1.3"]) == 2
    });
    until("each request is logged", || edge.logged("method=GET host=\"www.example.com") == 2);
    let log = edge.log();
    let mut ours = log.lines().filter(|line| line.contains("headstart::"));
    assert!(ours.all(|line| !line.contains("q=1")), "queries are not logged");
}

#[test]
fn connections_to_the_origin_are_kept() {
    let files = Files::new();
    let (origin, edge) = site(&files, &[]);
    // A connection may come back after the client has its response, and expires after a while.
    until("four requests find a connection", || {
        curl(&edge, &files, NAME, "/head", &[]).ok();
        origin.requests("GET /head") >= origin.connections() + 4
    });
}

#[test]
fn large_bodies_pass_both_ways() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    let body = pattern(20_000_000);
    let upload = files.write("upload", &body, 0o600);
    let from = format!("@{upload}");
    for version in ["--http1.1", "--http2"] {
        let output = curl(&edge, &files, NAME, "/upload", &[version, "--data-binary", &from]).ok();
        assert_eq!(String::from_utf8(output).unwrap(), sum(&body), "{version}");
        let chunked = [version, "-H", "Transfer-Encoding: chunked", "--data-binary", &from];
        let output = curl(&edge, &files, NAME, "/upload", &chunked).ok();
        assert_eq!(String::from_utf8(output).unwrap(), sum(&body), "{version}, chunked");
        let down = curl(&edge, &files, NAME, "/bytes/20000000", &[version]).ok();
        assert!(down == body, "{version}");
        let head = curl(&edge, &files, NAME, "/bytes/1000", &[version, "-I"]).text();
        assert!(head.contains("content-length: 1000"), "{head}");
    }
    until("bytes are counted", || {
        edge.count("headstart_relayed_bytes_total", &["to_client"]) > 40_000_000
            && edge.count("headstart_relayed_bytes_total", &["to_server"]) > 80_000_000
    });
}

#[test]
fn many_requests_share_a_connection_of_http_2() {
    let files = Files::new();
    let (origin, edge) = site(&files, &[]);
    let all: Vec<_> =
        (0..50).map(|number| format!("https://{}/head/{number}", edge.at(NAME))).collect();
    let mut flags = vec!["--http2", "--parallel", "-o", "/dev/null"];
    for url in &all {
        flags.extend([url.as_str(), "-o", "/dev/null"]);
    }
    curl(&edge, &files, NAME, "/head/last", &flags).ok();
    assert_eq!((0..50).filter(|n| origin.requests(&format!("GET /head/{n}")) == 1).count(), 50);
    assert!(edge.count("headstart_tls_handshakes_total", &[]) < 10);
}

#[test]
fn an_origin_that_is_down_is_502_and_one_that_is_slow_504() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &["--origin-response-timeout=300ms"]);
    let slow = curl(&edge, &files, NAME, "/never", &["-w", "%{http_code}"]).text();
    assert_eq!(slow, "504: the server behind this one takes too long\n504");
    assert_eq!(edge.count("headstart_origin_failures_total", &["reason=\"late\""]), 1);

    let down = format!("--origin=http://{}", closed());
    let edge = Edge::start(&files, &[NAME], &[&down]);
    for version in ["--http1.1", "--http2"] {
        let output = curl(&edge, &files, NAME, "/", &[version, "-w", "%{http_code}"]).text();
        assert_eq!(output, "502: the server behind this one cannot be reached\n502");
    }
    assert_eq!(edge.count("headstart_origin_failures_total", &["reason=\"unreachable\""]), 2);
    until("it says so", || edge.logged("cannot connect to the origin") >= 1);
}

/// Accepts connections and closes them after `response`; returns the edge's option, and a channel
/// of requests.
fn rude(response: &'static [u8]) -> (String, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, seen) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            read_until(&mut tcp, b"\r\n\r\n");
            let _ = taken.send(());
            let _ = tcp.write_all(response);
        }
    });
    (format!("--origin=http://{address}"), seen)
}

#[test]
fn a_request_that_an_origin_breaks_off_is_retried_only_if_that_is_harmless() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, seen) = rude(b"");
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    let get = curl(&edge, &files, NAME, "/", &["-w", "%{http_code}"]).text();
    assert_eq!(get, "502: the server behind this one broke off\n502");
    assert_eq!(seen.try_iter().count(), 2);
    curl(&edge, &files, NAME, "/", &["-X", "POST"]).ok();
    assert_eq!(seen.try_iter().count(), 1);
    // Over HTTP/2 some versions of curl fail if the response is there before the body has left.
    curl(&edge, &files, NAME, "/", &["--http1.1", "-X", "PUT", "-d", "body"]).ok();
    assert_eq!(seen.try_iter().count(), 1);
}

#[test]
fn a_response_that_is_cut_short_is_not_made_whole() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, _seen) = rude(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    for version in ["--http1.1", "--http2"] {
        let output = curl(&edge, &files, NAME, "/", &[version]);
        assert_ne!(output.code, Some(0), "{version}: {}", output.text());
    }
}

#[test]
fn a_websocket_passes() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    let mut stream = tls(&edge, NAME);
    write!(
        stream,
        "GET /upgrade HTTP/1.1\r\nhost: {NAME}\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n"
    )
    .unwrap();
    let head = String::from_utf8(read_until(&mut stream, b"\r\n\r\n")).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: websocket") && head.contains("connection: upgrade"), "{head}");
    for size in [1, 1000, 300_000] {
        let sent = pattern(size);
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; size];
        std::io::Read::read_exact(&mut stream, &mut back).unwrap();
        assert!(back == sent, "{size}");
    }
    close(stream);
    until("the tunnel is closed", || edge.count("headstart_connections_active", &[]) == 0);
    assert_eq!(edge.count("headstart_connections_total", &["result=\"closed\""]), 1);
}

/// Ends the stream in order and waits for the other side to do so.
fn close(mut stream: SslStream<std::net::TcpStream>) {
    assert_eq!(stream.shutdown().unwrap(), ShutdownResult::Sent);
    let mut buffer = [0; 16];
    assert_eq!(std::io::Read::read(&mut stream, &mut buffer).unwrap(), 0);
}

#[test]
fn an_upgrade_that_the_origin_does_not_want_is_an_ordinary_request() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    let flags = ["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket"];
    let text = String::from_utf8(curl(&edge, &files, NAME, "/head", &flags).ok()).unwrap();
    assert!(
        text.contains("upgrade: websocket\n") && text.contains("connection: upgrade\n"),
        "{text}"
    );
}

#[test]
fn a_name_of_another_origin_is_misdirected() {
    let (files, other) = (Files::new(), Origin::start());
    let origin = Origin::start();
    files.issue(NAME);
    files.issue("other.example.com");
    let origins = format!("--origin={NAME}={},other.example.com={}", origin.http(), other.http());
    let edge = Edge::start(&files, &[NAME, "other.example.com"], &[&origins]);
    let code = |host: &str| {
        let host = format!("Host: {host}");
        curl(&edge, &files, NAME, "/head", &["-H", &host, "-o", "/dev/null", "-w", "%{http_code}"])
            .text()
    };
    assert_eq!(code(NAME), "200");
    assert_eq!(code("other.example.com"), "421");
    assert_eq!(code("unknown.example.com"), "421");
    assert_eq!((origin.requests("GET /head"), other.requests("GET /head")), (1, 0));
    curl(&edge, &files, "other.example.com", "/head", &[]).ok();
    assert_eq!(other.requests("GET /head"), 1);
}

#[test]
fn heads_that_are_too_large_or_malformed_are_refused() {
    let files = Files::new();
    let (origin, edge) = site(&files, &[]);
    let large = format!("x: {}", "y".repeat(40_000));
    let flags = ["--http1.1", "-H", &large, "-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(curl(&edge, &files, NAME, "/head", &flags).text(), "431");
    assert_ne!(curl(&edge, &files, NAME, "/head", &["--http2", "-f", "-H", &large]).code, Some(0));
    for (bad, status) in [
        ("GET /head HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned(), "400"),
        (request("GET", "/head", "a b"), "400"),
        (request("CONNECT", "a.example:443", NAME), "501"),
    ] {
        let output = s_client(&edge, NAME, &[], &bad);
        assert!(output.contains(&format!("HTTP/1.1 {status}")), "{bad}{output}");
    }
    assert_eq!(origin.requests("GET /head"), 0);
}

#[test]
fn versions_of_tls_are_as_configured() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    curl(&edge, &files, NAME, "/head", &["--tls-max", "1.2"]).ok();
    until("the handshake is counted", || {
        edge.count("headstart_tls_handshakes_total", &["version=\"1.2\""]) == 1
    });
    let origin = format!("--origin=http://{}", closed());
    let strict = Edge::start(&files, &[NAME], &[&origin, "--min-tls=1.3"]);
    assert_eq!(curl(&strict, &files, NAME, "/", &["--tls-max", "1.2"]).code, Some(35));
    until("the failure is counted", || {
        strict.count("headstart_tls_handshakes_total", &["result=\"failed\""]) == 1
    });
}
