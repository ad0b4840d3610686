//! Clients that show a certificate, and those that have none.

use std::fs;

use openssl::base64::encode_block;
use openssl::x509::X509;

use super::tools::{Outcome, curl, request, s_client};
use crate::edge::{Edge, fails, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";
const FORGED: &str = "Client-Cert: :Zm9yZ2Vk:";

/// An edge that knows an authority, in the file `authority.pem`, and its origin.
fn site(files: &Files, arguments: &[&str]) -> (Origin, Edge) {
    let origin = Origin::start();
    for name in [NAME, "authority", "stranger"] {
        files.issue(name);
    }
    let (authority, before) = (files.path("authority.pem"), format!("--origin={}", origin.http()));
    let all = [&["--client-ca", &authority, before.as_str()], arguments].concat();
    let edge = Edge::start(files, &[NAME], &all);
    (origin, edge)
}

fn visit(edge: &Edge, files: &Files, certificate: Option<&str>, flags: &[&str]) -> Outcome {
    let shown = certificate.map(|name| files.certificate(name));
    let shown = shown.iter().flatten().map(String::as_str);
    curl(edge, files, NAME, "/head", &flags.iter().copied().chain(shown).collect::<Vec<_>>())
}

/// The line that an origin gets of a client with the certificate `name`.
fn line(files: &Files, name: &str) -> String {
    let pem = fs::read(files.path(&format!("{name}.pem"))).unwrap();
    let der = X509::from_pem(&pem).unwrap().to_der().unwrap();
    format!("client-cert: :{}:", encode_block(&der))
}

#[test]
fn the_origin_gets_the_certificate_and_no_claim_of_one() {
    let files = Files::new();
    let (origin, edge) = site(&files, &[]);
    for protocol in ["--http1.1", "--http2"] {
        let flags = [protocol, "-H", FORGED, "-H", "Client_Cert_Chain: :Zm9yZ2Vk:"];
        let text = visit(&edge, &files, Some("authority"), &flags).ok();
        let text = String::from_utf8(text).unwrap();
        let found: Vec<_> = text.lines().filter(|line| line.starts_with("client")).collect();
        assert_eq!(found, [line(&files, "authority")], "{text}");
    }
    for certificate in [None, Some("stranger")] {
        let refused = visit(&edge, &files, certificate, &[]);
        assert_ne!(refused.code, Some(0), "{certificate:?} {}", refused.err);
    }
    assert_eq!(origin.requests("GET /head"), 2);
    until("the refused handshakes are counted", || {
        edge.count("headstart_tls_handshakes_total", &["result=\"failed\""]) == 2
    });
}

#[test]
fn a_client_may_have_none_where_it_is_optional() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &["--client-auth=optional"]);
    let without = visit(&edge, &files, None, &["-H", FORGED]);
    let text = String::from_utf8(without.ok()).unwrap();
    assert!(!text.contains("client-cert"), "{text}");
    let with = visit(&edge, &files, Some("authority"), &[]);
    let text = String::from_utf8(with.ok()).unwrap();
    assert!(text.contains(&line(&files, "authority")), "{text}");
    assert_ne!(visit(&edge, &files, Some("stranger"), &[]).code, Some(0));
}

/// Comes back with the session in the file `version`.
fn resume(edge: &Edge, files: &Files, version: &str) -> String {
    let session = files.path(version);
    s_client(edge, NAME, &[version, "-sess_in", &session], &request("GET", "/head", NAME))
}

/// A session stands for the certificate of its first handshake, until the authorities change.
#[test]
fn a_session_stands_for_its_certificate() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let (session, shown) = (files.path(version), files.certificate("authority"));
        // s_client has one dash.
        let shown = shown.each_ref().map(|option| option.trim_start_matches("--"));
        let [_, certificate, _, key] = shown;
        let flags = [version, "-sess_out", &session, "-cert", certificate, "-key", key];
        let first = s_client(&edge, NAME, &flags, &request("GET", "/head", NAME));
        let line = line(&files, "authority");
        assert!(first.contains(&line), "{first}");
        let resumed = resume(&edge, &files, version);
        assert!(resumed.contains("Reused, TLSv1.") && resumed.contains(&line), "{resumed}");
    }
    let stranger = fs::read(files.path("stranger.pem")).unwrap();
    files.write("authority.pem", &stranger, 0o644);
    until("the authorities are read again", || edge.logged("certificates read again") == 1);
    for version in ["-tls1_2", "-tls1_3"] {
        let refused = resume(&edge, &files, version);
        assert!(!refused.contains("HTTP/1.1 200"), "{refused}");
    }
    visit(&edge, &files, Some("stranger"), &[]).ok();
}

#[test]
fn what_excludes_client_certificates_is_refused_at_the_start() {
    let files = Files::new();
    files.issue(NAME);
    let certificate = files.certificate(NAME);
    let (authority, key) = (certificate[1].as_str(), certificate[3].as_str());
    let certificate = certificate.each_ref().map(String::as_str);
    let refused = |authority: &str, options: &[&str]| {
        let options = [&["--origin=http://[::1]:1", "--client-ca", authority], options].concat();
        let (code, text) = fails(&[&certificate[..], &options].concat());
        assert_eq!(code, Some(2), "{text}");
        text
    };
    let text = refused(authority, &["--early-data-requests=safe"]);
    assert!(text.contains("turn early data or client certificates off"), "{text}");
    let text = refused(authority, &["--ticket-peers=nginx"]);
    assert!(text.contains("share tickets with other programs, or ask"), "{text}");
    let text = refused(key, &[]);
    assert!(text.contains("no certificate in") && text.contains("of authorities"), "{text}");
}
