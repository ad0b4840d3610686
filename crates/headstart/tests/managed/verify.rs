//! The agent verifies certificates, with the roots that the program names.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::{fs, thread};

use crate::agent::Agent;
use crate::client::{Answer, call, connect};
use crate::edge::{closed, until};
use crate::server::{NAME, PAGE, Server, files, served};

fn ask(agent: &Agent, server: &Server, fields: &[(&str, &str)]) -> Answer {
    let managed = [("Headstart-TLS", "managed")];
    connect(agent, &server.address.to_string(), &[&managed[..], fields].concat())
}

#[test]
fn a_certificate_of_an_unknown_issuer_is_refused_with_a_hint() {
    let (_files, server, agent) = served(PAGE);
    let answer = ask(&agent, &server, &[("Headstart-Server-Name", NAME)]);
    assert_eq!(answer.refused(), (502, "certificate_untrusted"));
    let text = answer.rest();
    assert!(text.contains("\nhint: if you know its issuer"), "{text}");
    agent.until_audited(&["connection refused", "certificate_untrusted"], 1);
    until("the cause is logged", || agent.logged("no TLS with the server: ") == 1);
    assert_eq!(agent.count("headstart_tls_handshakes_total", &["certificate_untrusted"]), 1);
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let (files, server, agent) = served(PAGE);
    let roots = files.path(&format!("{NAME}.pem"));
    for name in ["other.example.com", "127.0.0.1"] {
        let fields = [("Headstart-Server-Name", name), ("Headstart-Verify", roots.as_str())];
        assert_eq!(ask(&agent, &server, &fields).refused(), (502, "certificate_name"), "{name}");
    }
    let without_name = [("Headstart-Verify", roots.as_str())];
    assert_eq!(ask(&agent, &server, &without_name).refused(), (502, "certificate_name"));
}

#[test]
fn an_expired_certificate_is_refused() {
    let files = files();
    files.issue_until(NAME, -60);
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    assert_eq!(server.connect(&agent, &[]).refused(), (502, "certificate_expired"));
}

#[test]
fn unusable_roots_are_refused() {
    let (files, server, agent) = served(PAGE);
    let no_pem = files.write("no.pem", b"nothing", 0o644);
    for path in ["/nonexistent/roots.pem", "/dev/zero", no_pem.as_str()] {
        let answer = ask(&agent, &server, &[("Headstart-Verify", path)]);
        assert_eq!(answer.refused(), (400, "roots"), "{path}");
    }
}

/// The file's content tells roots apart, so that no session verified with the old ones is used.
#[test]
fn sessions_are_not_resumed_once_their_roots_have_changed() {
    let (files, server, agent) = served(PAGE);
    assert!(!server.visit(&agent, &[]));
    assert!(server.visit(&agent, &[]));
    // The file of roots now has another certificate than the server.
    files.issue(NAME);
    let (status, error) = server.connect(&agent, &[]).owned_refusal();
    assert!(status == 502 && error.starts_with("certificate"), "{status} {error}");
}

#[test]
fn an_absent_server_and_one_without_tls_have_errors_of_their_own() {
    let agent = Agent::start(&[]);
    let to = closed().to_string();
    let answer = connect(&agent, &to, &[("Headstart-TLS", "managed")]);
    assert_eq!(answer.refused(), (502, "refused"));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = plain.local_addr().unwrap().to_string();
    let greeting = thread::spawn(move || {
        let (mut tcp, _) = plain.accept().unwrap();
        tcp.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    let answer = connect(&agent, &to, &[("Headstart-TLS", "managed")]);
    assert_eq!(answer.refused(), (502, "tls"));
    greeting.join().unwrap();
}

#[test]
fn a_client_certificate_is_shown_and_its_sessions_serve_those_who_show_it() {
    let files = files();
    files.issue("client.example");
    let parts = ["pem", "key"]
        .map(|ending| fs::read(files.path(&format!("client.example.{ending}"))).unwrap());
    let both = files.write("both.pem", &parts.concat(), 0o600);
    let agent = Agent::start(&["--client-certificate", &format!("work={both}")]);
    let trusted = files.path("client.example.pem");
    let server = Server::start(
        &files,
        &[
            "-www",
            "-Verify",
            "1",
            "-verify_return_error",
            "-CAfile",
            &trusted,
            "-max_early_data",
            "16384",
        ],
    );
    let certificate = [("Headstart-Client-Certificate", "work")];
    let isolated = [certificate[0], ("Headstart-Policy", "isolate")];
    for (fields, resumed) in
        [(&certificate[..], false), (&certificate, true), (&isolated, false), (&certificate, true)]
    {
        let answer = server.connect(&agent, fields);
        assert_eq!(answer.resumed(), resumed, "{fields:?}");
        // The server insists on a certificate: that of the session is as good.
        assert!(answer.get("/").contains("HTTP/1.0 200 ok"));
    }
    agent.until_audited(&["certificate=\"work\""], 4);
    let (_, report) = call(&agent, "GET", "/sessions", "");
    let sessions = report["sessions"].as_array().unwrap();
    assert!(!sessions.is_empty(), "{report}");
    assert!(sessions.iter().all(|one| one["early_data"] == 0), "{report}");
    let unknown = server.connect(&agent, &[("Headstart-Client-Certificate", "home")]);
    assert_eq!(unknown.refused(), (403, "certificate_not_allowed"));
}
