//! Certificates and keys that change while the edge runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;

use super::tools::{curl, request, s_client};
use crate::edge::{Edge, PATIENCE, until};
use crate::files::{Files, rotate};
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// Returns the subject of the certificate that the edge shows a client who asks for `name`.
fn subject(edge: &Edge, name: &str) -> String {
    subject_in(&s_client(edge, name, &[], &request("GET", "/head", NAME)))
}

fn subject_in(text: &str) -> String {
    let line =
        text.lines().find(|line| line.trim_start().starts_with("subject=")).unwrap_or_default();
    // OpenSSL's version decides whether there are spaces around the equals sign.
    line.rsplit("CN").next().unwrap_or_default().trim_start_matches([' ', '=']).to_owned()
}

/// Returns the certificate that the edge shows for [`NAME`].
fn certificate(edge: &Edge) -> String {
    let report = s_client(edge, NAME, &["-showcerts"], &request("GET", "/head", NAME));
    let begin = report.find("-----BEGIN CERTIFICATE-----").unwrap();
    report[begin..].split("-----END").next().unwrap().to_owned()
}

#[test]
fn each_name_has_its_certificate_and_others_have_the_first() {
    let (files, origin) = (Files::new(), Origin::start());
    for name in ["a.example", "b.example", "*.c.example"] {
        files.issue(name);
    }
    let names = ["a.example", "b.example", "*.c.example"];
    let edge = Edge::start(&files, &names, &[&format!("--origin={}", origin.http())]);
    for (name, shown) in [
        ("a.example", "a.example"),
        ("b.example", "b.example"),
        ("B.Example", "b.example"),
        ("x.c.example", "*.c.example"),
        ("x.y.c.example", "a.example"),
        ("unknown.example", "a.example"),
    ] {
        assert_eq!(subject(&edge, name), shown, "{name}");
    }
    let to = edge.address.to_string();
    let client = ["openssl", "s_client", "-ign_eof", "-noservername", "-connect", &to];
    let command = [&["timeout", "150"], &client[..]].concat();
    let text = super::tools::run(&command, &request("GET", "/head", "a.example"));
    assert_eq!(subject_in(&text), "a.example", "a client who asks for no name gets the first");
    assert!(text.contains("HTTP/1.1 200 OK"), "{text}");
}

/// Certbot replaces symbolic links to files, Kubernetes one to a directory.
#[test]
fn replaced_symbolic_links_are_followed() {
    let (files, origin) = (Files::new(), Origin::start());
    let origin = format!("--origin={}", origin.http());
    let relink = |link: &str, to: &str| {
        symlink(to, files.path("new")).unwrap();
        fs::rename(files.path("new"), files.path(link)).unwrap();
    };
    // Makes a certificate and its key in a directory of their own.
    let issue_into = |version: &str| {
        files.issue(NAME);
        fs::create_dir(files.path(version)).unwrap();
        for (from, to) in [("pem", "cert"), ("key", "key")] {
            let from = files.path(&format!("{NAME}.{from}"));
            fs::copy(from, files.path(&format!("{version}/{to}"))).unwrap();
        }
    };
    issue_into("archive1");
    relink("live-cert", "archive1/cert");
    relink("live-key", "archive1/key");
    relink("data", "archive1");
    let paths = |cert: &str, key: &str| [files.path(cert), files.path(key)];
    let edges = [paths("live-cert", "live-key"), paths("data/cert", "data/key")]
        .map(|[cert, key]| Edge::start(&files, &[], &[&origin, "--cert", &cert, "--key", &key]));
    let before = edges.each_ref().map(certificate);
    issue_into("archive2");
    relink("live-cert", "archive2/cert");
    relink("live-key", "archive2/key");
    relink("data", "archive2");
    for (edge, before) in edges.iter().zip(before) {
        until("the new certificate", || certificate(edge) != before);
        curl(edge, &files, NAME, "/head", &[]).ok();
    }
}

/// The edge keeps the certificate that it has, and notices each correction without a signal.
#[test]
fn a_faulty_file_is_checked_until_it_is_right() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let before = certificate(&edge);
    let reloads = |result| edge.count("headstart_reloads_total", &["certificates", result]);
    let (chain, key) = (files.path(&format!("{NAME}.pem")), files.path(&format!("{NAME}.key")));
    let set_mode = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    let kept = |why: &str| {
        until("the mistake is logged", || edge.logged(why) > 0);
        assert_eq!(certificate(&edge), before, "{why}");
    };
    set_mode(0o604);
    kept("certificates kept: everybody may use the private key in ");
    set_mode(0o600);
    until("the certificate is reloaded", || reloads("result=\"ok\"") > 0);

    // Half of the file, then the rest.
    let whole = fs::read(&chain).unwrap();
    fs::write(&chain, &whole[..whole.len() / 2]).unwrap();
    kept("certificates kept: no certificate in ");
    fs::write(&chain, &whole).unwrap();
    until("the certificate is reloaded", || reloads("result=\"ok\"") > 1);

    // The key of another certificate: the state between the replacements of the two files.
    let other = Files::new();
    other.issue(NAME);
    fs::copy(other.path(&format!("{NAME}.key")), &key).unwrap();
    kept("certificates kept: the key in ");
    fs::copy(other.path(&format!("{NAME}.pem")), &chain).unwrap();
    until("the new certificate", || certificate(&edge) != before);

    fs::remove_file(&chain).unwrap();
    until("the mistake is logged", || edge.logged("certificates kept: cannot read ") > 0);
    curl(&edge, &other, NAME, "/head", &[]).ok();
    assert!(reloads("result=\"kept\"") >= 4);
}

#[test]
fn a_hangup_cuts_no_request_short() {
    for version in ["--http1.1", "--http2"] {
        let (files, origin) = (Files::new(), Origin::start());
        files.issue(NAME);
        let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
        thread::scope(|scope| {
            let client =
                scope.spawn(|| curl(&edge, &files, NAME, "/held/100000", &[version]).ok().len());
            until("the origin has the request", || origin.requests("GET /held/100000") == 1);
            edge.signal(Signal::HUP);
            until("the configuration is reloaded", || edge.logged("configuration read again") == 1);
            origin.release();
            assert_eq!(client.join().unwrap(), 100_000, "{version}");
        });
        assert_eq!(origin.requests("GET /held/100000"), 1);
    }
}

#[test]
fn a_certificate_is_replaced_while_requests_run() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    let stop = AtomicBool::new(false);
    let requests = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut requests, begun) = (0, Instant::now());
            while !stop.load(Ordering::Relaxed) && begun.elapsed() < 2 * PATIENCE {
                // -k accepts any certificate: this one changes during the test.
                curl(&edge, &files, NAME, "/head", &["-k", "--http2"]).ok();
                requests += 1;
            }
            requests
        });
        let before = certificate(&edge);
        files.issue(NAME);
        until("the new certificate", || certificate(&edge) != before);
        stop.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(requests > 0);
    curl(&edge, &files, NAME, "/head", &[]).ok();
    // The edge may have seen the new key beside the old certificate first: that counts as kept.
    let reloads = |result| edge.count("headstart_reloads_total", &["certificates", result]);
    until("it is counted", || reloads("result=\"ok\"") == 1);
    let before = certificate(&edge);
    let kept = reloads("result=\"kept\"");
    files.write(&format!("{NAME}.pem"), b"nothing", 0o644);
    until("the mistake is noticed", || reloads("result=\"kept\"") > kept);
    until("the mistake is logged", || edge.logged("certificates kept: no certificate in ") > 0);
    assert_eq!(certificate(&edge), before);
    curl(&edge, &files, NAME, "/head", &["-k"]).ok();
}

#[test]
fn a_hangup_reloads_the_configuration_and_a_mistake_changes_nothing() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue("a.example");
    files.issue("b.example");
    let write = |name: &str, origin: &str| {
        let text = format!(
            "[edge]\norigin = \"{origin}\"\ncert = \"{}\"\nkey = \"{}\"\n",
            files.path(&format!("{name}.pem")),
            files.path(&format!("{name}.key"))
        );
        files.write("edge.toml", text.as_bytes(), 0o600)
    };
    let config = write("a.example", &origin.http());
    let edge = Edge::start(&files, &[], &["--config", &config]);
    assert_eq!(subject(&edge, "a.example"), "a.example");
    write("b.example", &origin.http());
    edge.signal(Signal::HUP);
    until("the configuration is reloaded", || edge.logged("configuration read again") == 1);
    assert_eq!(subject(&edge, "a.example"), "b.example");
    write("missing", &origin.http());
    edge.signal(Signal::HUP);
    until("the mistake is noticed", || edge.logged("configuration kept: cannot read") == 1);
    assert_eq!(subject(&edge, "a.example"), "b.example");
    // A certificate is of no use where the only origin speaks TLS itself.
    write("b.example", "localhost:1");
    edge.signal(Signal::HUP);
    until("the mistake is noticed", || edge.logged("configuration kept: --cert is given") == 1);
}

/// Returns true if the edge resumes the session that [`visit`] saved, with the TLS version that
/// `flag` selects.
fn resumes(edge: &Edge, files: &Files, flag: &str) -> bool {
    let session = files.path(&format!("session{flag}"));
    let text = s_client(edge, NAME, &[flag, "-sess_in", &session], &request("GET", "/head", NAME));
    assert!(text.contains("HTTP/1.1 200"), "{text}");
    text.contains("Reused, TLSv1.")
}

/// Saves a session with the TLS version that `flag` selects.
fn visit(edge: &Edge, files: &Files, flag: &str) {
    let session = files.path(&format!("session{flag}"));
    s_client(edge, NAME, &[flag, "-sess_out", &session], &request("GET", "/head", NAME));
}

#[test]
fn sessions_outlive_a_rotation_of_the_keys_but_not_their_replacement() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let keys = files.keys("keys");
    let origin = format!("--origin={}", origin.http());
    let edge = Edge::start(&files, &[NAME], &[&origin, "--keys", &keys]);
    let other = Edge::start(&files, &[NAME], &[&origin, "--keys", &keys]);
    let alone = Edge::start(&files, &[NAME], &[&origin]);
    for flag in ["-tls1_3", "-tls1_2"] {
        visit(&edge, &files, flag);
        assert!(resumes(&edge, &files, flag) && resumes(&other, &files, flag), "{flag}");
        assert!(!resumes(&alone, &files, flag), "the edge without --keys has keys of its own");
    }
    let until_reloaded = |times| {
        until("the keys are read", || {
            [&edge, &other].iter().all(|edge| edge.logged("new keys for session tickets") == times)
        });
    };
    rotate(&keys);
    until_reloaded(1);
    assert!(resumes(&edge, &files, "-tls1_3") && resumes(&other, &files, "-tls1_2"));
    files.write("keys", b"no keys", 0o600);
    until("the mistake is noticed", || edge.logged("keys kept: ") == 1);
    assert!(resumes(&edge, &files, "-tls1_3"));
    assert_eq!(edge.count("headstart_reloads_total", &["keys", "kept"]), 1);
    // No ticket issued before is valid under a new key ring.
    files.keys("keys");
    until_reloaded(2);
    assert!(!resumes(&edge, &files, "-tls1_3") && !resumes(&other, &files, "-tls1_2"));
}

/// Both names have the same ticket keys.
#[test]
fn a_session_is_not_resumed_under_another_name() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    files.issue("other.example.com");
    let origin = format!("--origin={}", origin.http());
    let edge = Edge::start(&files, &[NAME, "other.example.com"], &[&origin]);
    visit(&edge, &files, "-tls1_3");
    assert!(resumes(&edge, &files, "-tls1_3"));
    let (other, session) = ("other.example.com", files.path("session-tls1_3"));
    let text = s_client(&edge, other, &["-sess_in", &session], &request("GET", "/head", other));
    assert!(text.contains("New, TLSv1.3") && text.contains("HTTP/1.1 200"), "{text}");
}
