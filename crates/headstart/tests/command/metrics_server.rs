//! The HTTP server beside a daemon.

use headstart::listen;
use headstart::metrics::{Metrics, Role, limit_hit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn ask(address: std::net::SocketAddr, line: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn it_answers_prometheus_and_health_checks() {
    // The only recorder of this process: it counts for all tests.
    let metrics = Metrics::install(Role::Agent).unwrap();
    let listener = listen::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = metrics.serve(listener);
    limit_hit("of_this_test");

    let answer = ask(address, "GET /metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(
        answer.contains("\nheadstart_limits_hit_total{limit=\"of_this_test\"} 1\n"),
        "{answer}"
    );
    let build = concat!(
        "headstart_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\",role=\"agent\"} 1"
    );
    assert!(answer.contains(build), "{answer}");

    assert!(ask(address, "GET /healthz").await.ends_with("alive\n"));
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 503 "));
    metrics.set_ready(true);
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 200 "));
    metrics.set_ready(false);
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 503 "));
    assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404 "));
    assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.1 405 "));
    server.abort();
}
