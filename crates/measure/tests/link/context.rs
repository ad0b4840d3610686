//! The user of a redirected connection: that of the socket that believes to be connected to
//! somewhere else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headstart::base::peer_user::tcp_user;
use headstart_net::original_destination;
use tokio::net::{TcpListener, TcpStream};

use crate::net::{HTTPS, Net, PATIENCE, ms};

const PORT: u16 = 1090;

/// Addresses that nobody has, and where connections to them end.
const REDIRECTED: [(&str, &str, IpAddr); 2] = [
    ("ip", "10.99.0.1", IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ("ip6", "fd99::1", IpAddr::V6(Ipv6Addr::LOCALHOST)),
];

pub(crate) fn of_a_redirected_client() {
    let net = Net::new(ms(1));
    for (family, elsewhere, here) in REDIRECTED {
        let rule = format!("output {family} daddr {elsewhere} tcp dport 443 redirect to :{PORT}");
        net.rules("client", family, &[&rule]);
        let elsewhere = SocketAddr::new(elsewhere.parse().unwrap(), HTTPS);
        let owner = net.client().run(|| block_on(ask(elsewhere, (here, PORT).into()))).unwrap();
        let me = rustix::process::getuid().as_raw();
        assert_eq!(owner, (Some(elsewhere), Some(me), None), "{family}");
    }
}

/// The destination of a client that connects to `elsewhere`, and its user: if that is known, and if
/// not.
async fn ask(
    elsewhere: SocketAddr,
    here: SocketAddr,
) -> (Option<SocketAddr>, Option<u32>, Option<u32>) {
    let listener = TcpListener::bind(here).await.unwrap();
    let both = async { tokio::join!(TcpStream::connect(elsewhere), listener.accept()) };
    let (client, accepted) = tokio::time::timeout(PATIENCE, both).await.expect("no connection");
    let (_client, server) = (client.unwrap(), accepted.unwrap().0);
    let redirected = original_destination(&server).unwrap();
    (redirected, tcp_user(&server, redirected), tcp_user(&server, None))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
