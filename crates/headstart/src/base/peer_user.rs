//! The user at the other end of a connection, as the kernel says: the first half of an
//! application's context, and whose share of a listener it takes.
//!
//! The second half of a context, what the application calls itself (its SOCKS5 user name), only
//! divides what is that user's. Where the kernel cannot say, nothing is shared.

use std::net::SocketAddr;

use headstart_net::{is_anyone, tcp_owner};
use tokio::net::{TcpStream, UnixStream};

/// The user at the other end of a TCP connection, if it is on this machine. `redirected` is where
/// that end believes to be connected to, if not here.
///
/// Ask as soon as the connection is accepted: of one that is closed the kernel does not know it.
pub fn tcp_user(client: &TcpStream, redirected: Option<SocketAddr>) -> Option<u32> {
    let peer = client.peer_addr().ok()?;
    let server = redirected.or_else(|| client.local_addr().ok())?;
    let owner = match tcp_owner(peer, server) {
        Ok(owner) => owner?,
        Err(error) => {
            tracing::debug!(%error, "cannot find out whose a connection is");
            return None;
        }
    };
    // If it was reset meanwhile, another user's connection could have come in its place; one that
    // is not in use any more has no peer.
    client.peer_addr().ok().map(|_| owner)
}

/// The user at the other end of a Unix socket, when it connected.
pub fn unix_user(client: &UnixStream) -> Option<u32> {
    let user = client.peer_cred().ok()?.uid();
    (!is_anyone(user)).then_some(user)
}

#[cfg(test)]
mod tests {
    use headstart_testkit::pair;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    fn me() -> Option<u32> {
        Some(rustix::process::getuid().as_raw()).filter(|uid| !is_anyone(*uid))
    }

    #[tokio::test]
    async fn a_client_on_this_machine_has_a_user() {
        let (mut client, server) = pair().await;
        assert_eq!(tcp_user(&server, None), me());
        client.write_all(b"ahead of the answer").await.unwrap();
        assert_eq!(tcp_user(&server, None), me());
    }

    /// Else a user could leave its own share by an early shutdown(2).
    #[tokio::test]
    async fn a_client_that_has_said_all_has_a_user() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.shutdown().await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(tcp_user(&server, None), me());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_has_none() {
        let (client, server) = pair().await;
        drop(client);
        assert_eq!(tcp_user(&server, None), None);
        let (client, server) = pair().await;
        client.set_zero_linger().unwrap();
        drop(client);
        assert_eq!(tcp_user(&server, None), None, "reset");
    }

    /// The client of a redirected connection is connected to somewhere else: nobody is found who is
    /// connected to where it is not.
    #[tokio::test]
    async fn a_redirected_client_is_looked_for_where_it_believes_to_be() {
        let (_client, server) = pair().await;
        let here = server.local_addr().unwrap();
        assert_eq!(tcp_user(&server, Some(here)), me());
        let elsewhere = "192.0.2.1:443".parse().unwrap();
        assert_eq!(tcp_user(&server, Some(elsewhere)), None);
    }

    #[tokio::test]
    async fn a_unix_socket_knows_its_user() {
        let (_client, server) = UnixStream::pair().unwrap();
        assert_eq!(unix_user(&server), me());
    }
}
