//! Scripted agents. The tests of headstart-cli show that the client understands the real one.
#![allow(clippy::unwrap_used)] // tests and their helpers may panic

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use headstart_client::{Agent, Connector, EarlyData, Error, Kind, Options};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tower_service::Service;

const GRANTED: &str = "HTTP/1.1 200 OK\r\nheadstart-opening: plain\r\nheadstart-resumed: 0\r\n\r\n";

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Returns a path where an agent would listen, and the directory that holds it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    (dir, path)
}

/// Reads one request and answers it; returns the request and the connection.
fn play(path: &PathBuf, answer: String) -> JoinHandle<(String, UnixStream)> {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            request.push(char::from(stream.read_u8().await.unwrap()));
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        (request, stream)
    })
}

/// Returns the error of a connection that gets `answer` and is then closed.
async fn answered(answer: &str) -> Error {
    let (_dir, path) = place();
    let playing = play(&path, answer.to_owned());
    let connecting = tokio::spawn(async move {
        Agent::socket(path).connect("a.example", 443, &Options::default(), b"").await
    });
    drop(playing.await.unwrap());
    connecting.await.unwrap().unwrap_err()
}

#[tokio::test]
async fn bytes_behind_the_head_belong_to_the_server() {
    let (_dir, path) = place();
    let playing = play(&path, format!("{GRANTED}first words"));
    let agent = Agent::socket(path);
    let mut stream = agent.connect("a.example", 443, &Options::default(), b"hi").await.unwrap();
    assert_eq!(stream.facts().unwrap().early_data, EarlyData::None);
    let (request, mut far) = playing.await.unwrap();
    assert!(request.starts_with("CONNECT a.example:443 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nHeadstart-Early-Data: aGk=\r\n"), "{request}");
    stream.write_all(b"up").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut up = String::new();
    far.read_to_string(&mut up).await.unwrap();
    assert_eq!(up, "up");
    far.write_all(b", and more").await.unwrap();
    drop(far);
    let mut down = String::new();
    stream.read_to_string(&mut down).await.unwrap();
    assert_eq!(down, "first words, and more");
}

#[tokio::test]
async fn a_refusal_quotes_the_agent() {
    let text = "the certificate has expired\nhint: have it renewed\n";
    let head = "HTTP/1.1 502 Bad Gateway\r\nheadstart-error: certificate_expired\r\n";
    let error = answered(&format!("{head}content-length: {}\r\n\r\n{text}", text.len())).await;
    assert_eq!(error.to_string(), "the certificate has expired");
    assert_eq!(error.hint(), Some("have it renewed"));
    let Error::Refused(refusal) = error else { panic!("{error:?}") };
    assert_eq!((refusal.status, refusal.kind()), (502, Kind::Certificate));
}

#[tokio::test]
async fn malformed_answers_are_rejected() {
    for answer in ["SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let error = answered(answer).await;
        assert!(matches!(error, Error::NotUnderstood(_)), "{error:?}");
    }
    for answer in ["", "HTTP/1.1 200 OK\r\nheadstart-op"] {
        let error = answered(answer).await;
        assert!(
            matches!(error, Error::Unavailable { .. }) && error.source().is_some(),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn without_an_agent_there_is_a_hint() {
    let (_dir, path) = place();
    let missing = Agent::socket(&path).connect("a.example", 443, &Options::default(), b"").await;
    let error = missing.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot reach an agent at {}", path.display()));
    assert_eq!(error.hint(), Some("start one: headstart agent --socket PATH"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_times_out() {
    let (_dir, path) = place();
    let _listener = UnixListener::bind(&path).unwrap();
    let agent = Agent::socket(path).timeout(Duration::from_secs(5));
    let late = agent.connect("a.example", 443, &Options::default(), b"").await;
    assert!(matches!(late, Err(Error::TimedOut)));
}

#[tokio::test]
async fn too_much_early_data_is_refused_before_connecting() {
    let (_dir, path) = place();
    let early = vec![0; 16 * 1024 + 1];
    let (agent, options) = (Agent::socket(&path), Options::default());
    let refused = agent.connect("a.example", 443, &options, &early).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))));
    let refused = agent.connect("a.example", 443, &options, &early[1..]).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "this is");
}

#[tokio::test]
async fn a_listener_of_the_port_that_proves_nothing_is_sent_nothing() {
    let (nonce, proof) = ("0".repeat(64), "0".repeat(64));
    let made_up = format!("headstart-nonce: {nonce}\r\nheadstart-proof: {proof}\r\n");
    for fields in ["", made_up.as_str()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent = Agent::port(listener.local_addr().unwrap(), TOKEN);
        assert!(!format!("{agent:?}").contains(TOKEN));
        let connecting =
            tokio::spawn(async move { agent.connect_bare("a.example", 80, Some("work")).await });
        let (mut tcp, _) = listener.accept().await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        tcp.write_all(answer.as_bytes()).await.unwrap();
        let error = connecting.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Untrusted { .. }) && error.hint().is_some(), "{error:?}");
        let mut request = String::new();
        tcp.read_to_string(&mut request).await.unwrap();
        assert!(request.starts_with("GET /proof HTTP/1.1\r\n"), "{request}");
        for secret in [TOKEN, "Authorization", "a.example", "work"] {
            assert!(!request.contains(secret), "{request}");
        }
    }
}

/// An empty file of a token, and a stranger who guesses it.
#[tokio::test]
async fn a_listener_cannot_prove_a_token_that_anyone_could_guess() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for token in ["", "guessed-by-a-person"] {
        let agent = Agent::port(listener.local_addr().unwrap(), token);
        let error = agent.connect_bare("a.example", 80, None).await.unwrap_err();
        assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("32 to 256"), "{error:?}");
    }
}

/// Has a listener of the port answer `status` to the request for its proof, in words of its own.
async fn answered_before_the_proof(status: u16) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent = Agent::port(listener.local_addr().unwrap(), TOKEN);
    let connecting = tokio::spawn(async move { agent.connect_bare("a.example", 80, None).await });
    let (mut tcp, _) = listener.accept().await.unwrap();
    let head = format!("HTTP/1.1 {status} No\r\nheadstart-error: certificate_expired\r\n\r\n");
    // Without an end: a client that reads the words waits for more of them.
    tcp.write_all(format!("{head}run this\nhint: as root\n").as_bytes()).await.unwrap();
    connecting.await.unwrap().unwrap_err()
}

#[tokio::test]
async fn words_before_the_proof_are_not_the_agents() {
    for status in [201, 302, 407, 500, 502, 504] {
        let error = answered_before_the_proof(status).await;
        assert!(matches!(error, Error::Untrusted { .. }), "{status}: {error:?}");
    }
    let error = answered_before_the_proof(503).await;
    let Error::Refused(refusal) = &error else { panic!("{error:?}") };
    assert_eq!((refusal.name.as_str(), refusal.kind()), ("overloaded", Kind::Overloaded));
    assert!(!format!("{error:?}").contains("run this"), "{error:?}");
}

#[tokio::test]
async fn a_connector_requires_an_http_uri() {
    let mut connector = Connector::new(Agent::socket("/nonexistent"));
    for uri in ["/path", "ftp://a.example/", "a.example:443"] {
        let refused = connector.call(uri.parse().unwrap()).await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{uri}");
    }
}
