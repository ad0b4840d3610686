//! Messages of daemons to a supervisor such as systemd, on a real socket.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::daemon::{Daemon, PATIENCE, until};
use crate::origin::Origin;
use crate::ports::free;
use crate::takeover::command;

/// The socket that daemons find in `NOTIFY_SOCKET`.
struct Supervisor {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Supervisor {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { directory, socket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, command: &mut Command) -> Daemon {
        Daemon::start(command.env("NOTIFY_SOCKET", self.path("notify")))
    }

    /// Returns the next message.
    fn message(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    /// Returns the messages of a process that has ended.
    fn rest(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut message = [0; 4096];
        let rest = std::iter::from_fn(|| {
            let length = self.socket.recv(&mut message).ok()?;
            Some(String::from_utf8(message[..length].to_vec()).unwrap())
        });
        rest.collect()
    }
}

/// Asks whatever origin the edge passes on to.
fn ask(edge: SocketAddr) {
    let mut tcp = TcpStream::connect(edge).unwrap();
    tcp.write_all(b"GET /head HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    tcp.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_reload_is_answered_once_the_new_configuration_is_in_use() {
    let supervisor = Supervisor::new();
    let origins = [Origin::start(), Origin::start()];
    let file = supervisor.path("edge.toml");
    let write = |text: &str| fs::write(&file, format!("[edge]\n{text}\n")).unwrap();
    let name = |origin: &Origin| write(&format!("origin = \"{}\"", origin.address));
    let listen = free();
    name(&origins[0]);
    let mut command = command("edge", &["--listen", &listen.to_string(), "--config"]);
    let mut edge = supervisor.start(command.arg(&file));
    assert_eq!(supervisor.message(), "READY=1\nSTATUS=serving\n");
    let reload = || {
        edge.signal(Signal::HUP);
        let begun = supervisor.message();
        assert!(begun.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{begun}");
        supervisor.message()
    };

    // Its message has several lines, and each would be one to the supervisor.
    write("early-data-requests = \"x\"");
    let kept = reload();
    assert!(kept.starts_with("READY=1\nSTATUS=configuration kept: "), "{kept}");
    assert_eq!(kept.lines().count(), 2, "{kept}");
    ask(listen);
    name(&origins[1]);
    assert_eq!(reload(), "READY=1\nSTATUS=serving\n");
    ask(listen);
    assert_eq!(origins.each_ref().map(|origin| origin.requests("GET /head")), [1, 1]);

    edge.signal(Signal::TERM);
    assert!(edge.ended().success());
    assert_eq!(supervisor.rest(), ["STOPPING=1\nSTATUS=stopping\n"]);
}

/// A supervisor gives a process that stops a limited time.
#[test]
fn a_process_whose_sockets_are_taken_over_does_not_say_that_it_stops() {
    let (before, after) = (Supervisor::new(), Supervisor::new());
    let path = before.path("takeover").display().to_string();
    let listen = free().to_string();
    let agent = || command("agent", &["--listen", &listen, "--takeover", &path]);
    let mut first = before.start(&mut agent());
    let _second = after.start(&mut agent());
    assert!(first.ended().success());
    assert_eq!(before.rest(), ["READY=1\nSTATUS=serving\n", "STATUS=serving what has begun\n"]);
    assert_eq!(after.message(), "READY=1\nSTATUS=serving\n");
}

/// The supervisor would take words of a worker of an earlier start for the next one's.
#[test]
fn a_worker_without_its_master_says_nothing() {
    let supervisor = Supervisor::new();
    let path = supervisor.path("takeover").display().to_string();
    let listen = free().to_string();
    let options = ["--listen", &listen, "--takeover", &path, "--master-worker"];
    let mut first = supervisor.start(&mut command("agent", &options));
    first.signal(Signal::TERM);
    assert!(first.ended().success());
    let _second = supervisor.start(&mut command("agent", &options));
    until("the worker to end", || first.logged("stopped") == 1);
    // The second process serves, and with it ends the first, before it says that it is ready.
    let ready = [supervisor.message(), supervisor.message()];
    assert_eq!(ready, ["READY=1\nSTATUS=serving\n"; 2]);
    assert_eq!(supervisor.rest(), [] as [String; 0]);
}

#[test]
fn a_watchdog_is_answered_again_and_again() {
    let supervisor = Supervisor::new();
    let path = supervisor.path("takeover").display().to_string();
    let options = ["--listen", "127.0.0.1:0", "--takeover", &path, "--master-worker"];
    let mut agent = command("agent", &options);
    // The worker answers for its master.
    agent.env("WATCHDOG_USEC", "20000");
    let _agent = supervisor.start(&mut agent);
    let answers = std::iter::repeat_with(|| supervisor.message());
    assert_eq!(answers.filter(|message| message == "WATCHDOG=1\n").take(3).count(), 3);
}
