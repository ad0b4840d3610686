use std::fs;
use std::io::Write;
use std::process::{Child, Output, Stdio};
use std::thread;

use super::{DIRECTORY_PORT, LOOK, Limits, Member, OR_PORT, create_private, not_started};
use crate::error::LabError;

/// Nobody needs the identity key again: it is forgotten with the network.
const PASSPHRASE: &[u8] = b"forgotten with the network\n";

/// Step that errors name.
const MAKING: &str = "making Tor's keys";

/// A directory authority, as the configurations of all nodes name it.
pub(super) struct Authority {
    line: String,
}

impl Authority {
    /// Generates its keys and reads its fingerprint.
    pub(super) fn make(member: &Member<'_>, limits: Limits<'_>) -> Result<Self, LabError> {
        let keys = member.directory.join("keys");
        create_private(&keys).map_err(LabError::system("making a folder for Tor"))?;
        let certificate = keys.join("authority_certificate");
        let address = format!("{}:{DIRECTORY_PORT}", member.address());
        let mut command = member.node.command("tor-gencert");
        command
            .args(["--create-identity-key", "-m", "12", "--passphrase-fd", "0", "-a", &address])
            .arg("-i")
            .arg(keys.join("authority_identity_key"))
            .arg("-s")
            .arg(keys.join("authority_signing_key"))
            .arg("-c")
            .arg(&certificate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        // A write fails only if the program has ended; then its output says why.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(PASSPHRASE));
        let made = finish(child, limits, "tor-gencert has made no keys")?;
        let text = fs::read_to_string(&certificate).unwrap_or_default();
        let v3 = text.lines().find_map(|line| line.strip_prefix("fingerprint "));
        let v3 = v3.ok_or_else(|| failed("tor-gencert made no certificate", &made))?;
        let fingerprint = fingerprint(member, limits)?;
        let nickname = member.nickname();
        let line = format!(
            "DirAuthority {nickname} orport={OR_PORT} no-v2 v3ident={v3} {address} {fingerprint}\n"
        );
        Ok(Self { line })
    }

    pub(super) fn line(&self) -> &str {
        &self.line
    }
}

/// Returns the fingerprint of a relay's key, which Tor creates at its first start. Tor refuses a
/// private network without an authority, so the configuration names one that nothing contacts.
fn fingerprint(member: &Member<'_>, limits: Limits<'_>) -> Result<String, LabError> {
    let nobody = format!("DirAuthority nobody orport=1 127.0.0.1:1 {}\n", "f".repeat(40));
    member.configure(&nobody, &member.options())?;
    let mut command = member.command();
    command.args(["--list-fingerprint", "--quiet"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(not_started)?;
    let output = finish(child, limits, "tor --list-fingerprint says nothing")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = text.lines().find_map(|line| line.strip_prefix(&member.nickname()));
    let own = own.ok_or_else(|| failed("tor --list-fingerprint shows none", &output))?;
    Ok(own.split_whitespace().collect())
}

/// Waits for a program that prints little to end; past the deadline, fails with `what`.
fn finish(mut child: Child, limits: Limits<'_>, what: &str) -> Result<Output, LabError> {
    while child.try_wait().map_err(LabError::system(MAKING))?.is_none() {
        if let Some(what) = limits.over(what) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(LabError::Tor { what, output: String::new() });
        }
        thread::sleep(LOOK / 10);
    }
    child.wait_with_output().map_err(LabError::system(MAKING))
}

fn failed(what: &str, output: &Output) -> LabError {
    let output = [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).trim().to_owned());
    LabError::Tor { what: what.to_owned(), output: output.join("\n") }
}
