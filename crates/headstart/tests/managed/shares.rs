//! No user of this machine takes all connections of the agent: needs root, to be another user.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use headstart_testkit::has_net;
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::set_thread_res_uid;

use crate::agent::Agent;
use crate::client::{call, connect, dial};
use crate::daemon::Daemon;
use crate::edge::until;
use crate::socks::{echo, socks};
use crate::users::{self, OTHER, let_pass};

/// Connections at one time, of which one user gets three quarters.
const CONNECTIONS: &str = "64";
const SHARE: usize = 48;

/// Returns what `work` makes, whose sockets are another user's: a thread has its own.
fn as_other<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        let other = Uid::from_raw(OTHER);
        set_thread_res_uid(other, other, other).unwrap();
        work()
    });
    thread.join().unwrap()
}

fn proxy(agent: &Agent) -> SocketAddr {
    agent.address("listening address=").unwrap()
}

/// Everything that the agent does is there for this user.
fn is_served(agent: &Agent, origin: u16) {
    assert_eq!(call(agent, "GET", "/sessions", "").0, 200);
    let mut stream = socks(proxy(agent), None, "127.0.0.1", origin).unwrap();
    stream.write_all(b"words").unwrap();
    let mut received = [0; 5];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"words");
}

#[test]
fn silent_connections_of_one_user_leave_everybody_else_served() {
    if !has_net() {
        return;
    }
    let (agent, origin) = (Agent::start(&[]), echo());
    let at = proxy(&agent);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let silent: Vec<_> =
        as_other(move || (0..4096).map(|_| TcpStream::connect(at).unwrap()).collect());
    // A quarter of all, or more where the agent may open fewer files.
    until("its share is used up", || {
        agent.count("headstart_limits_hit_total", &["waiting_clients"]) >= 1024
    });
    is_served(&agent, origin);
    assert_eq!(agent.count("headstart_limits_hit_total", &["max_connections"]), 0);
    drop(silent);
}

/// Connections are accepted in their order, so the silent ones had their turn before the others.
#[test]
fn silent_connections_take_no_place_of_those_that_speak() {
    let (agent, origin) = (Agent::start(&["--max-connections", CONNECTIONS]), echo());
    let at = proxy(&agent);
    let silent: Vec<_> = (0..SHARE / 2).map(|_| TcpStream::connect(at).unwrap()).collect();
    let held: Vec<_> = (0..SHARE).map(|_| socks(at, None, "127.0.0.1", origin).unwrap()).collect();
    assert_eq!(socks(at, None, "127.0.0.1", origin).unwrap_err(), 1, "a general failure");
    assert_eq!(agent.count("headstart_limits_hit_total", &["waiting_clients"]), 0);
    drop((silent, held));
}

/// On the socket likewise.
#[test]
fn silent_programs_take_no_place_of_those_that_speak() {
    let agent = Agent::start(&["--max-connections", CONNECTIONS]);
    let origin = format!("127.0.0.1:{}", echo());
    let silent: Vec<_> = (0..SHARE / 2).map(|_| dial(&agent)).collect();
    let held: Vec<_> = (0..SHARE).map(|_| connect(&agent, &origin, &[])).collect();
    assert!(held.iter().all(|held| held.status == 200));
    assert_eq!(connect(&agent, &origin, &[]).refused(), (503, "overloaded"));
    drop((silent, held));
}

#[test]
fn connections_of_one_user_leave_room_for_everybody_else() {
    if !has_net() {
        return;
    }
    let limits = ["--max-connections", CONNECTIONS, "--socket-mode", "666"];
    let (agent, origin) = (Agent::start(&limits), echo());
    let_pass(&agent);
    let at = proxy(&agent);
    let (held, refused) = as_other(move || {
        let mut held = Vec::new();
        loop {
            match socks(at, None, "127.0.0.1", origin) {
                Ok(stream) => held.push(stream),
                Err(code) => return (held, code),
            }
        }
    });
    assert_eq!((held.len(), refused), (SHARE, 1), "a general failure");
    assert_eq!(agent.count("headstart_limits_hit_total", &["max_connections"]), 1);
    is_served(&agent, origin);
    let listed = users::as_other(&agent, &["http://agent/sessions"]);
    assert_eq!(listed, "{\"sessions\":[]}\n", "its connections for managed TLS are apart");
    drop(held);
    until("it is served again", || as_other(move || socks(at, None, "127.0.0.1", origin)).is_ok());
}

/// Each takes several files, and the agent must not run out of them for all users.
#[test]
fn there_are_no_more_connections_than_files_for_them() {
    let script = "ulimit -n 256; exec \"$0\" \"$@\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_headstart"), "agent"]);
    command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]).env_clear();
    let agent = Daemon::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    let (at, origin) = (agent.address("listening address=").unwrap(), echo());
    let mut held = Vec::new();
    let refused = loop {
        match socks(at, None, "127.0.0.1", origin) {
            Ok(stream) => held.push(stream),
            Err(code) => break code,
        }
    };
    assert_eq!((held.len(), refused), (24, 1), "three quarters of an eighth");
    assert_eq!(agent.logged("the limit of open files allows fewer connections"), 1);
}
