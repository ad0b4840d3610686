//! An edge before an HTTP server.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use headstart::edge::HttpEdge;
use headstart_net::{Acceptor, AcceptorConfig, ProvenAddr, ServerStream, TlsHandle, TlsStream};
use headstart_proto::UnixSeconds;
use headstart_testkit::{DAY, self_signed};
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{
    CertifiedKey, ClientConfig, ClientContext, ServerConfig, ServerContext, SharedRing, Trust,
};
use tokio::net::TcpStream;

use super::super::options_of;
use super::origin::Origin;

pub(super) struct Site {
    pub(super) edge: HttpEdge,
    pub(super) origin: Origin,
}

impl Site {
    pub(super) async fn new() -> Self {
        let origin = Origin::new().await;
        let own = format!("--origin=a.test=http://{}", origin.address);
        // A name that other connections are for.
        let other = "--origin=b.test=http://127.0.0.1:1";
        let (tls, client) = client().await;
        let edge = HttpEdge::new(options_of(&[&own, other]), tls, client).unwrap();
        Self { edge, origin }
    }
}

/// Returns a client's connection that is through with its handshake: that of all bytes.
async fn client() -> (TlsHandle<ServerStream>, ProvenAddr) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let issued = self_signed(&["a.test"], 0..DAY);
    let certificate = CertifiedKey::from_pem(&issued.chain, &issued.key).unwrap();
    let ring = Arc::new(SharedRing::new(KeyRing::generate(UnixSeconds(now), PERIOD).unwrap()));
    let server = ServerContext::new(&ServerConfig::new(vec![certificate], ring)).unwrap();
    let client = ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap();

    let mut acceptor =
        Acceptor::bind("127.0.0.1:0".parse().unwrap(), AcceptorConfig::default()).unwrap();
    let tcp = TcpStream::connect(acceptor.local_addr()).await.unwrap();
    let conn = client.connect("a.test", None, false).unwrap();
    let client = TlsStream::new(conn, tcp);
    let accepted = async {
        let stream = acceptor.accept().await.unwrap().establish().await.unwrap().unwrap();
        let conn = server.accept(stream.peer_addr().ip(), UnixSeconds(now)).unwrap();
        let proven = stream.proven_addr();
        let tls = TlsStream::accepted(conn, stream, proven.clone());
        tls.handle().done().await.unwrap();
        (tls.handle(), proven)
    };
    let handle = client.handle();
    let (done, accepted) = tokio::join!(handle.done(), accepted);
    done.unwrap();
    accepted
}
