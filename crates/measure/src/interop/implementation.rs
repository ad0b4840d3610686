//! Implementations: commands that are a client's proxy, or a server's edge.

use std::net::SocketAddr;
use std::str::FromStr;

use headstart::base::failure::Failure;
use headstart_emulation::Node;

use crate::lab::process::{Broken, Program, product};

const HEADSTART: &str = include_str!("../../../../lab/interop/headstart.sh");

/// A named command.
#[derive(Debug, Clone)]
pub(crate) struct Implementation {
    pub(crate) name: String,
    /// For `sh -c`.
    script: String,
    variables: Vec<(&'static str, String)>,
}

impl Implementation {
    /// The agent and the edge of this project.
    pub(super) fn product() -> Result<Self, Failure> {
        let program = product()?.display().to_string();
        Ok(Self {
            name: "headstart".into(),
            script: HEADSTART.into(),
            variables: vec![("HEADSTART", program)],
        })
    }

    /// Starts the command on a node, to listen at `listen`.
    pub(super) fn start(
        &self,
        node: &Node,
        listen: SocketAddr,
        variables: &[(&str, String)],
    ) -> Result<Program, Broken> {
        let mut command = node.command("sh");
        command.args(["-c", &self.script]).env("LISTEN", listen.to_string());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Program::start(node, &self.name, command)
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
