//! Whatever is wrong with the agent, a program does what it would have done.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::program::{Program, resumed};
use crate::server::{PAGE, Server, files};

#[test]
fn without_an_agent_handshakes_are_ordinary() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("silent");
    let _listener = UnixListener::bind(&silent).unwrap();
    let long = "x".repeat(200);
    let too_long = dir.path().join(long);
    for socket in [Path::new("/nonexistent"), &silent, &too_long, dir.path()] {
        for program in Program::all(&server) {
            assert!(
                !resumed(&program.in_a_hurry().page(socket, &files, &[])),
                "{}",
                socket.display()
            );
        }
    }
}

/// The agent sends the same bytes whatever the request is.
#[test]
fn a_lying_agent_breaks_no_handshake() {
    let files = files();
    let server = Server::start(&files, PAGE);
    let dir = tempfile::tempdir().unwrap();
    let huge = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n{}",
        "x".repeat(100_000)
    );
    let answers = [
        "",
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n\x30\u{7f}\x01\x02",
        "SSH-2.0-x\r\n",
        &huge,
    ];
    for (number, answer) in answers.iter().enumerate() {
        let socket = dir.path().join(number.to_string());
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = (*answer).to_owned();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 8192]);
                // A client that has read enough is gone.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        for program in Program::all(&server) {
            assert!(!resumed(&program.page(&socket, &files, &[])), "{number}");
        }
    }
}
