//! Starts of an edge: their order, errors that keep it from starting, and others that do not.

use super::tools::curl;
use crate::edge::{Edge, fails};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// Returns the message of an edge with the certificate for [`NAME`] and `arguments` that does not
/// start.
fn startup_error(files: &Files, arguments: &[&str]) -> String {
    let certificate = files.certificate(NAME);
    let mut all: Vec<_> = certificate.iter().map(String::as_str).collect();
    all.push("--origin=http://localhost:1");
    all.extend(arguments);
    let (code, text) = fails(&all);
    assert_eq!(code, Some(2), "{text}");
    text
}

/// The unit tests of ring, certificates and options have the other mistakes.
#[test]
fn unusable_keys_and_certificates_keep_it_from_starting() {
    let files = Files::new();
    files.issue(NAME);
    let message = startup_error(&files, &["--keys", &files.path("none")]);
    assert!(message.contains("\nhint: `headstart keys new "), "{message}");
    let key = std::fs::read(files.path(&format!("{NAME}.key"))).unwrap();
    files.write(&format!("{NAME}.key"), &key, 0o644);
    let message = startup_error(&files, &[]);
    assert!(message.contains("everybody may use the private key in "), "{message}");
}

#[test]
fn an_expired_certificate_is_served_and_logged() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue_until(NAME, -60);
    let origins = format!("--origin={NAME}={},none.example.com={0}", origin.http());
    let edge = Edge::start(&files, &[NAME], &[&origins]);
    assert_eq!(edge.logged("certificate has expired"), 1);
    assert_eq!(edge.logged("no certificate is for this name"), 1);
    assert!(edge.log().contains("name=none.example.com"));
    assert_eq!(curl(&edge, &files, NAME, "/head", &[]).code, Some(60), "curl does not want it");
    curl(&edge, &files, NAME, "/head", &["-k"]).ok();
}

/// The gauge of responses is made with the first request, and made earlier would count nothing ever
/// after.
#[test]
fn metrics_begin_before_connections_can_come() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let log = edge.log();
    let [metrics, listening] =
        ["metrics address=", "listening address="].map(|words| log.find(words).unwrap());
    assert!(metrics < listening, "{log}");
}
