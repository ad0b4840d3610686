//! The HTTP server beside a daemon.

use headstart::metrics::{Listeners, Metrics, Role, limit_hit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ask(address: std::net::SocketAddr, line: &str) -> String {
    ask_host(address, line, "x").await
}

async fn ask_host(address: std::net::SocketAddr, line: &str, host: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn it_answers_prometheus_and_health_checks() {
    // The only recorder of this process: it counts for all tests.
    let metrics = Metrics::install(Role::Agent).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listeners = Listeners { metrics: Some(listener), ..Listeners::default() };
    let server = metrics.serve(listeners, vec!["known.example".parse().unwrap()]);
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
    // A page whose name leads here (DNS rebinding) is told nothing.
    for (host, status) in [
        ("rebound.example", "421"),
        ("127.0.0.1.example:9100", "421"),
        ("known.example", "200"),
        (&address.to_string(), "200"),
    ] {
        let answer = ask_host(address, "GET /metrics", host).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        assert_eq!(answer.contains("headstart_build_info"), status == "200", "{host}");
    }

    // Silent clients of one user get three quarters of the 32 places, and leave the rest to others.
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for client in &mut silent[24..] {
        assert!(!matches!(client.read(&mut [0]).await, Ok(1..)), "it is closed");
    }
    server.abort();
}
