//! `headstart edge` as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

use crate::files::Files;

/// Longer than anything here takes. Early data is refused for 20 s after a start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A running edge; killed when dropped, and its log shown if that is by a failure.
pub(crate) struct Edge {
    child: Child,
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Edge {
    /// An edge with the certificates for `names` in `files`, on a free port of loopback.
    pub(crate) fn start(files: &Files, names: &[&str], arguments: &[&str]) -> Self {
        let certificates = names.iter().flat_map(|name| files.certificate(name));
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let child =
            command().args(certificates.chain(arguments)).stderr(Stdio::piped()).spawn().unwrap();
        Self::of(child)
    }

    fn of(mut child: Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let (found, addresses) = mpsc::channel();
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // In this order.
                for words in ["listening address=", "metrics address="] {
                    if let Some((_, address)) = line.split_once(words) {
                        let _ = found.send(address.trim().parse().unwrap());
                    }
                }
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let address = || addresses.recv_timeout(PATIENCE);
        let (Ok(address), Ok(metrics)) = (address(), address()) else {
            let _ = child.kill();
            panic!("it does not listen:\n{}", log.lock().unwrap());
        };
        let edge = Self { child, address, metrics, log };
        until("the edge is ready", || edge.get("/readyz").is_some());
        edge
    }

    /// The name with the port, for URLs.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{name}:{}", self.address.port())
    }

    /// The sum of all counters and gauges called `name` whose labels contain all of `labels`.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.get("/metrics").expect("no metrics");
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut tcp = TcpStream::connect(self.metrics).ok()?;
        write!(tcp, "GET {path} HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// How many lines of the log contain `words`.
    pub(crate) fn logged(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the edge's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the edge's log\n{}", self.log());
        }
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command
        .args(["edge", "--listen", "127.0.0.1:0", "--log", "debug"])
        .args(["--metrics", "127.0.0.1:0"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Exit code and words of an edge that is not to start.
pub(crate) fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = command().args(arguments).stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// An address that nobody listens on: as long as this runs, the kernel gives its port to nobody else.
pub(crate) fn closed() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

/// Waits for what happens soon.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
