//! No ticket crosses a boundary: seen on the wire, between the agent and the server, and in the
//! store.
//!
//! A connection that shows no ticket cannot be linked to an earlier one by it; one that shows a
//! ticket which nobody has seen before can be, by its server alone. What cookies of Fast Open show
//! is in the lab's experiment `fop-privacy`.

use std::collections::BTreeSet;
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use headstart_testkit::has_net;
use serde_json::Value;

use crate::agent::Agent;
use crate::client::{call, connect};
use crate::edge::{Edge, until};
use crate::files::Files;
use crate::server::{NAME, PAGE, Server, fields, files};
use crate::tap::Tap;
use crate::users::{as_other, let_pass};

const OTHER_NAME: &str = "mail.example.com";

/// A server that is only reached through a tap, and an agent.
struct Watched {
    files: Files,
    server: Server,
    tap: Tap,
    agent: Agent,
}

impl Watched {
    fn new(arguments: &[&str]) -> Self {
        Self::with(files(), PAGE, arguments)
    }

    fn with(files: Files, server: &[&str], arguments: &[&str]) -> Self {
        let server = Server::start(&files, server);
        let tap = Tap::before(server.address);
        Self { tap, server, agent: Agent::start(arguments), files }
    }

    /// Reads a page; the tickets that the connection has shown.
    fn visit(&self, more: &[(&str, &str)]) -> Vec<Vec<u8>> {
        let fields = [&self.server.fields()[..], more].concat();
        let answer = connect(&self.agent, &self.tap.address.to_string(), &fields);
        let resumed = answer.resumed();
        assert!(answer.get("/").contains("HTTP/1.0 200 ok"));
        let shown = self.tap.last();
        assert_eq!(resumed, !shown.is_empty(), "each ticket shown is good");
        shown
    }

    fn stored(&self) -> Value {
        call(&self.agent, "GET", "/sessions", "").1["sessions"].clone()
    }

    /// Tickets in the store of this context of this user.
    fn tickets_of(&self, context: Option<&str>) -> u64 {
        let user = rustix::process::getuid().as_raw();
        let rows = self.stored();
        let rows = rows.as_array().unwrap().iter();
        let own = rows.filter(|row| row["context"].as_str() == context && row["uid"] == user);
        own.map(|row| row["tickets"].as_u64().unwrap()).sum()
    }
}

/// Each ticket is shown once, and in each context the first visit shows none: what later ones show
/// was given there.
#[test]
fn no_ticket_of_one_context_is_shown_in_another() {
    let watched = Watched::new(&[]);
    let contexts = [&[("Headstart-Context", "work")][..], &[("Headstart-Context", "home")], &[]];
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        for context in contexts {
            let shown = watched.visit(context);
            assert_eq!(shown.len(), usize::from(round > 0), "{context:?}");
            assert!(
                shown.into_iter().all(|ticket| seen.insert(ticket)),
                "shown twice: {context:?}"
            );
        }
    }
    assert!(watched.tickets_of(Some("work")) > 0 && watched.tickets_of(None) > 0);
}

#[test]
fn a_private_context_shows_nothing_of_before_and_leaves_nothing_behind() {
    let watched = Watched::new(&[]);
    watched.visit(&[]);
    let private = [("Headstart-Context", "private-1")];
    assert_eq!(watched.visit(&private).len(), 0, "nothing of before");
    assert_eq!(watched.visit(&private).len(), 1);
    assert_eq!(call(&watched.agent, "DELETE", "/contexts/private-1", "").0, 200);
    assert_eq!(watched.tickets_of(Some("private-1")), 0);
    assert_eq!(watched.visit(&private).len(), 0, "the next one of this name starts empty");
    assert_eq!(watched.visit(&[]).len(), 1, "others go on");
    let isolated = [("Headstart-Policy", "isolate")];
    assert_eq!(watched.visit(&isolated).len(), 0);
    assert_eq!(watched.visit(&isolated).len(), 0);
}

#[test]
fn a_ticket_is_shown_no_longer_than_its_context_s_policy_says() {
    let watched = Watched::new(&[]);
    let (brief, long) = ([("Headstart-Context", "brief")], [("Headstart-Context", "long")]);
    for context in [&brief, &long] {
        watched.visit(context);
    }
    assert!(watched.tickets_of(Some("brief")) > 0);
    let (status, text) = call(&watched.agent, "PUT", "/policies/brief", r#"{"lifetime_ms": 1}"#);
    assert_eq!(status, 200, "{text}");
    // It applies to existing sessions and to new ones.
    assert_eq!(watched.visit(&brief).len(), 0);
    until("what was given since is over", || watched.tickets_of(Some("brief")) == 0);
    assert_eq!(watched.visit(&brief).len(), 0);
    assert_eq!(watched.visit(&long).len(), 1, "other contexts have their own lifetime");
}

/// Neither does it show what there is, nor is what it brings shown by others.
#[test]
fn a_client_certificate_is_shown_with_no_ticket_of_others() {
    let files = files();
    files.issue("client.example");
    let parts = ["pem", "key"]
        .map(|ending| fs::read(files.path(&format!("client.example.{ending}"))).unwrap());
    let both = files.write("both.pem", &parts.concat(), 0o600);
    let configured = ["--client-certificate", &format!("work={both}")].map(str::to_owned);
    let trusted = files.path("client.example.pem");
    let asks =
        ["-www", "-verify", "1", "-verify_return_error", "-CAfile", &trusted].map(str::to_owned);
    let asks: Vec<_> = asks.iter().map(String::as_str).collect();
    let watched = Watched::with(files, &asks, &configured.each_ref().map(String::as_str));
    assert_eq!(watched.visit(&[]).len(), 0);
    let before = watched.tickets_of(None);
    assert!(before > 0, "the server does not insist on a certificate");
    let certificate = [("Headstart-Client-Certificate", "work")];
    assert_eq!(watched.visit(&certificate).len(), 0);
    until("it brings its own", || watched.tickets_of(None) > before);
    let own = watched.visit(&certificate);
    let other = watched.visit(&[]);
    assert_eq!((own.len(), other.len()), (1, 1), "each shows what came of its like");
    let fresh = ("Headstart-Context", "fresh");
    assert_eq!(watched.visit(&[certificate[0], fresh]).len(), 0);
    until("it brings its own there", || watched.tickets_of(Some("fresh")) > 0);
    assert_eq!(watched.visit(&[fresh]).len(), 0, "none of those who show a certificate");
}

/// Whoever serves one name, and embeds or redirects to it as it likes, is never shown a ticket of
/// another, though both are at one address and take each other's tickets.
#[test]
fn a_server_is_shown_tickets_of_no_other_name() {
    let files = files();
    files.issue(OTHER_NAME);
    let roots =
        [NAME, OTHER_NAME].map(|name| fs::read(files.path(&format!("{name}.pem"))).unwrap());
    let roots = files.write("roots.pem", &roots.concat(), 0o644);
    // The origin's answer does not matter.
    let edge = Edge::start(&files, &[NAME, OTHER_NAME], &["--origin", "http://127.0.0.1:1"]);
    let (tap, agent) = (Tap::before(edge.address), Agent::start(&[]));
    let mut seen = BTreeSet::new();
    // Nothing to know the first visit of either by.
    for (name, count) in
        [(NAME, 0), (OTHER_NAME, 0), (NAME, 1), (OTHER_NAME, 1), (NAME, 1), (OTHER_NAME, 1)]
    {
        let fields = fields(name, &roots);
        let answer = connect(&agent, &tap.address.to_string(), &fields);
        let resumed = answer.resumed();
        assert!(answer.get("/").starts_with("HTTP/1.1 "));
        let shown = tap.last();
        assert_eq!((shown.len(), resumed), (count, count > 0), "{name}");
        assert!(shown.into_iter().all(|ticket| seen.insert(ticket)), "shown twice: {name}");
    }
}

#[test]
fn no_ticket_of_one_user_is_shown_for_another() {
    if !has_net() {
        return;
    }
    let watched = Watched::new(&["--socket-mode", "666"]);
    let_pass(&watched.agent);
    // The other user must be allowed to choose the roots.
    let root = watched.files.path("");
    set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    let context = [("Headstart-Context", "work")];
    watched.visit(&context);
    let before = watched.tickets_of(Some("work"));
    let target = watched.tap.address.to_string();
    let fields = [&watched.server.fields()[..], &context].concat();
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let mut arguments = vec!["-X", "CONNECT", "--request-target", &target, "-D", "-"];
    fields.iter().for_each(|field| arguments.extend(["-H", field.as_str()]));
    arguments.push("http://agent/");
    let seen = watched.tap.shown().len();
    let text = as_other(&watched.agent, &[&["--max-time", "10"][..], &arguments].concat());
    assert!(text.to_lowercase().contains("headstart-resumed: 0"), "{text}");
    assert_eq!(watched.tap.shown().len(), seen + 1);
    assert_eq!(watched.tap.last().len(), 0, "the same label, and another user");
    assert_eq!(watched.tickets_of(Some("work")), before, "none came of another user's visit");
    let ticket = "http://agent/ticket?server=www.example.com&alpn=&settings=x&context=work";
    let text = as_other(&watched.agent, &["-o", "/dev/null", "-w", "%{http_code}", ticket]);
    assert_eq!(text, "204", "nor does it get any for itself");
    assert_eq!(watched.visit(&context).len(), 1);
}

/// Bytes that a process has caused to be written to disks (proc_pid_io(5)).
fn written(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// The files that a process has open, without pipes, sockets and devices.
fn open_files(id: u32) -> BTreeSet<String> {
    let all = fs::read_dir(format!("/proc/{id}/fd")).unwrap().map(Result::unwrap);
    let names = all.filter_map(|file| fs::read_link(file.path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('/') && !name.starts_with("/dev/")).collect()
}

fn entries(folder: &Path) -> BTreeSet<String> {
    let all = fs::read_dir(folder).unwrap().map(Result::unwrap);
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Everything that the agent keeps is in its memory: after use, too, there is nothing in its
/// directory, no file is open that was not before, and nothing was written.
#[test]
fn nothing_of_a_session_is_on_disk_after_use() {
    if !has_net() {
        return;
    }
    let watched = Watched::new(&[]);
    let id = watched.agent.id();
    let (files, bytes) = (open_files(id), written(id));
    let shared_memory = entries(Path::new("/dev/shm"));
    for context in ["work", "home", "work", "home"] {
        watched.visit(&[("Headstart-Context", context)]);
    }
    call(&watched.agent, "PUT", "/policies/work", r#"{"sharing": "isolate"}"#);
    assert!(watched.tickets_of(Some("home")) > 0);
    assert_eq!(open_files(id), files);
    assert_eq!(written(id), bytes);
    let dir = entries(&watched.agent.path(""));
    assert_eq!(dir, BTreeSet::from(["socket", "socket.lock"].map(str::to_owned)));
    assert_eq!(fs::metadata(watched.agent.path("socket.lock")).unwrap().len(), 0);
    let more: Vec<_> = entries(Path::new("/dev/shm")).difference(&shared_memory).cloned().collect();
    assert!(!more.iter().any(|name| name.contains("headstart")), "{more:?}");
}
