//! A stop: running requests finish, clients are told to leave.

use std::io::{Read, Write};
use std::thread;

use rustix::process::Signal;

use super::tools::{curl, read_until, tls};
use crate::edge::{Edge, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

#[test]
fn running_requests_finish_and_the_edge_ends() {
    for version in ["--http1.1", "--http2"] {
        let (files, origin) = (Files::new(), Origin::start());
        files.issue(NAME);
        let origin_option = format!("--origin={}", origin.http());
        // Longer than the shutdown waits: no connection may keep it waiting.
        let flags = [origin_option.as_str(), "--shutdown-timeout=1h"];
        let mut edge = Edge::start(&files, &[NAME], &flags);
        thread::scope(|scope| {
            let client =
                scope.spawn(|| curl(&edge, &files, NAME, "/held/100000", &[version]).ok().len());
            until("the origin has the request", || origin.requests("GET /held/100000") == 1);
            edge.signal(Signal::TERM);
            until("it stops", || edge.logged(" stopping") == 1);
            origin.release();
            assert_eq!(client.join().unwrap(), 100_000, "{version}");
        });
        assert!(edge.ended().success());
    }
}

#[test]
fn a_client_without_a_request_is_told_to_leave() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let mut edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let mut stream = tls(&edge, NAME);
    write!(stream, "GET /bytes/3 HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
    read_until(&mut stream, b"\r\n\r\n\x00\x01\x02");
    edge.signal(Signal::TERM);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it ends in order");
    drop(stream);
    assert!(edge.ended().success());
}
