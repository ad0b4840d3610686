//! Managed TLS through a SOCKS5 proxy: sessions are resumed and early data sent as without one.

use std::io::Write;

use openssl::base64::encode_block;

use crate::agent::Agent;
use crate::client::call;
use crate::edge::until;
use crate::server::{Server, files};
use crate::socks::Proxy;

const EARLY: &str = "first-words-through-a-proxy";

#[test]
fn sessions_and_early_data_go_through_it() {
    let (files, proxy) = (files(), Proxy::start(0));
    let upstream = format!("socks5://{}", proxy.at);
    // The proxy is not asked again, however long the server takes.
    let options = ["--upstream", &upstream, "--upstream-optimistic", "always"];
    let (server, agent) = (Server::start(&files, &["-early_data"]), Agent::start(&options));
    for (became, resumed, words) in [("none", "0", "words-one\n"), ("accepted", "1", "words-two\n")]
    {
        let early = encode_block(EARLY.as_bytes());
        let answer = server.connect(&agent, &[("Headstart-Early-Data", &early)]);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("Headstart-Early-Data"), became);
        assert_eq!(answer.field("Headstart-Resumed"), resumed);
        assert_eq!(answer.field("Headstart-Opening"), "optimistic");
        let ledger = answer.field("Headstart-Ledger").to_owned();
        assert!(ledger.contains("granted=") && !ledger.contains("lookup="), "{ledger}");
        let mut stream = answer.stream;
        stream.write_all(words.as_bytes()).unwrap();
        until("the server hears it", || server.output().contains(words));
        until("a ticket is kept", || {
            let (_, report) = call(&agent, "GET", "/sessions", "");
            report["sessions"].as_array().is_some_and(|rows| !rows.is_empty())
        });
    }
    assert_eq!(server.output().matches(EARLY).count(), 1, "{}", server.output());
    assert_eq!(proxy.requests().len(), 2);
    assert!(proxy.requests().iter().all(|request| request.user.is_none()));
}
