//! `headstart-lab doctor`: what this machine allows the lab; part of what `headstart doctor` tells.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use headstart::base::failure::Failure;
use headstart::base::output;
use headstart::doctor::Finding;
use headstart_emulation::{Privilege, privilege};

/// Check what this machine allows the lab
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorOptions {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Checks and prints. Call it while the process has one thread.
pub(crate) fn run(options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let findings = [namespaces(), ip_command()];
    let text = if options.json {
        let text = serde_json::to_string_pretty(&findings);
        text.map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))? + "\n"
    } else {
        findings.iter().map(|finding| finding.line(false)).collect()
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn namespaces() -> Finding {
    match privilege() {
        Privilege::Root => Finding::ok("namespaces", "this user may make network namespaces"),
        Privilege::UserNamespace => {
            Finding::ok("namespaces", "a user namespace was made; demo needs no root")
        }
        Privilege::None(refusal) => {
            Finding::note("namespaces", format!("no demo here: {refusal}"), refusal.hint())
        }
    }
}

fn ip_command() -> Finding {
    let ran = Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let hint = "demo needs it: install iproute2";
    match ran {
        Ok(status) if status.success() => Finding::ok("ip_command", "`ip` runs"),
        Ok(status) => Finding::note("ip_command", format!("`ip -V`: {status}"), hint),
        Err(error) => Finding::note("ip_command", format!("`ip`: {error}"), hint),
    }
}
