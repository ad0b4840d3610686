//! Connections of another user: needs root, to be another user.

use std::time::Duration;

use headstart::base::peer_user::tcp_user;
use headstart_testkit::has_net;
use tokio::net::TcpListener;
use tokio::process::Command;

/// A user that owns nothing else.
const OTHER: u32 = 54_321;

#[tokio::test]
async fn a_client_of_another_user_is_that_users() {
    if !has_net() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && read -r _ <&3");
    let mut client = Command::new("bash");
    client.args(["-c", &connect]).current_dir("/").uid(OTHER).kill_on_drop(true);
    let mut client = client.spawn().unwrap();
    let accepted = tokio::time::timeout(Duration::from_secs(120), listener.accept()).await;
    let (server, _) = accepted.expect("no connection").unwrap();
    assert_eq!(tcp_user(&server, None), Some(OTHER));
    client.kill().await.unwrap();
    assert_eq!(tcp_user(&server, None), None, "it is gone");
}
