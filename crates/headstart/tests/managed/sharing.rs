//! Different programs share sessions, and public facts are reported.

use openssl::base64::decode_block;
use openssl::x509::X509;

use crate::agent::Agent;
use crate::client::{call, connect};
use crate::edge::Edge;
use crate::files::Files;
use crate::origin::Origin;
use crate::server::{NAME, PAGE, fields, served};

#[test]
fn the_second_program_resumes_what_the_first_began() {
    let (files, server, agent) = served(PAGE);
    let first = server.connect(&agent, &[]);
    assert!(!first.resumed());
    assert_eq!(first.field("Headstart-Version"), "TLS 1.3");
    assert!(first.field("Headstart-Cipher").starts_with("TLS_"));
    assert_eq!(first.field("Headstart-Opening"), "plain");
    assert_eq!(first.field("Headstart-Early-Data"), "none");
    assert_eq!(first.field("Headstart-ALPN"), "");
    assert!(first.field("Headstart-Ledger").contains("tls="));
    let der = decode_block(first.field("Headstart-Certificate")).unwrap();
    let pem = std::fs::read(files.path(&format!("{NAME}.pem"))).unwrap();
    assert_eq!(der, X509::from_pem(&pem).unwrap().to_der().unwrap());
    assert!(first.get("/").contains("New, TLSv1.3"));

    let second = server.connect(&agent, &[]);
    assert!(second.resumed());
    assert_eq!(decode_block(second.field("Headstart-Certificate")).unwrap(), der);
    assert!(second.get("/").contains("Reused, TLSv1.3"));
    agent.until_audited(&["managed connection", "resumed=true"], 1);
    agent.until_audited(&["managed connection", "resumed=false"], 1);
    for resumed in ["resumed=\"yes\"", "resumed=\"no\""] {
        assert_eq!(agent.count("headstart_tls_handshakes_total", &[resumed]), 1, "{resumed}");
    }
}

#[test]
fn sessions_of_tls_1_2_are_shared_too() {
    let (_files, server, agent) = served(&["-www", "-tls1_2"]);
    assert!(!server.visit(&agent, &[]));
    for _ in 0..3 {
        assert!(server.visit(&agent, &[]), "they may be offered again");
    }
    let answer = server.connect(&agent, &[]);
    assert_eq!(answer.field("Headstart-Version"), "TLS 1.2");
}

/// An interceptor that hands out sessions to who checks nothing must not be believed by who does.
#[test]
fn who_differs_in_settings_shares_nothing() {
    let (_files, server, agent) = served(PAGE);
    assert!(!server.visit(&agent, &[]));
    assert!(!server.visit(&agent, &[("Headstart-ALPN", "http/1.1")]));
    let anyone = connect(
        &agent,
        &server.address.to_string(),
        &[
            ("Headstart-TLS", "managed"),
            ("Headstart-Server-Name", NAME),
            ("Headstart-Verify", "none"),
        ],
    );
    assert!(!anyone.resumed());
    anyone.get("/");
    assert!(server.visit(&agent, &[]), "each has its own");
    assert!(server.visit(&agent, &[("Headstart-ALPN", "http/1.1")]));
}

#[test]
fn sessions_are_listed_without_secrets() {
    let (_files, server, agent) = served(PAGE);
    server.visit(&agent, &[("Headstart-Context", "work")]);
    let (status, report) = call(&agent, "GET", "/sessions", "");
    assert_eq!(status, 200);
    let rows = report["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{report}");
    let row = rows[0].as_object().unwrap();
    assert_eq!((&row["server"], &row["context"]), (&NAME.into(), &"work".into()));
    assert_eq!(row["uid"], rustix::process::getuid().as_raw());
    assert!(row["tickets"].as_u64().unwrap() >= 1);
    let known = [
        "server",
        "context",
        "uid",
        "alpn",
        "tickets",
        "bytes",
        "newest_ms",
        "expires_ms",
        "early_data",
    ];
    assert!(row.keys().all(|name| known.contains(&name.as_str())), "{report}");
}

/// Returns true if a connection to the second name of an edge's certificate resumes the session of
/// one to the first.
fn resumes_under_another_name(arguments: &[&str], policy: &str) -> bool {
    let (files, origin, agent) = (Files::new(), Origin::start(), Agent::start(&[]));
    files.issue_for(&[NAME, "api.example.com"]);
    let origin = format!("--origin={}", origin.http());
    let edge = Edge::start(&files, &[NAME], &[&[&origin[..]], arguments].concat());
    assert_eq!(call(&agent, "PUT", "/policies/", policy).0, 200);
    let roots = files.path(&format!("{NAME}.pem"));
    let [first, elsewhere, again, third] = [NAME, "api.example.com", NAME, "api.example.com"]
        .map(|name| visit_at(&agent, &edge, &fields(name, &roots)));
    assert!(!first && again && third, "each has its own by now");
    elsewhere
}

/// Reads a page over a new connection; returns true if its TLS session was resumed.
fn visit_at(agent: &Agent, edge: &Edge, fields: &[(&str, &str)]) -> bool {
    let answer = connect(agent, &edge.address.to_string(), fields);
    let resumed = answer.resumed();
    assert!(answer.get("/bytes/10").contains("200"));
    resumed
}

#[test]
fn names_of_a_certificate_share_sessions_where_server_and_policy_say_so() {
    let (edge, policy) = (&["--resume-across-names"][..], r#"{"sharing": "certificate"}"#);
    assert!(resumes_under_another_name(edge, policy));
    assert!(!resumes_under_another_name(edge, r#"{"sharing": "share"}"#));
    assert!(!resumes_under_another_name(&[], policy));
}
