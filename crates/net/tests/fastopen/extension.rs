//! Cookies handed out beside tickets, in the TLS extension: for programs that do TLS themselves.

use std::sync::Arc;

use headstart_net::{Carrier, Connector, Context, FastOpenNotUsed, Report, Target, TlsStream};
use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{
    CertifiedKey, ClientConfig, ClientContext, CookiePolicy, ServerConfig, ServerContext,
    SharedRing, Trust,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connector::connector;
use crate::refused::no_kernel_cookie;
use crate::server::{Options, Server};
use crate::support::now;
use crate::world::{LINE, TIMEOUT, World, block_on};

/// Without any session, the second connection opens with a cookie from the extension of the first,
/// for the same user only.
pub(crate) fn cookies_by_the_extension() {
    let world = World::new();
    let ring = KeyRing::generate(UnixSeconds(now()), PERIOD).unwrap();
    let keys = Some(ring.cookies());
    let mut config = ServerConfig::new(vec![certificate()], Arc::new(SharedRing::new(ring)));
    config.cookies = Some(CookiePolicy::default());
    let tls = Some(Arc::new(ServerContext::new(&config).unwrap()));
    let server = Server::with(&world, Options { keys, tls, ..Options::default() });
    let visits = async {
        let (connector, tls) = (connector(world.to(0)), client());
        let mut opened = Vec::new();
        for user in [1, 1, 2, 1] {
            let report = visit(&connector, &tls, Context::user(user)).await;
            opened.push((report.opened_by, report.fast_open_not_used));
        }
        opened
    };
    let opened = world.client().run(|| block_on(visits)).unwrap();
    let without = (Carrier::Tcp, Some(FastOpenNotUsed::NoCookie));
    let fast = (Carrier::Fop, None);
    assert_eq!(opened, [without, fast, without, fast]);
    assert_eq!(world.capture.cookies().len(), 2);
    no_kernel_cookie(&world);
    assert!(server.served(4).iter().all(|(_, line)| line == LINE));
}

/// Sends a line inside TLS and reads its echo; keeps the cookies that came with it.
async fn visit(connector: &Connector, tls: &ClientContext, context: Context) -> Report {
    let target = Target { context, ..Target::new("www.example", 443) };
    let conn = tls.connect("www.example", None, connector.asks_for_cookies(&target)).unwrap();
    let mut stream = TlsStream::new(conn, connector.connect(&target).unwrap());
    let mut answer = Vec::new();
    let talk = async {
        stream.write_all(LINE).await?;
        stream.read_to_end(&mut answer).await
    };
    tokio::time::timeout(TIMEOUT, talk).await.expect("the server did not answer").unwrap();
    assert_eq!(answer, LINE);
    let handle = stream.handle();
    let report = handle.with_transport(|stream| stream.report().cloned()).flatten().unwrap();
    while let Some(new) = handle.take_session() {
        let cookies = new.cookies.iter().map(|offered| (offered.cookie, offered.lifetime));
        connector.keep_cookies(&target, &report, cookies);
    }
    report
}

fn client() -> ClientContext {
    let mut config = ClientConfig::new(Trust::Anyone);
    // Small enough for a SYN.
    config.groups = Some("X25519".into());
    ClientContext::new(&config).unwrap()
}

fn certificate() -> CertifiedKey {
    let issued = headstart_testkit::self_signed(&[], 0..headstart_testkit::DAY);
    CertifiedKey::from_pem(&issued.chain, &issued.key).unwrap()
}
