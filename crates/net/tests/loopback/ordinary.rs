//! A join that reaches an ordinary TLS server: it sees a ticket that it does not know.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use headstart_proto::join::{ACCEPTANCE_LEN, Answer, Join};
use headstart_proto::{JoinKey, RouteTag};
use headstart_testkit::hello::record;
use headstart_testkit::{DAY, Running, self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hello::{BEHIND_HELLO, hello};
use crate::join::parsed;
use crate::time::TIMEOUT;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const PRE_SHARED_KEY: u16 = 41;

/// Starts `openssl s_server` with these arguments more; where it listens.
fn server(arguments: &[&str]) -> (Running, SocketAddr) {
    let dir = tempfile::tempdir().unwrap();
    let issued = self_signed(&["www.example.com"], 0..DAY);
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| dir.path().join(name));
    fs::write(&chain, issued.chain).unwrap();
    fs::write(&key, issued.key).unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert"]).arg(chain);
    command.arg("-key").arg(key).args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let child = Running(child);
    let mut line = String::new();
    while !line.starts_with("ACCEPT") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "openssl s_server does not start");
    }
    // The rest goes nowhere, and must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    (child, line["ACCEPT".len()..].trim().parse().unwrap())
}

/// Returns what a server says first to these bytes, as far as a client reads it.
async fn answer(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut tcp = TcpStream::connect(server).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let (mut answered, mut tcp) = (Vec::new(), tcp.take(ACCEPTANCE_LEN as u64));
    // The server may reset the connection after an alert.
    let _ = timeout(TIMEOUT, tcp.read_to_end(&mut answered)).await.expect("no answer");
    answered
}

/// Returns the numbers of the extensions in a ServerHello.
fn extensions(record: &[u8]) -> Vec<u16> {
    assert_eq!((record[0], record[5]), (HANDSHAKE, 2), "no ServerHello: {record:?}");
    let message = &record[5..5 + usize::from(u16::from_be_bytes([record[3], record[4]]))];
    let session_id = usize::from(message[38]);
    let mut rest = &message[39 + session_id + 3 + 2..];
    let mut numbers = Vec::new();
    while let [high, low, length @ ..] = rest {
        numbers.push(u16::from_be_bytes([*high, *low]));
        rest = &rest[4 + usize::from(u16::from_be_bytes([length[0], length[1]]))..];
    }
    numbers
}

/// A join, and a look-alike: an ordinary resumption with a foreign ticket.
fn join_and_ticket() -> (JoinKey, [Vec<u8>; 2]) {
    let key = JoinKey::new(rand::random());
    let join = Join {
        key: key.clone(),
        tag: RouteTag::default(),
        client_offset: BEHIND_HELLO,
        server_offset: 0,
    };
    let join = join.emit(&parsed(&hello(rand::random())));
    let mut ticket = join.clone();
    ticket[11] ^= 1; // the random begins there
    assert!(Join::read(&parsed(&join)).is_some() && Join::read(&parsed(&ticket)).is_none());
    // What follows looks like early data.
    (key, [join, ticket].map(|hello| [hello, record(23, &[7; 100])].concat()))
}

#[tokio::test]
async fn an_ordinary_server_answers_a_join_as_any_unknown_ticket() {
    let (_server, address) = server(&[]);
    let (key, both) = join_and_ticket();
    let mut seen = Vec::new();
    for bytes in both {
        let answered = answer(address, &bytes).await;
        assert_eq!(Answer::read(&key, &answered), Answer::Refused);
        seen.push(extensions(&answered));
    }
    assert_eq!(seen[0], seen[1]);
    assert!(!seen[0].contains(&PRE_SHARED_KEY), "a full handshake: {seen:?}");
}

/// One that speaks no TLS 1.3, and one without the client's only group.
#[tokio::test]
async fn an_ordinary_server_that_cannot_answer_says_so_in_an_alert() {
    for arguments in [&["-tls1_2"][..], &["-groups", "P-256"]] {
        let (_server, address) = server(arguments);
        let (key, both) = join_and_ticket();
        for bytes in both {
            let answered = answer(address, &bytes).await;
            assert_eq!(answered.first(), Some(&ALERT), "{arguments:?}: {answered:?}");
            assert_eq!(Answer::read(&key, &answered), Answer::Refused);
        }
    }
}
