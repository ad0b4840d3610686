//! Clients that show a certificate, and those that have none.

use std::fs;

use headstart_testkit::Authority;
use openssl::base64::encode_block;
use openssl::x509::X509;
use rustix::process::Signal;

use super::raw;
use super::tools::{Outcome, curl, request, s_client};
use crate::edge::{Edge, fails, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";
/// As s_client is told of them.
const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];
const FORGED: &str = "Client-Cert: :Zm9yZ2Vk:";

/// An authority in the file `authority.pem`, a client of it, and a stranger.
fn files() -> Files {
    let (files, authority) = (Files::new(), Authority::new());
    files.write("authority.pem", &authority.pem(), 0o644);
    let client = authority.issue(&["client.example"]);
    files.write("client.pem", &client.chain, 0o644);
    files.write("client.key", &client.key, 0o600);
    files.issue(NAME);
    files.issue("stranger");
    files
}

/// An edge that knows the authority, and its origin.
fn site(files: &Files, arguments: &[&str]) -> (Origin, Edge) {
    let origin = Origin::start();
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
    let files = files();
    let (origin, edge) = site(&files, &[]);
    for protocol in ["--http1.1", "--http2"] {
        let flags = [protocol, "-H", FORGED, "-H", "Client_Cert_Chain: :Zm9yZ2Vk:"];
        let text = visit(&edge, &files, Some("client"), &flags).ok();
        let text = String::from_utf8(text).unwrap();
        let found: Vec<_> = text.lines().filter(|line| line.starts_with("client")).collect();
        assert_eq!(found, [line(&files, "client")], "{text}");
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
    let files = files();
    let (_origin, edge) = site(&files, &["--client-auth=optional"]);
    let without = visit(&edge, &files, None, &["-H", FORGED]);
    let text = String::from_utf8(without.ok()).unwrap();
    assert!(!text.contains("client-cert"), "{text}");
    let with = visit(&edge, &files, Some("client"), &[]);
    let text = String::from_utf8(with.ok()).unwrap();
    assert!(text.contains(&line(&files, "client")), "{text}");
    assert_ne!(visit(&edge, &files, Some("stranger"), &[]).code, Some(0));
}

/// Comes with the certificate of the client or without, and leaves with a session in the file
/// `version`.
fn first(edge: &Edge, files: &Files, version: &str, certificate: bool) -> String {
    let (session, shown) = (files.path(version), files.certificate("client"));
    // s_client has one dash.
    let shown = shown.each_ref().map(|option| option.trim_start_matches("--"));
    let [_, chain, _, key] = shown;
    let shown = ["-cert", chain, "-key", key];
    let shown = if certificate { &shown[..] } else { &[] };
    let flags = [&[version, "-sess_out", &session], shown].concat();
    s_client(edge, NAME, &flags, &request("GET", "/head", NAME))
}

/// Comes back with the session in the file `version`.
fn resume(edge: &Edge, files: &Files, version: &str) -> String {
    let session = files.path(version);
    s_client(edge, NAME, &[version, "-sess_in", &session], &request("GET", "/head", NAME))
}

/// A session stands for the certificate of its first handshake, until the authorities change.
#[test]
fn a_session_stands_for_its_certificate() {
    let files = files();
    let (_origin, edge) = site(&files, &[]);
    for version in VERSIONS {
        let first = first(&edge, &files, version, true);
        let line = line(&files, "client");
        assert!(first.contains(&line), "{first}");
        let resumed = resume(&edge, &files, version);
        assert!(resumed.contains("Reused, TLSv1.") && resumed.contains(&line), "{resumed}");
    }
    let stranger = fs::read(files.path("stranger.pem")).unwrap();
    files.write("authority.pem", &stranger, 0o644);
    until("the authorities are read again", || edge.logged("certificates read again") == 1);
    for version in VERSIONS {
        let refused = resume(&edge, &files, version);
        assert!(!refused.contains("HTTP/1.1 200"), "{refused}");
    }
    visit(&edge, &files, Some("stranger"), &[]).ok();
}

#[test]
fn a_session_of_before_stands_for_no_certificate() {
    let (files, origin) = (files(), Origin::start());
    let [certificate, authority] = [files.certificate(NAME), files.certificate("authority")];
    let [_, cert, _, key] = certificate;
    let before =
        format!("[edge]\norigin = \"{}\"\ncert = \"{cert}\"\nkey = \"{key}\"\n", origin.http());
    let config = files.write("edge.toml", before.as_bytes(), 0o600);
    let edge = Edge::start(&files, &[], &["--config", &config]);
    for version in VERSIONS {
        let first = first(&edge, &files, version, false);
        assert!(first.contains("HTTP/1.1 200"), "{first}");
        assert!(resume(&edge, &files, version).contains("Reused, TLSv1."));
    }
    let after = format!("{before}client-ca = \"{}\"\n", authority[1]);
    files.write("edge.toml", after.as_bytes(), 0o600);
    edge.signal(Signal::HUP);
    until("it is read", || edge.logged("configuration read again") == 1);
    for version in VERSIONS {
        let refused = resume(&edge, &files, version);
        assert!(!refused.contains("HTTP/1.1 200"), "{refused}");
    }
    // Without its authorities the word would let everybody in.
    files.write("edge.toml", format!("{before}client-auth = \"required\"\n").as_bytes(), 0o600);
    edge.signal(Signal::HUP);
    until("the mistake is noticed", || edge.logged("--client-auth is given, and no") == 1);
    assert_ne!(visit(&edge, &files, None, &[]).code, Some(0));
    visit(&edge, &files, Some("client"), &[]).ok();
}

#[test]
fn a_server_without_http_has_such_clients_alone() {
    let files = files();
    let (authority, origin) =
        (files.path("authority.pem"), format!("--origin=tcp://{}", raw::line()));
    let edge = Edge::start(&files, &[NAME], &["--client-ca", &authority, &origin]);
    let shown = files.certificate("client");
    let [_, chain, _, key] = shown.each_ref().map(String::as_str);
    let served = s_client(&edge, NAME, &["-cert", chain, "-key", key], "hello\n");
    assert!(served.contains("got: hello"), "{served}");
    let refused = s_client(&edge, NAME, &[], "hello\n");
    assert!(!refused.contains("got: "), "{refused}");
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
    for other in ["--early-data-requests=safe", "--ticket-peers=nginx", "--resume-across-names"] {
        let text = refused(authority, &[other]);
        let (name, _) = other.split_once('=').unwrap_or((other, ""));
        assert!(text.contains(&format!("--client-ca and {name} exclude")), "{text}");
    }
    let text = refused(key, &[]);
    assert!(text.contains("no certificate in") && text.contains("of authorities"), "{text}");
    let text =
        fails(&[&certificate[..], &["--origin=http://[::1]:1", "--client-auth=required"]].concat());
    assert!(text.1.contains("--client-auth is given, and no --client-ca"), "{text:?}");
}
