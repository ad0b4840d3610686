//! Implementations: commands that are a client's proxy, or a server's edge.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{net::TcpStream, thread};

use headstart::base::failure::Failure;
use headstart_emulation::Node;

use crate::interrupt::Interrupt;
use crate::lab::process::{Broken, Program, product};

const HEADSTART: &str = include_str!("../../../../lab/interop/headstart.sh");

/// Exit code of a command that does not have what the case needs, as in the QUIC interop runner.
const UNSUPPORTED: i32 = 127;

/// Time within which a command has to listen.
const START: Duration = Duration::from_secs(20);

/// Interval at which the runner looks whether it does.
const LOOK: Duration = Duration::from_millis(10);

/// A named command.
#[derive(Debug, Clone)]
pub(crate) struct Implementation {
    pub(crate) name: String,
    /// For `sh -c`.
    script: String,
    variables: Vec<(&'static str, String)>,
}

/// Reason why a command did not come to listen.
#[derive(Debug)]
pub(super) enum NotReady {
    Unsupported,
    Broken(Broken),
}

impl Implementation {
    /// The agent and the edge of this project.
    ///
    /// # Errors
    /// `headstart` is not there.
    pub(super) fn product() -> Result<Self, Failure> {
        let program = product()?.display().to_string();
        Ok(Self {
            name: "headstart".into(),
            script: HEADSTART.into(),
            variables: vec![("HEADSTART", program)],
        })
    }

    /// Starts the command on a node and waits until it listens at `listen`.
    pub(super) fn start(
        &self,
        node: &Node,
        listen: SocketAddr,
        variables: &[(&str, String)],
        interrupt: &Interrupt,
    ) -> Result<Program, NotReady> {
        let mut command = node.command("sh");
        command.args(["-c", &self.script]).env("LISTEN", listen.to_string());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut program = Program::start(node, &self.name, command).map_err(NotReady::Broken)?;
        let until = Instant::now() + START;
        loop {
            if program.exit_code() == Some(UNSUPPORTED) {
                return Err(NotReady::Unsupported);
            }
            if interrupt.is_set() {
                return Err(NotReady::Broken(Broken::Interrupted));
            }
            program.check().map_err(NotReady::Broken)?;
            let connected = node.run(|| TcpStream::connect_timeout(&listen, START));
            if connected.flatten().is_ok() {
                return Ok(program);
            }
            if Instant::now() > until {
                let why = format!("{} does not listen at {listen}", self.name);
                return Err(NotReady::Broken(Broken::Program(why)));
            }
            thread::sleep(LOOK);
        }
    }
}

impl FromStr for Implementation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(name, command)| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !name.is_empty() && name.chars().all(is_plain) && !command.trim().is_empty()
        });
        let (name, command) = parts.ok_or("not NAME=COMMAND, with letters and digits in NAME")?;
        // Without a shell between: the runner ends the process that it started.
        let script = format!("exec {command}");
        Ok(Self { name: name.into(), script, variables: Vec::new() })
    }
}
