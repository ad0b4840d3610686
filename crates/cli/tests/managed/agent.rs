//! `headstart agent` as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::edge::{free, until};

/// A running agent with a socket in a directory of its own; killed when dropped, and its log shown if that is by a
/// failure.
pub(crate) struct Agent {
    child: Child,
    dir: TempDir,
    metrics: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Agent {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments)
    }

    pub(crate) fn start_in(dir: TempDir, arguments: &[&str]) -> Self {
        let metrics = free();
        let mut command = command(&dir.path().join("socket"), metrics);
        let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
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
        let mut agent = Self { child, dir, metrics, log };
        until("the agent is ready", || {
            assert!(agent.child.try_wait().unwrap().is_none(), "it ended:\n{}", agent.log());
            agent.get("/readyz").is_some()
        });
        agent
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
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

    /// Waits until so many lines of the audit log contain all of `words`; more there are not to be.
    pub(crate) fn until_audited(&self, words: &[&str], count: usize) {
        until("the audit log has it", || self.audited(words) >= count);
        assert_eq!(self.audited(words), count, "{words:?}");
    }

    fn audited(&self, words: &[&str]) -> usize {
        let log = self.log();
        let lines = log.lines().filter(|line| line.contains("headstart::audit"));
        lines.filter(|line| words.iter().all(|word| line.contains(word))).count()
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
        until("the agent's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Kills it, and gives its directory to the next one.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the agent's log\n{}", self.log());
        }
    }
}

fn command(socket: &Path, metrics: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--socket"])
        .arg(socket)
        .args(["--metrics", &metrics.to_string()])
        .env_clear()
        .env("HEADSTART_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Exit code and words of an agent that is not to start.
pub(crate) fn fails(socket: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(socket, free()).args(arguments).stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// What `headstart sessions` says: exit code, output, errors.
pub(crate) fn sessions(agent: &Agent, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.arg("sessions").args(arguments).arg("--socket").arg(agent.socket()).env_clear();
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
