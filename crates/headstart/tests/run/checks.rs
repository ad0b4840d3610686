//! A program's own checks hold, whichever program made the session that it resumes.

use crate::agent::Agent;
use crate::files::Files;
use crate::program::{Program, held};
use crate::server::{NAME, PAGE, Server, files};

/// Somebody that nobody here has a reason to trust.
const OTHER: &str = "other.example";

fn world() -> (Files, Server, Agent) {
    let files = files();
    files.issue(OTHER);
    let server = Server::start(&files, PAGE);
    (files, server, Agent::start(&[]))
}

#[test]
fn who_does_not_verify_leaves_nothing_and_takes_nothing() {
    let (files, server, agent) = world();
    let lax = [&["-k"][..], &["--tls-max", "1.2"]].map(|options| Program::curl(&server, options));
    for curl in &lax {
        for _ in 0..2 {
            assert!(!curl.resumes(&agent, &files, &[]));
        }
    }
    assert!(!Program::s_client_that(&server, &[]).resumes(&agent, &files, &[]));
    assert_eq!(held(&agent), 0);
    assert!(!Program::curl(&server, &[]).resumes(&agent, &files, &[]));
    let before = held(&agent);
    assert!(before > 0);
    for curl in &lax {
        assert!(!curl.resumes(&agent, &files, &[]));
    }
    assert_eq!(held(&agent), before);
}

/// The server is an interceptor for whom some are set up, and others are not.
#[test]
fn who_does_not_trust_a_server_does_not_resume_with_it() {
    let (files, server, agent) = world();
    let work = ["--context", "work"];
    for trusting in Program::all(&server) {
        trusting.resumes(&agent, &files, &work);
        for other in Program::all(&server) {
            assert!(held(&agent) > 0, "there is one to be taken");
            other.trusting(OTHER).fails(&agent, &files, &work);
            trusting.resumes(&agent, &files, &work);
        }
    }
}

#[test]
fn programs_with_the_same_roots_by_another_name_share() {
    let (files, server, agent) = world();
    let copy =
        files.write("copy.pem", &std::fs::read(files.path(&format!("{NAME}.pem"))).unwrap(), 0o644);
    assert!(!Program::curl(&server, &[]).resumes(&agent, &files, &[]));
    assert!(Program::curl(&server, &["--cacert", &copy]).trusting(OTHER).resumes(
        &agent,
        &files,
        &[]
    ));
}

/// A callback that calls everything good is believed by its program alone.
#[test]
fn sessions_accepted_only_by_a_callback_are_not_shared() {
    let (files, server, agent) = world();
    let lax = [
        Program::ruby_with(&server, "context.verify_callback = proc { true }"),
        Program::s_client_that(&server, &["-verify", "5"]),
    ];
    for program in lax {
        let program = program.trusting(OTHER);
        for _ in 0..2 {
            assert!(!program.resumes(&agent, &files, &[]), "it goes on, by itself");
        }
    }
    assert_eq!(held(&agent), 0);
}

/// A callback that asks for more is asked before a session of others is resumed.
#[test]
fn a_callback_is_asked_about_the_sessions_of_others() {
    let (files, server, agent) = world();
    let ruby = Program::ruby(&server);
    assert!(!ruby.resumes(&agent, &files, &[]));
    let content = "context.verify_callback = proc { |good, _| $stderr.puts \"asked\"; good }";
    let content = Program::ruby_with(&server, content);
    let output = content.output(&agent.socket(), &files, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("asked"), "{message}");
    assert!(crate::program::resumed(&String::from_utf8_lossy(&output.stdout)));
    // Pinning, as programs do it, by a property of the certificate.
    let pinned =
        "context.verify_callback = proc { |good, store| good && store.current_cert.serial == 1 }";
    let pinned = Program::ruby_with(&server, pinned);
    assert!(held(&agent) > 0);
    pinned.fails(&agent, &files, &[]);
}

/// The name is checked by OpenSSL for some, by others afterwards.
#[test]
fn a_session_is_for_the_name_that_it_came_from() {
    let (files, server, agent) = world();
    let with_host =
        |host| Program::s_client_that(&server, &["-verify_return_error", "-verify_hostname", host]);
    assert!(!with_host(NAME).resumes(&agent, &files, &[]));
    assert!(held(&agent) > 0);
    // It asks for the same server name, and for another one in the certificate.
    with_host(OTHER).fails(&agent, &files, &[]);
}

/// Without roots, which a program may still read while it shakes hands, a session is verified at
/// the end; and the end can come in another call than the one that began.
#[test]
fn who_ends_a_handshake_by_writing_verifies_too() {
    let (files, server, agent) = world();
    assert!(!Program::python(&server).resumes(&agent, &files, &[]));
    let does = r#"
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(received, sent, server_hostname=sys.argv[3])
tcp = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def more(does):
    while True:
        try:
            return does()
        except ssl.SSLWantReadError:
            tcp.sendall(sent.read())
            received.write(tcp.recv(65536)) or received.write_eof()
for _ in range(2):
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
more(lambda: tls.write(b"GET / HTTP/1.0\r\n\r\n"))
tcp.sendall(sent.read())
page = more(lambda: tls.read(65536))
sys.stdout.write(page.decode())
assert page
"#;
    Program::python_that(&server, does).fails(&agent, &files, &[]);
    // There was one to be resumed.
    agent.until_audited(&["session of a program", "taken"], 1);
}

/// It has no roots, and decides by itself: that is for a handshake to show, not for a session of
/// others.
#[test]
fn a_callback_can_do_without_roots() {
    let (files, server, agent) = world();
    assert!(!Program::ruby(&server).resumes(&agent, &files, &[]));
    let lax =
        "context.cert_store = OpenSSL::X509::Store.new\ncontext.verify_callback = proc { true }";
    assert!(held(&agent) > 0);
    assert!(!Program::ruby_with(&server, lax).resumes(&agent, &files, &[]));
}
