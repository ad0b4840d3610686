//! `headstart edge` as a process.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};

pub(crate) use headstart_testkit::closed;

use crate::daemon::Daemon;
pub(crate) use crate::daemon::{PATIENCE, until};
use crate::files::Files;

/// A running edge.
pub(crate) struct Edge {
    daemon: Daemon,
    pub(crate) address: SocketAddr,
}

impl Edge {
    /// An edge with the certificates for `names` in `files`, on a free port of loopback.
    pub(crate) fn start(files: &Files, names: &[&str], arguments: &[&str]) -> Self {
        let certificates = names.iter().flat_map(|name| files.certificate(name));
        let daemon = Daemon::start(command().args(certificates).args(arguments));
        let address = daemon.address("listening address=").expect("it listens");
        Self { daemon, address }
    }

    /// The name with the port, for URLs.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{name}:{}", self.address.port())
    }
}

impl Deref for Edge {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl DerefMut for Edge {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
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
