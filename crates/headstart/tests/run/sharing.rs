//! Sharing of sessions among programs.

use crate::agent::Agent;
use crate::edge::until;
use crate::program::{Program, held, resumed};
use crate::server::{PAGE, Server, files, served};

const WORK: [&str; 2] = ["--context", "work"];

#[test]
fn processes_of_one_executable_resume_each_others_sessions() {
    let (files, server, agent) = served(PAGE);
    for program in Program::all(&server) {
        let visits = [(); 3].map(|()| program.resumes(&agent, &files, &[]));
        assert_eq!(visits, [false, true, true]);
    }
    until("the log has it", || taken(&agent) == 4 * 2);
}

#[test]
fn executables_share_in_a_context_that_all_name_and_nowhere_else() {
    let (files, server, agent) = served(PAGE);
    let (curl, python) = (Program::curl(&server, &[]), Program::python(&server));
    assert!(!python.resumes(&agent, &files, &WORK));
    assert!(!curl.resumes(&agent, &files, &[]), "no context");
    assert!(!curl.resumes(&agent, &files, &["--context", "other"]));
    for program in Program::all(&server) {
        assert!(program.resumes(&agent, &files, &WORK), "with what the last has left");
    }
    let with_alpn = Program::curl(&server, &["--alpn"]);
    assert!(!with_alpn.resumes(&agent, &files, &WORK), "other protocols");
}

#[test]
fn managed_connections_and_programs_have_nothing_in_common() {
    let (files, server, agent) = served(PAGE);
    let curl = Program::curl(&server, &[]);
    assert!(!server.visit(&agent, &[("Headstart-Context", "work")]));
    assert!(!curl.resumes(&agent, &files, &WORK));
    assert!(curl.resumes(&agent, &files, &WORK));
    assert!(server.visit(&agent, &[("Headstart-Context", "work")]), "its own");
}

#[test]
fn a_policy_holds_for_programs_too() {
    let (files, server, agent) = served(PAGE);
    let curl = Program::curl(&server, &[]);
    for sharing in ["off", "isolate"] {
        let set = ["policy", "--context", "work", "--sharing", sharing];
        assert_eq!(crate::agent::sessions(&agent, &set).0, Some(0));
        for _ in 0..2 {
            assert!(!curl.resumes(&agent, &files, &WORK), "{sharing}");
        }
    }
    assert_eq!(held(&agent), 0);
}

#[test]
fn children_and_threads_share_too() {
    let (files, server, agent) = served(PAGE);
    let socket = agent.socket();
    let child = "visit()\nif os.fork() == 0:\n    visit()\n    os._exit(0)\nos.wait()";
    let page = Program::python_that(&server, child).page(&socket, &files, &[]);
    assert_eq!(page.matches("Reused, TLSv1").count(), 1, "{page}");
    // The server takes one connection after the other, so each thread finds what the last has left,
    // or a ticket that is spent meanwhile.
    let threads = "all = [threading.Thread(target=visit) for _ in range(8)]\n[one.start() for one \
        in all]\n[one.join() for one in all]";
    let page = Program::python_that(&server, threads).page(&socket, &files, &[]);
    assert!(page.contains("Reused, TLSv1"), "{page}");
    assert!(resumed(&Program::python(&server).page(&socket, &files, &[])));
}

/// A program uses the tickets that it keeps itself; those that went to the agent come from there
/// alone.
#[test]
fn a_ticket_is_the_agents_or_the_programs() {
    let files = files();
    let twice = "own = ssl.create_default_context()\nvisit(own, visit(own))";
    // Of two tickets, the second is the program's; a single one is the agent's.
    let cases = [("2", &["none", "put"][..], 0), ("1", &["none", "put", "taken", "put"], 1)];
    for (tickets, asked, from_the_agent) in cases {
        let server = Server::start(&files, &["-www", "-num_tickets", tickets]);
        let agent = Agent::start(&[]);
        let page = Program::python_that(&server, twice).page(&agent.socket(), &files, &[]);
        assert!(page.contains("New, TLSv1.3") && page.contains("Reused, TLSv1.3"), "{page}");
        until("the log has it", || agent.audited(&["session of a program"]) >= asked.len());
        assert_eq!(agent.audited(&["session of a program"]), asked.len(), "{}", agent.log());
        assert_eq!(taken(&agent), from_the_agent, "{tickets}");
    }
}

fn taken(agent: &Agent) -> usize {
    agent.audited(&["session of a program", "taken"])
}
