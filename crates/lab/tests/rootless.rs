//! A lab without root, in a user namespace. Needs HEADSTART_TEST_NET=1; skips where the system allows none.
//!
//! It has a `main` of its own because a user namespace can be entered only before there are threads.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use headstart_lab::{Host, Lab, Privilege, Refusal, enter_user_namespace, privilege};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::geteuid;

/// First argument of the process that plays the ordinary user.
const AS_USER: &str = "--as-ordinary-user";

/// "nobody" on Debian, and as good as any other number without rights.
const NOBODY: u32 = 65534;

/// Tells the outer process that the system allows no user namespaces; the number that automake uses for it.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == AS_USER) {
        return as_ordinary_user();
    }
    if std::env::var_os("HEADSTART_TEST_NET").is_none_or(|value| value != "1") {
        eprintln!("skipped: set HEADSTART_TEST_NET=1");
        return ExitCode::SUCCESS;
    }
    let status = this_program_again().status().unwrap();
    match status.code() {
        Some(code) if code == i32::from(SKIPPED) => ExitCode::SUCCESS,
        Some(0) => {
            eprintln!("rootless ... ok");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("rootless ... FAILED: {status}");
            ExitCode::FAILURE
        }
    }
}

/// This program by its open file, as an ordinary user may not reach its directory.
fn this_program_again() -> Command {
    let program = File::open("/proc/self/exe").unwrap();
    fcntl_setfd(&program, FdFlags::empty()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg(AS_USER).current_dir("/");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // Open until this process ends.
    std::mem::forget(program);
    command
}

fn as_ordinary_user() -> ExitCode {
    assert!(!geteuid().is_root());
    match privilege() {
        Privilege::UserNamespace => {}
        Privilege::None(refusal) => return skipped(&refusal),
        Privilege::Root => panic!("user {NOBODY} must not be privileged"),
    }
    // The probe must leave this process as it was.
    assert!(!geteuid().is_root());
    std::thread::scope(|scope| {
        let refusal = scope.spawn(enter_user_namespace).join().unwrap();
        assert_eq!(refusal, Err(Refusal::Threads));
    });
    enter_user_namespace().unwrap();
    assert_eq!(privilege(), Privilege::Root);
    echo();
    ExitCode::SUCCESS
}

fn skipped(refusal: &Refusal) -> ExitCode {
    eprintln!("rootless ... skipped: {refusal}; {}", refusal.hint());
    ExitCode::from(SKIPPED)
}

fn echo() {
    let lab = Lab::build(vec![
        Host::new("client").delay(Duration::from_millis(5)),
        Host::new("server"),
    ])
    .unwrap();
    let [client, server] = [0, 1].map(|number: usize| {
        let node = &lab.nodes()[number];
        let socket = node
            .run(|| UdpSocket::bind((node.ipv4().unwrap(), 7)))
            .unwrap()
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        socket
    });
    let start = Instant::now();
    client
        .send_to(b"ping", server.local_addr().unwrap())
        .unwrap();
    let mut buffer = [0; 16];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&buffer[..length], from).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 4);
    assert!(start.elapsed() >= Duration::from_millis(10));
}
