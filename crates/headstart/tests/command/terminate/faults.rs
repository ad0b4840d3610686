//! Origins that respond early, late, wrongly, or not at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::recorder::{CLOSE, Recorder, respond_ok};
use super::tools::{curl, read_until, start_curl, tls};
use crate::edge::{Edge, PATIENCE, until};
use crate::files::Files;

const NAME: &str = "www.example.com";
const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

fn site(files: &Files, origin: &Recorder) -> Edge {
    files.issue(NAME);
    Edge::start(files, &[NAME], &[&origin.option()])
}

/// Fetches `/` with curl; returns the body and the status.
fn fetch(edge: &Edge, files: &Files, arguments: &[&str]) -> String {
    curl(edge, files, NAME, "/", &[&["-w", " %{http_code}"][..], arguments].concat()).text()
}

#[test]
fn malformed_responses_become_502() {
    let large: &[u8] = Vec::leak(
        [b"HTTP/1.1 200 OK\r\nx: ", &[b'y'; 300_000][..], b"\r\ncontent-length: 0\r\n\r\n"]
            .concat(),
    );
    for (what, response) in [
        ("garbage", &b"\x16\x03\x01\x02\x00\x01\r\n\r\n"[..]),
        ("an empty line and no more", b"\r\n\r\n"),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le"),
        ("a version that nobody knows", b"HTTP/3.0 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        ("a folded line", b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n"),
        ("another coding", b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("a protocol unasked for", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
        ("a head without end", large),
    ] {
        let (files, origin) = (Files::new(), Recorder::sending(response, CLOSE));
        let edge = site(&files, &origin);
        for version in VERSIONS {
            let text = fetch(&edge, &files, &[version]);
            assert_eq!(text, "502: the server behind this one broke off\n 502", "{what}");
        }
        let broken = edge.count("headstart_origin_failures_total", &["reason=\"broken\""]);
        assert_eq!(broken, 2, "{what}");
        let words =
            format!("no response of the origin origin={} reason=\"broken\"", origin.address);
        until("it is said", || edge.logged(&words) > 0);
    }
}

#[test]
fn a_response_passes_whatever_stands_around_it() {
    for (what, response, expected) in [
        (
            "informational responses before it",
            &b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
               HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..],
            "hello 200",
        ),
        (
            "a length that does not count",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n\
              5\r\nhello\r\n0\r\n\r\n",
            "hello 200",
        ),
        (
            "the same length twice",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
            "hello 200",
        ),
        ("no length", b"HTTP/1.0 200 OK\r\nconnection: x\r\n\r\nhello", "hello 200"),
        ("no body", b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", " 204"),
        ("an unknown status", b"HTTP/1.1 599 Hm\r\ncontent-length: 5\r\n\r\nhello", "hello 599"),
    ] {
        let (files, origin) = (Files::new(), Recorder::sending(response, CLOSE));
        let edge = site(&files, &origin);
        for version in VERSIONS {
            assert_eq!(fetch(&edge, &files, &[version]), expected, "{what}, {version}");
        }
    }
}

#[test]
fn chunks_that_are_cut_off_are_not_made_whole() {
    let response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let (files, origin) = (Files::new(), Recorder::sending(response, CLOSE));
    let edge = site(&files, &origin);
    for version in VERSIONS {
        let output = curl(&edge, &files, NAME, "/", &[version]);
        assert_ne!(output.code, Some(0), "{version}: {}", output.text());
    }
    let words = format!("the origin broke off a response origin={} error=", origin.address);
    until("it is said", || edge.logged(&words) > 0);
}

/// Bytes behind a response go to nobody: they would pass for the response to the next request,
/// maybe another client's.
#[test]
fn bytes_behind_a_response_go_to_nobody() {
    let (files, origin) = (
        Files::new(),
        Recorder::start(|request, tcp| {
            if !request.is("HEAD /") {
                return respond_ok(tcp);
            }
            let response = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n";
            let behind = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\npoisoned";
            tcp.write_all(format!("{response}{behind}").as_bytes()).is_ok()
        }),
    );
    let edge = site(&files, &origin);
    for version in VERSIONS {
        assert!(curl(&edge, &files, NAME, "/", &["-I", version]).text().contains("length: 8"));
        assert_eq!(fetch(&edge, &files, &[version]), "ok 200");
    }
}

/// An origin that responds before it has read all, as one that echoes: its connection ends with the
/// upload.
#[test]
fn an_upload_that_goes_wrong_behind_the_head_of_the_response_is_not_the_origins_fault() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let option = format!("--origin=http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        read_until(&mut tcp, b"\r\n\r\n");
        let response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
        tcp.write_all(response).unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&option]);
    let mut stream = tls(&edge, NAME);
    let head = format!("POST / HTTP/1.1\r\nhost: {NAME}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(format!("{head}2\r\nab\r\n").as_bytes()).unwrap();
    read_until(&mut stream, b"hi\r\n");
    stream.write_all(b"zz\r\n").unwrap();
    let labels = ["limit=\"malformed_body\""];
    until("it is counted", || edge.count("headstart_limits_hit_total", &labels) == 1);
    assert_eq!(edge.logged("the origin broke off a response"), 0);
    assert_eq!(edge.count("headstart_origin_failures_total", &[]), 0);
}

/// The origin may close a kept connection at any time. It may have served a request that it read.
#[test]
fn only_an_idempotent_request_is_retried_when_its_connection_ends() {
    let (files, origin) = (
        Files::new(),
        Recorder::start(|request, tcp| if request.position == 0 { respond_ok(tcp) } else { CLOSE }),
    );
    let edge = site(&files, &origin);
    let bad_gateway = "502: the server behind this one broke off\n 502";
    for (flags, expected, times) in [
        // Over HTTP/2 some versions of curl fail if the response is there before the body has left.
        (&["--http1.1", "-X", "POST", "-d", "x"][..], bad_gateway, 1),
        (&["-X", "POST"], bad_gateway, 1),
        // It has a body, which is consumed.
        (&["--http1.1", "-X", "PUT", "-d", "x"], bad_gateway, 1),
        (&["-X", "DELETE"], "ok 200", 2),
        (&[], "ok 200", 2),
    ] {
        let (text, requests) = loop {
            // Leaves a connection on which another request is one too many, or finds the last
            // one's.
            while origin.recorded().last().is_none_or(|last| last.position > 0) {
                fetch(&edge, &files, &["-X", "OPTIONS"]);
            }
            let before = origin.recorded().len();
            let text = fetch(&edge, &files, flags);
            let new = origin.recorded().split_off(before);
            // The idle connection may have expired, or the retry may have found another one.
            if new[0].position > 0 && new[1..].iter().all(|again| again.position == 0) {
                break (text, new.len());
            }
        };
        assert_eq!((text.as_str(), requests), (expected, times), "{flags:?}");
    }
}

#[test]
fn a_connection_that_ended_while_nobody_used_it_costs_no_request() {
    let (files, origin) = (
        Files::new(),
        Recorder::start(|_, tcp| {
            respond_ok(tcp);
            tcp.shutdown(Shutdown::Write).unwrap();
            // The edge has seen it once it closes as well.
            let _ = tcp.read(&mut [0; 1]);
            CLOSE
        }),
    );
    let edge = site(&files, &origin);
    for number in 1..=10 {
        assert_eq!(fetch(&edge, &files, &["-X", "POST", "-d", "x"]), "ok 200");
        assert_eq!(origin.recorded().len(), number, "each was sent once");
        until("it is closed", || origin.closed() == number);
    }
}

#[test]
fn a_response_may_come_before_the_request_is_complete() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let origin = format!("--origin=http://{}", listener.local_addr().unwrap());
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                read_until(&mut tcp, b"\r\n\r\n");
                let head = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n";
                write!(tcp, "{head}connection: close\r\n\r\nless").unwrap();
                // Keep reading: closing now would reset, and the response might be lost.
                let _ = std::io::copy(&mut tcp, &mut std::io::sink());
            });
        }
    });
    let upload = format!("@{}", files.write("upload", &vec![b'x'; 5_000_000], 0o600));
    for version in VERSIONS {
        let text = fetch(&edge, &files, &[version, "--data-binary", &upload]);
        assert_eq!(text, "less 413", "{version}");
    }
}

/// A client waits for 100 (Continue), which the edge sends once the origin takes the body.
#[test]
fn a_body_is_requested_only_where_there_is_an_origin() {
    let (files, origin) = (Files::new(), Recorder::ok());
    let edge = site(&files, &origin);
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {NAME}\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    );
    let mut stream = tls(&edge, NAME);
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_until(&mut stream, b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").unwrap();
    read_until(&mut stream, b"\r\n\r\nok");
    let request = origin.newest(1);
    assert!(request.values("expect").is_empty() && request.body == b"hello");

    let down =
        Edge::start(&files, &[NAME], &[&format!("--origin=http://{}", crate::edge::closed())]);
    let mut stream = tls(&down, NAME);
    stream.write_all(head.as_bytes()).unwrap();
    let text = String::from_utf8(read_until(&mut stream, b"\r\n\r\n")).unwrap();
    assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
}

/// Steps of a connection to an origin that never responds.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The head of a request has come.
    Asked,
    Ended,
}

/// Starts an origin that reads a head and never responds; returns its address, and a channel of
/// the steps of connections.
fn silent() -> (SocketAddr, mpsc::Receiver<Step>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, steps) = mpsc::channel();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let taken = taken.clone();
            thread::spawn(move || {
                read_until(&mut tcp, b"\r\n\r\n");
                let _ = taken.send(Step::Asked);
                while matches!(tcp.read(&mut [0; 4096]), Ok(1..)) {}
                let _ = taken.send(Step::Ended);
            });
        }
    });
    (address, steps)
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, steps) = silent();
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin=http://{origin}")]);
    for version in VERSIONS {
        let client = start_curl(&edge, &files, NAME, "/", &[version]);
        assert_eq!(steps.recv_timeout(PATIENCE), Ok(Step::Asked), "{version}");
        drop(client);
        assert_eq!(steps.recv_timeout(PATIENCE), Ok(Step::Ended), "{version}");
    }
    until("nothing is left", || edge.count("headstart_connections_active", &[]) == 0);
}

/// Returns the status in the head that comes on `stream`.
fn status_in(stream: &mut impl Read) -> String {
    let head = String::from_utf8(read_until(stream, b"\r\n\r\n")).unwrap();
    head["HTTP/1.1 ".len()..][..3].to_owned()
}

#[test]
fn a_late_client_gets_408_and_a_late_origin_504() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, _steps) = silent();
    let option = format!("--origin=http://{origin}");
    let edge = Edge::start(&files, &[NAME], &[&option, "--origin-response-timeout=500ms"]);
    // The client stops in the middle.
    let mut stream = tls(&edge, NAME);
    write!(stream, "POST / HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 10\r\n\r\nhello").unwrap();
    assert_eq!(status_in(&mut stream), "408");
    // It has sent everything at once.
    let mut stream = tls(&edge, NAME);
    let request = format!("POST / HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 5\r\n\r\nhello");
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(status_in(&mut stream), "504");
    // The client's fault is not the origin's.
    assert_eq!(edge.count("headstart_origin_failures_total", &[]), 1);
    assert_eq!(edge.count("headstart_origin_failures_total", &["reason=\"late\""]), 1);
    assert_eq!(edge.count("headstart_limits_hit_total", &["request_body_time"]), 1);
    let words = format!("no response of the origin origin={origin} reason=\"late\" error=");
    until("it is said", || edge.logged(&words) == 1);
}

/// Starts an origin that reads nothing; returns its address and its connections.
fn deaf() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, all) = mpsc::channel();
    thread::spawn(move || {
        listener.incoming().map_while(Result::ok).all(|tcp| taken.send(tcp).is_ok())
    });
    (address, all)
}

/// More than all buffers on the way hold, those of the kernel too: some megabytes for each
/// connection.
const ENDLESS: usize = 64 * 1024 * 1024;

#[test]
fn an_upload_goes_no_faster_than_the_origin_takes_it() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, _kept) = deaf();
    let option = format!("--origin=http://{origin}");
    // A client that sends nothing for as long, such as on a busy machine, would be at fault.
    let edge = Edge::start(&files, &[NAME], &[&option, "--origin-response-timeout=5s"]);
    let upload = format!("@{}", files.write("upload", &vec![b'x'; ENDLESS], 0o600));
    thread::scope(|scope| {
        for version in VERSIONS {
            let (edge, files, upload) = (&edge, &files, &upload);
            scope.spawn(move || {
                let flags = [version, "--data-binary", upload, "-w", "%{http_code} %{size_upload}"];
                let output = curl(edge, files, NAME, "/", &flags).text();
                // The client is not at fault: its status is not 408.
                let (words, sent) = output.rsplit_once(' ').unwrap();
                let late = "504: the server behind this one takes too long\n504";
                assert_eq!(words, late, "{version}");
                assert!(sent.parse::<usize>().unwrap() < ENDLESS / 2, "{version}: {sent}");
            });
        }
    });
}

/// Starts an origin whose responses have no end; returns its address, and a channel of the bytes of
/// each until it stalled.
fn endless() -> (SocketAddr, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (stalled, stalls) = mpsc::channel();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let stalled = stalled.clone();
            thread::spawn(move || {
                read_until(&mut tcp, b"\r\n\r\n");
                tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                tcp.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
                let (mut sent, piece) = (0, [b'x'; 65_536]);
                while let Ok(count) = tcp.write(&piece) {
                    sent += count;
                    if sent > ENDLESS {
                        break;
                    }
                }
                let _ = stalled.send(sent);
                // The client must not see an end.
                let _ = tcp.read(&mut [0; 1]);
            });
        }
    });
    (address, stalls)
}

#[test]
fn a_response_goes_no_faster_than_the_client_reads() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, stalls) = endless();
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin=http://{origin}")]);
    let mut stream = tls(&edge, NAME);
    write!(stream, "GET / HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
    let sent = stalls.recv_timeout(PATIENCE).expect("it stalls");
    assert!(sent < ENDLESS / 2, "HTTP/1.1: {sent}");
    super::h2::without_reading(&edge, NAME, || {
        let sent = stalls.recv_timeout(PATIENCE).expect("it stalls");
        assert!(sent < ENDLESS / 2, "HTTP/2: {sent}");
    });
}
