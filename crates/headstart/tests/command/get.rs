//! `headstart get` and `headstart doctor` as processes, against an origin and an edge on
//! loopback.

use std::convert::Infallible;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::Output;

use bytes::Bytes;
use headstart_net::{Acceptor, AcceptorConfig, RelayCounts, RelayLimits, bridge};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslAcceptor, SslMethod};
use openssl::x509::X509;
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::Command;

use crate::front::Front;

/// More than a TLS record, so that the body comes in pieces.
const BODY: usize = 100_000;

struct Site {
    origin: SocketAddr,
    edge: SocketAddr,
    cacert: NamedTempFile,
}

impl Site {
    /// An origin for `localhost`, and an edge before it.
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let origin = listener.local_addr().unwrap();
        let (tls, cacert) = identity();
        tokio::spawn(serve(listener, tls));
        let edge = Acceptor::bind(([127, 0, 0, 1], 0).into(), AcceptorConfig::default()).unwrap();
        let address = edge.local_addr();
        tokio::spawn(pass(edge, origin));
        Self { origin, edge: address, cacert }
    }

    fn cacert(&self) -> &str {
        self.cacert.path().to_str().unwrap()
    }

    /// `get https://localhost/` with the connections going to `address`.
    async fn get(&self, address: SocketAddr, arguments: &[&str]) -> Output {
        let edge = format!("localhost={address}");
        let mut all = vec!["get", "--edge", &edge, "--cacert", self.cacert()];
        all.extend(arguments);
        all.push("https://localhost/path?query");
        headstart(&all).await
    }

    async fn get_json(&self, address: SocketAddr, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let output = self.get(address, &all).await;
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

async fn headstart(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(arguments).env_clear().kill_on_drop(true).output().await.unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn identity() -> (SslAcceptor, NamedTempFile) {
    let issued = headstart_testkit::self_signed(&["localhost"], 0..headstart_testkit::DAY);
    let certificate = X509::from_pem(&issued.chain).unwrap();
    let key = PKey::private_key_from_pem(&issued.key).unwrap();
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    tls.set_certificate(&certificate).unwrap();
    tls.set_private_key(&key).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&issued.chain).unwrap();
    (tls.build(), file)
}

async fn serve(listener: TcpListener, tls: SslAcceptor) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let ssl = Ssl::new(tls.context()).unwrap();
        tokio::spawn(async move {
            let mut stream = tokio_openssl::SslStream::new(ssl, tcp).unwrap();
            if Pin::new(&mut stream).accept().await.is_ok() {
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            }
        });
    }
}

/// 404 for `/`, else a body; what the client sent of `x-test` comes back.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from(vec![b'x'; BODY])));
    if let Some(value) = request.headers().get("x-test") {
        response.headers_mut().insert("x-test", value.clone());
    }
    if request.uri().path() != "/path" {
        *response.status_mut() = hyper::StatusCode::NOT_FOUND;
    }
    Ok(response)
}

async fn pass(mut edge: Acceptor, origin: SocketAddr) {
    loop {
        let arrival = edge.accept().await.unwrap();
        tokio::spawn(async move {
            let Ok(Some(stream)) = arrival.establish().await else { return };
            let origin = TcpStream::connect(origin).await.unwrap();
            let counts = RelayCounts::default();
            bridge(stream, origin, &[], RelayLimits::default(), &counts, |_| {}).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turbotls_brings_the_same_bytes_and_says_so() {
    let site = Site::start().await;
    let front = Front::new(site.edge, site.edge);
    front.hold();
    let file = NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let report = site.get_json(front.address, &["-o", path]).await;
    assert_eq!(std::fs::read(path).unwrap(), vec![b'x'; BODY]);
    assert_eq!(report["opening"], "turbo", "{report}");
    assert_eq!(report["not_used"], serde_json::json!([]));
    let events = report["timeline"].to_string();
    for event in ["SYN to", "client bytes 0..", "to TLS, from UDP", "join accepted"] {
        assert!(events.contains(event), "{events}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_listens_on_udp_it_is_plain_and_the_reason_is_given() {
    let site = Site::start().await;
    let report = site.get_json(site.origin, &[]).await;
    assert_eq!(report["opening"], "plain");
    assert_eq!(report["not_used"][0]["opening"], "turbo");
    let reason = report["not_used"][0]["reason"].as_str().unwrap();
    assert!(["unreachable", "silence", "not_awaited", "tcp_first"].contains(&reason), "{report}");
    let report = site.get_json(site.edge, &["--opening", "plain"]).await;
    assert_eq!(report["not_used"][0]["reason"], "policy");
}

/// The machine may have programs attached and the edge takes no cookies, or it has none: either way
/// the page comes, on a resumed session, and it is said why there was no data in the SYN.
#[tokio::test(flavor = "multi_thread")]
async fn fast_open_that_cannot_be_is_an_ordinary_connection_with_a_reason() {
    let site = Site::start().await;
    let report = site.get_json(site.edge, &["--opening", "fop"]).await;
    assert_eq!((report["status"].as_u64(), &report["resumed"]), (Some(200), &Value::Bool(true)));
    assert_eq!(report["tls"]["group"], "X25519", "one that fits a SYN");
    assert_ne!(report["opening"], "fop");
    let not_used = report["not_used"].as_array().unwrap();
    let fop = not_used.iter().find(|entry| entry["opening"] == "fop").unwrap();
    let reason = fop["reason"].as_str().unwrap();
    assert!(["unavailable", "syn_data_refused"].contains(&reason), "{report}");
    assert!(fop["detail"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_what_scripts_rely_on() {
    let site = Site::start().await;
    let report = site.get_json(site.edge, &["--opening", "plain"]).await;
    let [rtt, request, response, round_trips] = [
        "rtt_ms",
        "ms_to_first_request_byte",
        "ms_to_first_response_byte",
        "rtts_to_first_request_byte",
    ]
    .map(|name| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}")));
    assert!(0.0 < rtt && rtt <= request && request <= response, "{report}");
    assert!((round_trips - request / rtt).abs() < 0.02 * round_trips + 0.02, "{report}");
    assert_eq!(
        (&report["resumed"], &report["early_data"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    assert_eq!((report["status"].as_u64(), report["bytes"].as_u64()), (Some(200), Some(100_000)));
    assert_eq!(report["tls"]["version"], "TLSv1.3");
    assert_eq!(report["tls"]["cipher"], "TLS_AES_256_GCM_SHA384");
    assert_eq!(report["tls"]["group"], "X25519MLKEM768");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_goes_to_standard_output_and_the_timeline_to_standard_error() {
    let site = Site::start().await;
    let output = site.get(site.edge, &["--explain"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, vec![b'x'; BODY]);
    let message = err(&output);
    for line in ["SYN to", "TLS established: TLSv1.3", "first request byte", "\nOpened by "] {
        assert!(message.contains(line), "{message}");
    }
    let output = site.get(site.edge, &["-I", "-H", "X-Test: 42"]).await;
    let head = String::from_utf8(output.stdout).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\n") && head.contains("x-test: 42\n"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_say_what_to_do() {
    let site = Site::start().await;
    let edge = format!("localhost={}", site.edge);
    let output = headstart(&["get", "--edge", &edge, "https://localhost/"]).await;
    assert_eq!(output.status.code(), Some(1));
    let message = err(&output);
    assert!(
        message.starts_with("error: the certificate of localhost is not trusted: self-signed"),
        "{message}"
    );
    assert!(message.contains("\nhint: ") && message.contains("--cacert FILE"), "{message}");

    let output =
        headstart(&["get", "--edge", &edge, "--insecure", "--fail", "https://localhost/"]).await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(err(&output), "error: the server answered 404 Not Found\n");

    // Bound but not listening, so that nobody else gets the port.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let closed = nobody.local_addr().unwrap();
    let output = headstart(&["get", &format!("https://{closed}/")]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).starts_with(&format!("error: cannot connect to {closed}: refused")),
        "{}",
        err(&output)
    );

    let plain = format!("https://{}/", site.edge);
    let output = headstart(&["get", "--insecure", "--opening", "turbo", &plain]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(
        err(&output).starts_with("note: TurboTLS was not used: only port 443"),
        "{}",
        err(&output)
    );

    let output = site.get(site.edge, &["-o", "/nowhere/file"]).await;
    assert_eq!(output.status.code(), Some(2));
}

/// Serves these bytes to each client, and closes the connection once the peer has sent some.
async fn serve_bytes(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(bytes).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_without_tls_are_told_apart() {
    for (bytes, failure) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak TLS on this port"),
        (b"", "closed the connection during the TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "failed: the peer sent the alert 40 (handshake failure)"),
    ] {
        let address = serve_bytes(bytes).await;
        let output = headstart(&["get", "--insecure", &format!("https://{address}/")]).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains(failure), "{}", err(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_read_are_wrong_usage() {
    let mut empty = NamedTempFile::new().unwrap();
    empty.write_all(b"no PEM\n").unwrap();
    for (file, reason) in [
        ("/nowhere/ca.pem", "No such file"),
        (empty.path().to_str().unwrap(), "no certificate\nhint: the file has to hold certificates"),
    ] {
        let output = headstart(&["get", "--cacert", file, "https://127.0.0.1:1/"]).await;
        assert_eq!(output.status.code(), Some(2));
        let start = format!("error: cannot read certificates from {file}: {reason}");
        assert!(err(&output).starts_with(&start), "{}", err(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_probes_this_machine_and_a_server() {
    let site = Site::start().await;
    let edge = format!("localhost={}", site.edge);
    let arguments = ["doctor", "localhost", "--json", "--edge", &edge];
    let output = headstart(&arguments).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    for (check, level) in [("tcp", "ok"), ("tls", "problem")] {
        let found = findings.iter().rfind(|finding| finding["check"] == check);
        assert_eq!(found.unwrap_or_else(|| panic!("no {check}: {report}"))["level"], level);
    }
    assert_eq!((output.status.code(), report["ok"].as_bool()), (Some(1), Some(false)));

    let output =
        headstart(&["doctor", "localhost", "--edge", &edge, "--cacert", site.cacert()]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("this machine\n") && text.contains("\nlocalhost:443\n"), "{text}");
    assert!(text.contains("  ok       tls            TLSv1.3, X25519MLKEM768, "), "{text}");
}
