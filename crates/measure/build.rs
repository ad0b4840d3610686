//! Tells the program the commit it is built from, which results name.

use std::process::Command;

fn main() {
    // Without git, or outside a checkout, there is none to name.
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]);
    println!("cargo::rustc-env=HEADSTART_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // A change anywhere makes it another program, whatever the commit: all crates, and what it includes.
    for part in ["../../crates", "../../lab", "../../Cargo.lock", "../../Cargo.toml", "src"] {
        // Cargo takes a file that is missing, as in a published package, for one that always changes.
        if std::path::Path::new(part).exists() {
            println!("cargo::rerun-if-changed={part}");
        }
    }
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
