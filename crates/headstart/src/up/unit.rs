//! Units of systemd, and the agent's.

use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::geteuid;

use crate::base::failure::Failure;
use crate::base::output;

const AGENT: &str = "headstart-agent.service";

/// Returns true if systemd runs this machine: sd_booted(3).
pub(super) fn is_booted() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Runs systemctl.
///
/// # Errors
/// Its words.
pub(super) fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    run("systemctl", arguments)
}

/// Runs a program that prints nothing on success.
///
/// # Errors
/// Its words.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.map_err(|error| Failure::usage(format!("cannot run {program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let command = arguments.join(" ");
    Err(Failure::negative(format!("`{program} {command}` failed: {}", words.trim())))
}

/// Starts the agent, now and at each start of the machine or of the user's session.
pub(super) fn agent_up() -> Result<ExitCode, Failure> {
    agent("enable").map_err(|failure| {
        failure.hint("without systemd: `headstart agent &`; see `systemctl status headstart-agent`")
    })?;
    let run = if geteuid().is_root() {
        "headstart run --socket /run/headstart-agent/socket \\\n    \
         --agent-uid \"$(id -u headstart-agent)\" -- COMMAND"
    } else {
        "headstart run -- COMMAND"
    };
    let text = format!(
        "The agent runs. It finds edges by DNS; `headstart agent --help` names others.\n\n\
         {run}\n\
         curl --proxy socks5h://127.0.0.1:1080 https://www.example.com/\n\
         chromium --proxy-server=socks5://127.0.0.1:1080\n"
    );
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Stops it for good.
pub(super) fn agent_down() -> Result<ExitCode, Failure> {
    agent("disable")?;
    Ok(ExitCode::SUCCESS)
}

fn agent(action: &str) -> Result<(), Failure> {
    let manager = if geteuid().is_root() { "--system" } else { "--user" };
    systemctl(&[manager, action, "--now", AGENT])
}
