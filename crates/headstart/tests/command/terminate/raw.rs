//! Origins that get the bytes inside of TLS, and origins that speak TLS themselves, on one port.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc;
use std::thread;

use openssl::ssl::ShutdownResult;

use super::tools::{curl, read_until, tls};
use crate::edge::{Edge, closed, until};
use crate::files::Files;
use crate::origin::{Origin, pattern};

const NAME: &str = "mail.example.com";

/// Gives all bytes back, and says `bye` behind the client's end; what came in all.
fn echo() -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, seen) = mpsc::channel();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = tcp.read(&mut buffer) {
                all.extend_from_slice(&buffer[..count]);
                let _ = tcp.write_all(&buffer[..count]);
            }
            let _ = tcp.write_all(b"bye");
            let _ = ended.send(all);
        }
    });
    (address.to_string(), seen)
}

/// Takes a line, says what it got, and ends.
pub(crate) fn line() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let got = read_until(&mut tcp, b"\n");
                tcp.write_all(&[b"got: ", &got[..]].concat()).unwrap();
            });
        }
    });
    address.to_string()
}

#[test]
fn bytes_pass_both_ways_and_one_way_may_end_before_the_other() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, seen) = echo();
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin=tcp://{origin}")]);
    let mut stream = tls(&edge, NAME);
    for size in [1, 20_000, 200_000] {
        let sent = pattern(size);
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; size];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent);
    }
    assert_eq!(stream.shutdown().unwrap(), ShutdownResult::Sent);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"bye");
    assert_eq!(seen.recv().unwrap().len(), 220_001);
    until("it is counted", || {
        edge.count("headstart_connections_total", &["result=\"closed\""]) == 1
    });
}

/// An attacker can cut the stream anywhere, and the origin must not take that for its end.
#[test]
fn a_stream_that_was_cut_is_reset_at_the_origin() {
    let files = Files::new();
    files.issue(NAME);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let origin = format!("--origin=tcp://{}", listener.local_addr().unwrap());
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    let mut stream = tls(&edge, NAME);
    stream.write_all(b"half").unwrap();
    let (mut tcp, _) = listener.accept().unwrap();
    let mut half = [0; 4];
    tcp.read_exact(&mut half).unwrap();
    // Without close_notify.
    drop(stream);
    let error = tcp.read(&mut half).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn an_origin_that_is_down_resets_the_client() {
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin=tcp://{}", closed())]);
    let mut stream = tls(&edge, NAME);
    assert!(stream.read(&mut [0; 1]).is_err());
    until("it is counted", || {
        edge.count("headstart_connections_total", &["result=\"unreachable\""]) == 1
    });
}

#[test]
fn proxy_protocol_goes_before_the_bytes() {
    let files = Files::new();
    files.issue(NAME);
    let (origin, seen) = echo();
    let origin = format!("--origin=tcp://{origin}");
    let edge = Edge::start(&files, &[NAME], &[&origin, "--proxy-protocol"]);
    let mut stream = tls(&edge, NAME);
    stream.write_all(b"hello").unwrap();
    let mut header = [0; 28];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[..12], *b"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A");
    stream.shutdown().unwrap();
    assert!(seen.recv().unwrap().ends_with(b"hello"));
}

/// One edge terminates for one name, passes another through to a second edge, and hands a third
/// over raw.
#[test]
fn all_kinds_of_origins_share_a_port() {
    let files = Files::new();
    for name in [NAME, "www.example.com", "old.example.com"] {
        files.issue(name);
    }
    let (web, old) = (Origin::start(), Origin::start());
    let behind = Edge::start(&files, &["old.example.com"], &[&format!("--origin={}", old.http())]);
    let (raw, _seen) = echo();
    let origins = format!(
        "--origin={NAME}=tcp://{raw},www.example.com={},old.example.com={}",
        web.http(),
        behind.address
    );
    let edge = Edge::start(&files, &[NAME, "www.example.com"], &[&origins]);
    curl(&edge, &files, "www.example.com", "/head", &[]).ok();
    curl(&edge, &files, "old.example.com", "/head", &[]).ok();
    assert_eq!((web.requests("GET /head"), old.requests("GET /head")), (1, 1));
    let mut stream = tls(&edge, NAME);
    stream.write_all(b"x").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 1);
    let handshakes = |edge: &Edge| edge.count("headstart_tls_handshakes_total", &[]);
    until("they are counted", || handshakes(&edge) >= 2 && handshakes(&behind) >= 1);
    assert_eq!((handshakes(&edge), handshakes(&behind)), (2, 1));
}
