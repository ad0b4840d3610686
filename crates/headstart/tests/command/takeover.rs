//! One daemon takes over from another, or gets its sockets from systemd.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::daemon::{Daemon, PATIENCE, until};
use crate::origin::{Origin, pattern};
use crate::ports::free;

/// A user who is nobody here.
const OTHER: u32 = 54_321;

/// Bytes of an answer that an edge passes on.
const SIZE: usize = 3_000_000;

pub(crate) fn command(role: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args([role, "--log", "debug", "--metrics", "127.0.0.1:0"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A daemon's words that does not start.
fn fails(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

/// A site whose edges take over from each other.
struct Site {
    directory: tempfile::TempDir,
    listen: String,
    origin: String,
    _origin: Origin,
}

impl Site {
    fn new() -> Self {
        let origin = Origin::start();
        Self {
            directory: tempfile::tempdir().unwrap(),
            listen: free().to_string(),
            origin: origin.http().trim_start_matches("http://").to_owned(),
            _origin: origin,
        }
    }

    fn path(&self) -> String {
        self.directory.path().join("takeover").display().to_string()
    }

    fn command(&self) -> Command {
        let path = self.path();
        command("edge", &["--listen", &self.listen, "--origin", &self.origin, "--takeover", &path])
    }

    fn edge(&self) -> Daemon {
        Daemon::start(&mut self.command())
    }

    /// Asks the origin, as the edge passes on what is no TLS.
    fn ask(&self) -> TcpStream {
        let mut tcp = TcpStream::connect(&self.listen).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /bytes/{SIZE} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        tcp
    }
}

/// Reads an answer to its end, which must be whole.
fn whole(mut tcp: TcpStream) {
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert!(answer[head + 4..] == pattern(SIZE), "{} bytes", answer.len());
}

#[test]
fn edges_take_over_from_each_other_and_no_connection_fails() {
    let site = Site::new();
    let mut edges = vec![site.edge()];
    let downloads: Vec<_> = (0..3)
        .map(|round| {
            let download = site.ask();
            thread::scope(|scope| {
                let serving = scope.spawn(|| (0..20).for_each(|_| whole(site.ask())));
                edges.push(site.edge());
                until("the one before to stop", || {
                    edges[round].log().contains("another process takes over")
                });
                serving.join().unwrap();
            });
            download
        })
        .collect();
    let last = edges.pop().unwrap();
    // What had begun goes on, and only then they end, by themselves.
    downloads.into_iter().for_each(whole);
    for mut edge in edges {
        assert!(edge.ended().success());
    }
    whole(site.ask());
    drop(last);
}

/// A supervisor starts the next process once the main one has ended.
#[test]
fn a_restart_by_a_supervisor_refuses_and_ends_no_connection() {
    let site = Site::new();
    let start = || Daemon::start(site.command().arg("--master-worker"));
    let mut edge = start();
    for _ in 0..3 {
        let download = site.ask();
        let stopped = AtomicBool::new(false);
        edge = thread::scope(|scope| {
            let serving = scope.spawn(|| {
                while !stopped.load(Ordering::Relaxed) {
                    whole(site.ask());
                }
            });
            edge.signal(Signal::TERM);
            assert!(edge.ended().success());
            let next = start();
            stopped.store(true, Ordering::Relaxed);
            serving.join().unwrap();
            // The worker, whose words are its master's.
            until("its words", || edge.logged("another process takes over") == 1);
            whole(download);
            until("the worker to end", || edge.logged("stopped") == 1);
            next
        });
    }
}

#[test]
fn a_worker_stops_when_no_other_takes_over_and_ends_when_its_master_is_killed() {
    let site = Site::new();
    let start = || Daemon::start(site.command().arg("--master-worker"));
    let is_refused = || TcpStream::connect(&site.listen).is_err();
    let mut edge = start();
    edge.signal(Signal::HUP);
    until("a reload", || edge.logged("configuration read again") == 1);
    edge.signal(Signal::TERM);
    assert!(edge.ended().success());
    until("the worker to stop", || is_refused() && edge.logged("stopped") == 1);
    let mut edge = start();
    edge.kill();
    until("the worker to end", is_refused);
    assert_eq!(edge.logged("stopping"), 0);
}

#[test]
fn a_master_ends_as_its_worker_does() {
    let site = Site::new();
    let _taken = TcpListener::bind(&site.listen).unwrap();
    let words = fails(site.command().arg("--master-worker"));
    assert!(words.contains("in use"), "{words}");
    let words = fails(&mut command("edge", &["--origin", "localhost:1", "--master-worker"]));
    assert!(words.contains("--takeover"), "{words}");
}

#[test]
fn one_process_at_a_time_takes_over_and_one_that_fails_changes_nothing() {
    let site = Site::new();
    let edge = site.edge();
    let asking = ask(&site.path(), "edge");
    let refused = fails(&mut site.command());
    assert!(refused.contains("another process takes over"), "{refused}");
    let agent = fails(&mut command(
        "agent",
        &["--listen", "127.0.0.1:0", "--takeover", &format!("{}/none", site.path())],
    ));
    assert!(agent.contains("hint: "), "{agent}");
    drop(asking);
    until("the edge to notice", || edge.log().contains("nobody took over"));
    whole(site.ask());

    let agent =
        fails(&mut command("agent", &["--listen", "127.0.0.1:0", "--takeover", &site.path()]));
    assert!(agent.contains("an edge of this version listens there"), "{agent}");
    // One that cannot listen elsewhere.
    let user = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = user.local_addr().unwrap();
    let failing = fails(site.command().args(["--listen", &used.to_string()]));
    assert!(failing.contains("cannot listen on"), "{failing}");
    until("the edge to notice", || edge.logged("nobody took over") >= 3);
    whole(site.ask());

    let next = site.edge();
    until("the one before to stop", || edge.log().contains("another process takes over"));
    whole(site.ask());
    drop(next);
}

/// Asks for sockets as a successor does, and then says nothing.
fn ask(path: &str, role: &str) -> Socket {
    let asking = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    asking.connect(&SockAddr::unix(path).unwrap()).unwrap();
    asking.send(format!("\x01headstart takeover 2 {role}").as_bytes()).unwrap();
    let mut answer = [0; 1];
    assert_eq!((&asking).read(&mut answer).unwrap(), 1);
    assert_eq!(answer, [2], "these are the sockets");
    asking
}

/// Joins for the first process have to pass through it.
#[test]
fn a_process_between_stays_as_long_as_the_one_before() {
    let site = Site::new();
    let mut first = site.edge();
    let held = TcpStream::connect(&site.listen).unwrap();
    until("the connection to be there", || first.count("headstart_connections_active", &[]) == 1);
    let mut second = site.edge();
    let third = site.edge();
    until("the second to stop", || second.log().contains("another process takes over"));
    whole(site.ask());
    let command = fs::read(format!("/proc/{}/cmdline", second.id())).unwrap();
    assert!(!command.is_empty(), "it has ended");
    drop(held);
    assert!(first.ended().success() && second.ended().success());
    drop(third);
}

/// Answers a successor with one socket.
fn pass_socket(asking: &Socket, listener: &TcpListener) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [listener.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&sockets)));
    sendmsg(asking, &[IoSlice::new(b"\x02tcp")], &mut control, SendFlags::empty()).unwrap();
}

/// A health check must not be told that nobody is ready.
#[test]
fn metrics_are_answered_by_the_process_before_until_it_has_stopped() {
    let site = Site::new();
    let before = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    before.bind(&SockAddr::unix(site.path()).unwrap()).unwrap();
    before.listen(1).unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = metrics.local_addr().unwrap();
    let _check = TcpStream::connect(address).unwrap();
    let mut next = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["edge", "--listen", &site.listen, "--origin", &site.origin])
        .args(["--metrics", &address.to_string(), "--takeover", &site.path()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (asking, _) = before.accept().unwrap();
    let mut message = [0; 64];
    assert_eq!((&asking).read(&mut message).unwrap(), 1 + "headstart takeover 2 edge".len());
    pass_socket(&asking, &metrics);
    assert_eq!((&asking).read(&mut message).unwrap(), 1);
    assert_eq!(message[0], 4, "it is ready");
    metrics.set_nonblocking(true).unwrap();
    let untouched = metrics.accept().is_ok();
    next.kill().unwrap();
    next.wait().unwrap();
    assert!(untouched, "it was accepted by a process that does not serve yet");
}

/// Nobody listens as long as it hangs, and it will stop: so the next one serves, and then waits
/// for its path.
#[test]
fn a_process_that_hangs_when_it_is_to_stop_does_not_keep_the_path() {
    let mut site = Site::new();
    let before = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    before.bind(&SockAddr::unix(site.path()).unwrap()).unwrap();
    before.listen(1).unwrap();
    // An edge that does not start fails the test instead of holding it up.
    before.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    site.listen = listener.local_addr().unwrap().to_string();
    let (edge, asking) = thread::scope(|scope| {
        let starting = scope.spawn(|| site.edge());
        let (asking, _) = before.accept().unwrap();
        let mut message = [0; 64];
        assert!((&asking).read(&mut message).unwrap() > 0);
        pass_socket(&asking, &listener);
        assert_eq!((&asking).read(&mut message).unwrap(), 1);
        assert_eq!(message[0], 4, "it is ready");
        (starting.join().unwrap(), asking)
    });
    assert!(edge.log().contains("the process before does not answer"), "{}", edge.log());
    whole(site.ask());
    // It goes on, and stops.
    asking.send(&[5]).unwrap();
    drop(before);
    until("the path to be taken", || edge.log().contains("the process before has stopped"));
    let next = site.edge();
    until("it to stop", || edge.log().contains("another process takes over"));
    whole(site.ask());
    drop(next);
}

#[test]
fn a_killed_edge_is_followed_by_one_that_opens_its_sockets() {
    let site = Site::new();
    let mut edge = site.edge();
    edge.kill();
    assert!(fs::metadata(site.path()).unwrap().file_type().is_socket(), "nobody cleaned up");
    let next = site.edge();
    whole(site.ask());
    next.signal(Signal::TERM);
    until("the file to go", || !Path::new(&site.path()).exists());
}

#[test]
fn another_users_socket_is_not_believed_nor_another_user_served() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new();
    // Another user listens where root looks.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("takeover");
    let listen = "import socket, sys, time\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        s.bind(sys.argv[1]); s.listen(); time.sleep(600)";
    let mut python = Command::new("python3");
    python.args(["-c", listen]).arg(&path).uid(OTHER).gid(OTHER);
    let mut other = python.spawn().unwrap();
    until("the other user to listen", || {
        Socket::new(Domain::UNIX, Type::SEQPACKET, None)
            .unwrap()
            .connect(&SockAddr::unix(&path).unwrap())
            .is_ok()
    });
    let mut edge = command("edge", &["--listen", &site.listen, "--origin", &site.origin]);
    let refused = fails(edge.arg("--takeover").arg(&path));
    assert!(refused.contains(&format!("another user (uid {OTHER})")), "{refused}");
    other.kill().unwrap();
    other.wait().unwrap();

    // The socket of an edge, even if a mistake lets others connect.
    let _edge = site.edge();
    fs::set_permissions(site.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let asks = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        s.connect(sys.argv[1])\n\
        s.send(b'\\x01headstart takeover 2 edge'); sys.exit(len(s.recv(1)))";
    let mut python = Command::new("python3");
    let output = python.args(["-c", asks, &site.path()]).uid(OTHER).gid(OTHER).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(0) || message.contains("Error"), "{message}");
    whole(site.ask());
}

#[test]
fn agents_hand_over_proxy_ports_and_the_managed_socket() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, path] =
        ["socket", "takeover"].map(|name| directory.path().join(name).display().to_string());
    let listen = free().to_string();
    let arguments =
        ["--listen", &listen, "--takeover", &path, "--socket", &socket, "--socket-mode", "600"];
    let start = || Daemon::start(&mut command("agent", &arguments));
    let mut first = start();
    let second = start();
    assert!(first.ended().success());
    for _ in 0..2 {
        UnixStream::connect(&socket).unwrap();
        let mut proxy = TcpStream::connect(&listen).unwrap();
        proxy.write_all(&[5, 1, 0]).unwrap();
        let mut answer = [0; 2];
        proxy.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0]);
    }
    second.signal(Signal::TERM);
    until("its files to go", || [&socket, &path].iter().all(|file| !Path::new(file).exists()));
}

/// The process that has got the sockets serves when it is ready.
#[test]
fn a_stop_while_another_process_takes_over_leaves_it_the_managed_socket() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, path] =
        ["socket", "takeover"].map(|name| directory.path().join(name).display().to_string());
    let arguments = ["--listen", "127.0.0.1:0", "--takeover", &path, "--socket", &socket];
    let mut agent = Daemon::start(&mut command("agent", &arguments));
    let asking = ask(&path, "agent");
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
    assert!(Path::new(&socket).exists());
    drop(asking);
}

#[test]
fn a_second_stop_ends_connections_at_once() {
    let site = Site::new();
    let mut edge = site.edge();
    // A download may fit into the buffers of the kernel, and end.
    let _held = TcpStream::connect(&site.listen).unwrap();
    until("the connection to be there", || edge.count("headstart_connections_active", &[]) == 1);
    edge.signal(Signal::TERM);
    until("it stops", || edge.log().contains(" stopping"));
    edge.signal(Signal::TERM);
    assert!(edge.ended().success());
    until("the end of its log", || edge.logged("stopped before they ended") == 1);
}

/// Runs a daemon with these sockets as systemd passes them.
fn activated(
    role: &str,
    one: impl Into<OwnedFd>,
    other: impl Into<OwnedFd>,
    arguments: &[&str],
) -> Command {
    let daemon = command(role, arguments);
    let mut shell = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=2; export LISTEN_PID LISTEN_FDS\n\
        exec \"$@\" 3<&0 4<&1 0</dev/null 1>/dev/null";
    shell.args(["-c", script, "sh"]).arg(daemon.get_program()).args(daemon.get_args());
    shell.stdin(one.into()).stdout(other.into());
    shell
}

#[test]
fn sockets_of_systemd_are_used_and_have_to_be_named() {
    let mut site = Site::new();
    let address = free();
    let (tcp, udp) = (TcpListener::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
    let copies = || (tcp.try_clone().unwrap(), udp.try_clone().unwrap());
    let (one, other) = copies();
    let unnamed = ["--listen", site.listen.as_str(), "--origin", &site.origin];
    let refused = fails(&mut activated("edge", one, other, &unnamed));
    assert!(refused.contains("systemd passes a socket that no option names"), "{refused}");

    site.listen = address.to_string();
    let arguments = ["--listen", site.listen.as_str(), "--origin", &site.origin];
    for _ in 0..2 {
        let (one, other) = copies();
        // It waits in the queue meanwhile: a restart refuses nobody.
        let early = site.ask();
        let mut edge = Daemon::start(&mut activated("edge", one, other, &arguments));
        whole(early);
        whole(site.ask());
        edge.signal(Signal::TERM);
        assert!(edge.ended().success());
    }
}

/// With Accept=yes, systemd starts a process for each connection.
#[test]
fn a_connection_of_systemd_is_no_listener() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let arguments = ["--listen", site.listen.as_str(), "--origin", &site.origin];
    let refused = fails(&mut activated("edge", accepted, client, &arguments));
    assert!(refused.contains("it is a connection, and no listener"), "{refused}");
    assert!(refused.contains("no Accept="), "{refused}");
}

/// systemd listens on, and would not make the file again.
#[test]
fn the_file_of_a_socket_of_systemd_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let [listen, socket] = [tcp.local_addr().unwrap().to_string(), path.display().to_string()];
    let copy = unix.try_clone().unwrap();
    let arguments = ["--listen", listen.as_str(), "--socket", &socket];
    let mut agent = Daemon::start(&mut activated("agent", tcp, copy, &arguments));
    UnixStream::connect(&path).unwrap();
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
    assert!(path.exists());
}
