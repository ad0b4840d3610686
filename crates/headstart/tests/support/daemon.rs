//! A daemon of headstart as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub(crate) use headstart_testkit::until;

/// Longer than anything here takes. Early data is refused for 20 s after a start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A running daemon; killed when dropped, and its log shown if that is by a failure.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts `command`, which has a metrics endpoint, and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut daemon = Self { child, log };
        until("it is ready", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "it ended:\n{}", daemon.log());
            // The line comes last: what it said before has been read as well.
            daemon.log().lines().any(|line| line.ends_with(" ready"))
        });
        assert!(daemon.get("/healthz").is_some());
        daemon
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.get("/readyz").is_some()
    }

    /// The address that stands in its log behind `words`, for the first time.
    pub(crate) fn address(&self, words: &str) -> Option<SocketAddr> {
        let log = self.log();
        let line = log.lines().find_map(|line| line.split_once(words))?;
        line.1.trim().parse().ok()
    }

    /// The sum of all counters and gauges called `name` whose labels contain all of `labels`.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.get("/metrics").expect("no metrics");
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut tcp = TcpStream::connect(self.address("metrics address=")?).ok()?;
        write!(tcp, "GET {path} HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Returns the number of lines of the log that contain `words`.
    pub(crate) fn logged(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- its log\n{}", self.log());
        }
    }
}
