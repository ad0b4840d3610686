use std::net::{Ipv4Addr, Ipv6Addr, TcpStream as StdStream};
use std::process::Command;

use headstart_testkit::has_net;
use tokio::net::TcpListener;

use super::*;

/// Environment variable set by a test that runs itself again in its own network namespace.
const INSIDE: &str = "HEADSTART_TEST_INSIDE";

async fn accepted(
    listen: SocketAddr,
    connect_to: impl Fn(u16) -> SocketAddr,
) -> (TcpStream, SocketAddr) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let destination = connect_to(listener.local_addr().unwrap().port());
    let client = tokio::task::spawn_blocking(move || StdStream::connect(destination).unwrap());
    let (stream, _) = listener.accept().await.unwrap();
    client.await.unwrap();
    (stream, destination)
}

#[tokio::test]
async fn a_direct_connection_has_no_original_destination() {
    for ip in ["127.0.0.1", "::1"] {
        let ip = ip.parse().unwrap();
        let (stream, _) = accepted(SocketAddr::new(ip, 0), |port| SocketAddr::new(ip, port)).await;
        assert_eq!(original_destination(&stream).unwrap(), None);
    }
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let (stream, _) = accepted(any, |port| (Ipv4Addr::LOCALHOST, port).into()).await;
    assert_eq!(original_destination(&stream).unwrap(), None);
}

/// Needs root, nft and unshare: HEADSTART_TEST_NET=1.
#[test]
fn a_redirected_connection_reports_its_original_destination() {
    if std::env::var_os(INSIDE).is_some() {
        return inside_namespace();
    }
    if !has_net() {
        return;
    }
    let test = "redirect::tests::a_redirected_connection_reports_its_original_destination";
    let output = Command::new("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn inside_namespace() {
    run("ip", &["link", "set", "lo", "up"]);
    // Addresses that exist only in the rules: all of 192.0.2.0/24 and 2001:db8::/32 is local here.
    run("ip", &["route", "add", "local", "192.0.2.0/24", "dev", "lo"]);
    run("ip", &["route", "add", "local", "2001:db8::/32", "dev", "lo"]);
    run("nft", &["add table inet lab"]);
    run("nft", &["add chain inet lab out { type nat hook output priority -100 ; }"]);
    run("nft", &["add rule inet lab out tcp dport 443 redirect to :7443"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (listen, destination) in [
            ("0.0.0.0:7443", "192.0.2.7:443"),
            ("[::]:7443", "[2001:db8::7]:443"),
            ("[::]:7443", "192.0.2.8:443"),
        ] {
            let destination = destination.parse().unwrap();
            let (stream, _) = accepted(listen.parse().unwrap(), |_| destination).await;
            assert_eq!(original_destination(&stream).unwrap(), Some(destination));
        }
    });
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program)
        .args(arguments)
        .status()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{program} {arguments:?}");
}
