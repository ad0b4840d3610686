//! `headstart doctor`: what this machine, and a server, support.

mod finding;
mod machine;
pub mod options;
mod server;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use serde_json::json;

use crate::base::failure::{Failure, NEGATIVE, colours_wanted};
use crate::base::{output, runtime};
use crate::doctor::options::DoctorOptions;
pub use finding::{Finding, Level};

/// Checks and prints. Call it while the process has one thread.
pub(crate) fn run(options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let mut sections = vec![("this machine".to_owned(), machine::check())];
    if let Some(host) = &options.host {
        let findings = runtime::run_here(server::check(host, options))?;
        sections.push((host.to_string(), findings));
    }
    print(&sections, options.json)
}

/// Prints what was found, for people or as JSON; the exit code is negative if there is a problem.
pub(crate) fn print(sections: &[Section], json: bool) -> Result<ExitCode, Failure> {
    let mut all = sections.iter().flat_map(|(_, findings)| findings);
    let well = all.all(|finding| finding.level != Level::Problem);
    if json {
        output::print(json_text(sections, well).as_bytes())?;
    } else {
        // With colours; the findings escape what others say.
        output::print_raw(text(sections).as_bytes())?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// A subject, and what was found about it.
pub(crate) type Section = (String, Vec<Finding>);

fn text(sections: &[Section]) -> String {
    let colours = colours_wanted(stdout().is_terminal());
    sections
        .iter()
        .map(|(name, findings): &Section| {
            let findings: String = findings.iter().map(|finding| finding.line(colours)).collect();
            format!("{name}\n{findings}")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn json_text(sections: &[Section], well: bool) -> String {
    let findings: Vec<_> = sections
        .iter()
        .flat_map(|(name, findings)| findings.iter().map(move |finding| finding.json(name)))
        .collect();
    format!("{:#}\n", json!({ "ok": well, "findings": findings }))
}
