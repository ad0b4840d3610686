//! Who resumes whose sessions.

use std::process::Command;

use crate::agent::Agent;
use crate::program::{Program, held, resumed};
use crate::server::{PAGE, Server, files};

#[test]
fn processes_of_one_executable_resume_each_others_sessions() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    for program in [Program::curl(&server, &[]), Program::python(&server)] {
        let visits = [(); 4].map(|()| program.resumes(&agent, &files, &[]));
        assert_eq!(visits, [false, true, true, true]);
    }
    assert!(agent.audited(&["session of a program", "taken"]) >= 6);
}

#[test]
fn executables_share_in_a_context_that_both_name_and_nowhere_else() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let (curl, python) = (Program::curl(&server, &[]), Program::python(&server));
    let work = ["--context", "work"];
    assert!(!python.resumes(&agent, &files, &work));
    assert!(!curl.resumes(&agent, &files, &[]), "no context");
    assert!(!curl.resumes(&agent, &files, &["--context", "other"]));
    assert!(curl.resumes(&agent, &files, &work));
    assert!(python.resumes(&agent, &files, &work), "with what curl has left");
    let with_alpn = Program::curl(&server, &["--alpn"]);
    assert!(!with_alpn.resumes(&agent, &files, &work), "other protocols");
}

#[test]
fn managed_connections_and_programs_have_nothing_in_common() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let (curl, work) = (Program::curl(&server, &[]), ["--context", "work"]);
    assert!(!server.visit(&agent, &[("Headstart-Context", "work")]));
    assert!(!curl.resumes(&agent, &files, &work));
    assert!(curl.resumes(&agent, &files, &work));
    assert!(server.visit(&agent, &[("Headstart-Context", "work")]), "its own");
}

#[test]
fn who_checks_less_or_otherwise_leaves_nothing() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let roots = files.path(&format!("{}.pem", crate::server::NAME));
    let copy = files.write("copy.pem", &std::fs::read(roots).unwrap(), 0o644);
    for options in [&["-k"][..], &["--cacert", &copy], &["--tls-max", "1.2"]] {
        let curl = Program::curl(&server, options);
        for _ in 0..2 {
            assert!(!curl.resumes(&agent, &files, &[]), "{options:?}");
        }
    }
    assert_eq!(held(&agent), 0);
}

#[test]
fn who_checks_otherwise_takes_nothing() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    assert!(!Program::curl(&server, &[]).resumes(&agent, &files, &[]));
    let before = held(&agent);
    assert!(before > 0);
    let roots = files.path(&format!("{}.pem", crate::server::NAME));
    let copy = files.write("copy.pem", &std::fs::read(roots).unwrap(), 0o644);
    for options in [&["-k"][..], &["--cacert", &copy]] {
        assert!(!Program::curl(&server, options).resumes(&agent, &files, &[]), "{options:?}");
    }
    assert_eq!(held(&agent), before);
}

/// Ruby and s_client set verify callbacks: they do what they always do.
#[test]
fn programs_with_callbacks_are_left_alone() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    if Command::new("ruby").arg("--version").output().is_ok() {
        for _ in 0..2 {
            assert!(!Program::ruby(&server).resumes(&agent, &files, &[]));
        }
    } else {
        assert!(std::env::var_os("HEADSTART_TEST_NET").is_none(), "ruby is not installed");
        eprintln!("skipped: ruby is not installed");
    }
    for _ in 0..2 {
        let page = Program::s_client(&server).page(&agent.socket(), &files, &[]);
        assert!(page.contains("New, TLSv1.3") && !page.contains("Reused, "), "{page}");
    }
    assert_eq!(held(&agent), 0);
}

#[test]
fn a_policy_holds_for_programs_too() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let (curl, work) = (Program::curl(&server, &[]), ["--context", "work"]);
    for sharing in ["off", "isolate"] {
        let set = ["policy", "--context", "work", "--sharing", sharing];
        assert_eq!(crate::agent::sessions(&agent, &set).0, Some(0));
        for _ in 0..2 {
            assert!(!curl.resumes(&agent, &files, &work), "{sharing}");
        }
    }
    assert_eq!(held(&agent), 0);
}

#[test]
fn children_and_threads_share_too() {
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let socket = agent.socket();
    let pages = |does: &str| {
        let page = Program::python_that(&server, does).page(&socket, &files, &[]);
        page.matches("Reused, TLSv1").count()
    };
    assert_eq!(pages("visit()\nif os.fork() == 0:\n    visit()\n    os._exit(0)\nos.wait()"), 1);
    // The server takes one connection after the other, so each thread finds what the last has left, or a
    // ticket that is spent meanwhile.
    let threads = "all = [threading.Thread(target=visit) for _ in range(8)]\n[one.start() for one in all]\n[one.join() for one in all]";
    assert!(pages(threads) > 0);
    assert!(resumed(&Program::python(&server).page(&socket, &files, &[])));
}
