//! `headstart agent` as a process.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::call::{Outcome, outcome};
use crate::daemon::{Daemon, until};

/// A running agent with a socket in a directory of its own.
pub(crate) struct Agent {
    daemon: Daemon,
    dir: TempDir,
}

impl Agent {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments)
    }

    pub(crate) fn start_in(dir: TempDir, arguments: &[&str]) -> Self {
        Self::run(dir, arguments, &[])
    }

    /// Starts an agent whose system has these root certificates.
    pub(crate) fn start_trusting(dir: TempDir, roots: &str, arguments: &[&str]) -> Self {
        Self::run(dir, arguments, &[("SSL_CERT_FILE", roots)])
    }

    fn run(dir: TempDir, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(&dir.path().join("socket"));
        let daemon = Daemon::start(command.args(arguments).envs(environment.iter().copied()));
        Self { daemon, dir }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where it listens for managed TLS, beside its socket.
    pub(crate) fn port(&self) -> SocketAddr {
        self.address("listening for managed TLS address=").expect("no port")
    }

    /// Waits until exactly `count` lines of the audit log contain all of `words`.
    pub(crate) fn until_audited(&self, words: &[&str], count: usize) {
        until("the audit log has it", || self.audited(words) >= count);
        assert_eq!(self.audited(words), count, "{words:?}");
    }

    pub(crate) fn audited(&self, words: &[&str]) -> usize {
        let log = self.log();
        let lines = log.lines().filter(|line| line.contains("headstart::audit"));
        lines.filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Kills it, and gives its directory to the next one.
    pub(crate) fn kill(mut self) -> TempDir {
        self.daemon.kill();
        self.dir
    }
}

impl Deref for Agent {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
    }
}

fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--socket"])
        .arg(socket)
        .args(["--metrics", "127.0.0.1:0"])
        .env_clear()
        .env("HEADSTART_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Exit code and words of an agent that is not to start.
pub(crate) fn fails(socket: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(socket).args(arguments).stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Runs `headstart sessions`.
pub(crate) fn sessions(agent: &Agent, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.arg("sessions").args(arguments).arg("--socket").arg(agent.socket()).env_clear();
    outcome(command.output().unwrap())
}
