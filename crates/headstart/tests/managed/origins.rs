//! The edge as the server: the best opening is used for managed connections, too.

use crate::agent::Agent;
use crate::client::connect;
use crate::edge::Edge;
use crate::front::Front;
use crate::origin::Origin;
use crate::server::{NAME, fields, files};

const VISITS: usize = 3;

#[test]
fn a_managed_connection_opens_with_turbotls_and_resumes() {
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let front = Front::new(edge.address, edge.address);
    let at_edge = format!("{NAME}={}", front.address);
    let agent = Agent::start(&["--edge", &at_edge, "--opening", "turbo"]);
    let (to, roots) = (format!("{NAME}:443"), files.path(&format!("{NAME}.pem")));
    let fields = [
        ("Headstart-TLS", "managed"),
        ("Headstart-Verify", roots.as_str()),
        ("Headstart-ALPN", "http/1.1"),
    ];
    for number in 0..VISITS {
        front.hold();
        let answer = connect(&agent, &to, &fields);
        assert_eq!(answer.resumed(), number > 0);
        assert_eq!(answer.field("Headstart-ALPN"), "http/1.1");
        assert!(answer.field("Headstart-Ledger").contains("rtt="));
        assert_eq!(answer.field("Headstart-Opening"), "turbo");
        assert!(answer.get("/head").starts_with("HTTP/1.1 200"));
    }
    assert_eq!(origin.requests("GET /head"), VISITS);
}

/// The edge answers requests for tickets (RFC 9149), so several programs can resume at once.
#[test]
fn an_edge_hands_out_as_many_tickets_as_are_asked_for() {
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let agent = Agent::start(&[]);
    let roots = files.path(&format!("{NAME}.pem"));
    let fields = fields(NAME, &roots);
    connect(&agent, &edge.address.to_string(), &fields).get("/head");
    let (_, report) = crate::client::call(&agent, "GET", "/sessions", "");
    assert_eq!(report["sessions"][0]["tickets"], 4, "{report}");
}

/// Programs that do their own TLS get the bytes, as on the agent's other ports.
#[test]
fn without_managed_tls_bytes_pass_unchanged() {
    let (files, origin) = (files(), Origin::start());
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let agent = Agent::start(&[]);
    let answer = connect(&agent, &origin.address.to_string(), &[]);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("Headstart-Opening"), "");
    assert!(answer.get("/head").starts_with("HTTP/1.1 200"), "plain HTTP through it");
    let to_edge = connect(&agent, &edge.address.to_string(), &[("Headstart-Context", "work")]);
    assert_eq!(to_edge.status, 200);
    let refused = connect(&agent, &crate::edge::closed().to_string(), &[]);
    assert_eq!(refused.refused(), (502, "refused"));
}
