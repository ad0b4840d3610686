//! The server before `openssl s_client` of the system, which knows nothing of us.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headstart_proto::cookie::Cookie;
use headstart_tls::{Conn, EarlyData, Facts, Read, TlsError, Version};

use crate::hello;
use crate::site::{NOW, Site, hands_out_cookies, peer, takes_early_data};

const QUESTION: &[u8] = b"question\n";
const ANSWER: &[u8] = b"the answer is forty-two\n";

/// Nobody waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(120);

/// Result of a connection at the server.
struct Served {
    facts: Facts,
    hello: Vec<u8>,
}

/// Answers one question and ends the connection.
fn serve(mut stream: TcpStream, mut conn: Conn) -> Served {
    let (mut hello, mut got) = (Vec::new(), Vec::new());
    let mut room = [0; 4096];
    loop {
        let read = conn.read(&mut room);
        if let Ok(Read::Bytes(count)) = read {
            got.extend_from_slice(&room[..count]);
            if got == QUESTION {
                assert_eq!(conn.write(ANSWER), Ok(ANSWER.len()));
                conn.close();
            }
        }
        while let Some(bytes) = conn.poll_bytes() {
            // A client that has what it wants may be gone.
            let _ = stream.write_all(&bytes);
        }
        match read.unwrap() {
            Read::Bytes(_) => {}
            Read::End => break,
            Read::Wait => match stream.read(&mut room).unwrap_or(0) {
                0 => break,
                count => {
                    if hello.is_empty() {
                        hello.extend_from_slice(&room[..count]);
                    }
                    conn.handle_bytes(&room[..count]);
                }
            },
        }
    }
    assert_eq!(got, QUESTION);
    Served { facts: conn.facts(), hello }
}

/// A running s_client, and its connection.
fn connected(site: &Site, folder: &Path, arguments: &[&str]) -> (Child, TcpStream) {
    let root = folder.join("root.pem");
    std::fs::write(&root, site.authority.pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", "a.test"])
        .args(["-verify_return_error", "-verify_hostname", "a.test", "-CAfile"])
        .arg(&root)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs the command openssl");
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (client, stream)
}

/// One connection of s_client, which sends the question unless it is in its arguments; what it
/// printed.
fn ask(site: &Site, folder: &Path, arguments: &[&str]) -> (Served, String) {
    let (mut client, stream) = connected(site, folder, arguments);
    let mut typed = client.stdin.take().unwrap();
    if !arguments.contains(&"-early_data") {
        typed.write_all(QUESTION).unwrap();
    }
    let served = serve(stream, site.accept());
    // Its input stays open as long as it runs: it would hang up at its end.
    let output = client.wait_with_output().unwrap();
    drop(typed);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains(std::str::from_utf8(ANSWER).unwrap()), "{printed}{words}");
    (served, printed)
}

#[test]
fn interop_with_an_unmodified_client() {
    let site = Site::with(|config| {
        takes_early_data(config);
        hands_out_cookies(config);
    });
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();

    let (first, printed) = ask(&site, folder, &["-sess_out", "session.pem"]);
    assert!(!first.facts.resumed && printed.contains("New, TLSv1.3"), "{printed}");
    assert!(!first.facts.fop_requested);

    let again = ["-sess_in", "session.pem", "-sess_out", "session.pem"];
    let (second, printed) = ask(&site, folder, &again);
    assert!(second.facts.resumed && printed.contains("Reused, TLSv1.3"), "{printed}");

    std::fs::write(folder.join("question"), QUESTION).unwrap();
    let early = ["-sess_in", "session.pem", "-early_data", "question"];
    let (third, printed) = ask(&site, folder, &early);
    assert_eq!(third.facts.early_data, EarlyData::Accepted, "{printed}");
    assert!(printed.contains("Early data was accepted"), "{printed}");

    // Between the client and the network, cookies are found in its tickets.
    let cookies = [&second, &third].map(|served| {
        let ticket = hello::identity(&served.hello).unwrap();
        Cookie::parse(&ticket[..16]).unwrap()
    });
    for cookie in &cookies {
        assert!(site.ring.current().cookies().verify(cookie, NOW, peer()).is_ok());
    }
    assert_ne!(cookies[0], cookies[1]);
}

#[test]
fn interop_in_tls_1_2_with_names_instead_of_cookies() {
    let site = Site::with(hands_out_cookies);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (first, printed) = ask(&site, folder, &["-tls1_2", "-sess_out", "session.pem"]);
    assert_eq!(first.facts.version, Some(Version::Tls12));
    assert!(printed.contains("New, TLSv1.2"), "{printed}");
    let (second, printed) = ask(&site, folder, &["-tls1_2", "-sess_in", "session.pem"]);
    assert!(second.facts.resumed && printed.contains("Reused, TLSv1.2"), "{printed}");
    let ticket = hello::ticket(&second.hello).unwrap();
    assert_eq!(ticket[..16], site.ring.current().current.ticket_name());
}

#[test]
fn interop_with_a_client_that_wants_to_shake_hands_again() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let (mut client, mut stream) = connected(&site, folder.path(), &["-tls1_2"]);
    let mut typed = client.stdin.take().unwrap();
    typed.write_all(b"R\n").unwrap(); // a command of s_client
    let mut conn = site.accept();
    let mut room = [0; 4096];
    let error = loop {
        let read = conn.read(&mut room);
        while let Some(bytes) = conn.poll_bytes() {
            let _ = stream.write_all(&bytes);
        }
        match read {
            Ok(Read::Wait) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        match stream.read(&mut room).unwrap_or(0) {
            0 => conn.handle_end(),
            count => conn.handle_bytes(&room[..count]),
        }
    };
    assert_eq!(conn.facts().server_name.as_deref(), Some("a.test"), "it was open");
    assert_eq!(error, TlsError::Alert(40), "handshake_failure: it got none");
    drop(typed);
    let words = String::from_utf8_lossy(&client.wait_with_output().unwrap().stderr).into_owned();
    assert!(words.contains("no renegotiation"), "{words}");
}
