//! Tells the program the commit it is built from, which results name.

use std::process::Command;

fn main() {
    // Without git, or outside a checkout, there is none to name.
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]);
    println!("cargo::rustc-env=HEADSTART_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=src");
    // Each commit and each change of branch adds a line to it.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
