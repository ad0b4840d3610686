//! Tests of a lab that need whole processes: having no root, and being killed. Needs
//! HEADSTART_TEST_NET=1.
//!
//! It has a `main` of its own because a user namespace can be entered only before there are
//! threads; where the system allows none it ignores what needs one.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Host, Lab, Privilege, Refusal, enter_user_namespace, privilege};
use headstart_testkit::has_net;
use libtest_mimic::{Arguments, Trial};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// First argument of the process that plays the ordinary user.
const ORDINARY_USER: &str = "--as-ordinary-user";

/// First argument of the process that builds a lab and waits to be killed.
const VICTIM: &str = "--as-victim";

/// "nobody" on Debian, and as good as any other number without rights.
const NOBODY: u32 = 65534;

/// First argument of the process that tells whether it may build a lab.
const PROBE: &str = "--probe";

/// Only bounds a test that fails.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(PROBE) => return probe(),
        Some(ORDINARY_USER) => return as_ordinary_user(),
        Some(VICTIM) => return as_victim(),
        _ => {}
    }
    let is_on = has_net();
    let ordinary = trial("works_without_root", is_on && builds_labs(true), works_without_root);
    let is_able = is_on && builds_labs(false);
    let killed = [("kill", Signal::KILL), ("int", Signal::INT), ("term", Signal::TERM)];
    let killed = killed.map(|(name, signal)| {
        let name = format!("leaves_nothing_when_killed_by_{name}");
        trial(&name, is_able, move || leaves_nothing_when_killed_by(signal))
    });
    let trials = killed.into_iter().chain([ordinary]).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, runs: bool, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        test();
        Ok(())
    })
    .with_ignored_flag(!runs)
}

/// Returns true if the system allows this user to build labs, or an ordinary user.
fn builds_labs(ordinary_user: bool) -> bool {
    this_program(PROBE, ordinary_user).status().unwrap().success()
}

fn probe() -> ExitCode {
    match privilege() {
        Privilege::Root | Privilege::UserNamespace => ExitCode::SUCCESS,
        Privilege::None(refusal) => {
            eprintln!("no user namespace: {refusal}; hint: {}", refusal.hint());
            ExitCode::FAILURE
        }
    }
}

fn works_without_root() {
    let status = this_program(ORDINARY_USER, true).status().unwrap();
    assert!(status.success(), "{status}");
}

/// As by Ctrl-C, and by what nobody can catch.
fn leaves_nothing_when_killed_by(signal: Signal) {
    let mut victim =
        this_program(VICTIM, false).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut started = String::new();
    BufReader::new(victim.stdout.take().unwrap()).read_line(&mut started).unwrap();
    let command = started.trim().strip_prefix("started ").expect("the victim runs");
    assert!(is_alive(command));
    let namespace = fs::read_link(format!("/proc/{command}/ns/net")).unwrap();
    assert!(has_processes(&namespace));
    kill_process(Pid::from_child(&victim), signal).unwrap();
    victim.wait().unwrap();
    let start = Instant::now();
    // Nothing but processes and open files can hold a namespace that has no name.
    while is_alive(command) || has_processes(&namespace) {
        assert!(start.elapsed() < PATIENCE, "something was left");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if any process is in this network namespace.
fn has_processes(namespace: &Path) -> bool {
    let mut processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .any(|process| fs::read_link(process.path().join("ns/net")).is_ok_and(|ns| ns == namespace))
}

/// Returns true if there is such a process, other than one that ended and was not waited for yet.
fn is_alive(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// This program by its open file, as an ordinary user may not reach its directory.
fn this_program(argument: &str, ordinary_user: bool) -> Command {
    let program = File::open("/proc/self/exe").unwrap();
    fcntl_setfd(&program, FdFlags::empty()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg(argument).current_dir("/");
    if ordinary_user && geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // Open until this process ends.
    std::mem::forget(program);
    command
}

fn as_ordinary_user() -> ExitCode {
    assert!(!geteuid().is_root());
    assert_eq!(privilege(), Privilege::UserNamespace);
    // The probe must leave this process as it was.
    assert!(!geteuid().is_root());
    let refusal = thread::scope(|scope| scope.spawn(enter_user_namespace).join().unwrap());
    assert_eq!(refusal, Err(Refusal::Threads));
    enter_user_namespace().unwrap();
    assert_eq!(privilege(), Privilege::Root);
    a_forbidding_setting_is_named();
    echo();
    ExitCode::SUCCESS
}

/// The root of a user namespace may set the limit for those made in it.
fn a_forbidding_setting_is_named() {
    let setting = "/proc/sys/user/max_user_namespaces";
    let before = fs::read_to_string(setting).unwrap();
    fs::write(setting, "0").unwrap();
    let refusal = enter_user_namespace().unwrap_err();
    fs::write(setting, before).unwrap();
    assert_eq!(refusal, Refusal::Setting("user.max_user_namespaces"));
    assert!(refusal.hint().contains("sysctl -w user.max_user_namespaces="), "{}", refusal.hint());
}

fn echo() {
    let lab =
        Lab::build(vec![Host::new("client").delay(Duration::from_millis(5)), Host::new("server")])
            .unwrap();
    let [client, server] = [0, 1].map(|number: usize| {
        let node = &lab.nodes()[number];
        let socket = node.run(|| UdpSocket::bind((node.ipv4().unwrap(), 7))).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let start = Instant::now();
    client.send_to(b"ping", server.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&buffer[..length], from).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 4);
    assert!(start.elapsed() >= Duration::from_millis(10));
}

/// Starts a command on a node, says which, and waits for the end.
fn as_victim() -> ExitCode {
    if privilege() != Privilege::Root {
        enter_user_namespace().unwrap();
    }
    let lab = Lab::build(vec![Host::new("client"), Host::new("server")]).unwrap();
    let mut sleeper = lab.nodes()[0].command("sleep");
    sleeper.arg("60").stdout(Stdio::null());
    println!("started {}", lab.nodes()[0].spawn(sleeper).unwrap().id());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    ExitCode::SUCCESS
}
