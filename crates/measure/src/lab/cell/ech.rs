//! The server with Encrypted ClientHello: a program of its own (extras/ech-server), since it has an
//! OpenSSL of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headstart_emulation::Node;
use headstart_openers::NAME;

use super::setting::Setting;
use crate::lab::plan::Plan;
use crate::lab::process::{Broken, Program, find_program};

/// The name that everybody sees; no certificate has it.
pub(super) const OUTER_NAME: &str = "public.peer.test";

pub(super) const PROGRAM: &str = "headstart-ech-server";

/// Variable with the program's path, if it is not in the usual places.
const VARIABLE: &str = "HEADSTART_ECH_SERVER";

pub(super) const HINT: &str = "build it by cargo build --manifest-path \
    extras/ech-server/Cargo.toml --target-dir target, or say with HEADSTART_ECH_SERVER where it is";

/// Returns true if an arm of the plan encrypts its ClientHello.
pub(super) fn is_needed(plan: &Plan) -> bool {
    plan.stages.iter().flat_map(|stage| &stage.cells).any(|cell| cell.arm.encrypts_hello())
}

/// The program, if it is there.
pub(super) fn program() -> Option<PathBuf> {
    let configured = std::env::var_os(VARIABLE).map(PathBuf::from);
    find(configured, &std::env::current_exe().ok()?)
}

/// Returns the program: where the variable points, else beside `this` program or in the folder
/// above (tests run in one below), else on the path.
fn find(configured: Option<PathBuf>, this: &Path) -> Option<PathBuf> {
    if configured.is_some() {
        return configured.filter(|file| file.is_file());
    }
    let mut beside = this.ancestors().skip(1).take(2).map(|folder| folder.join(PROGRAM));
    beside.find(|file| file.is_file()).or_else(|| find_program(PROGRAM))
}

/// Starts the server of one node; all of a run have one key. It says when it is ready.
pub(super) fn start(setting: &Setting, node: &Node, listen: SocketAddr) -> Result<Program, Broken> {
    let program =
        program().ok_or_else(|| Broken::Program(format!("{PROGRAM} was not found; {HINT}")))?;
    let identity = setting.identity()?;
    let mut command = node.command(program);
    command.arg("--listen").arg(listen.to_string());
    command.arg("--certificate").arg(identity.chain_file());
    command.arg("--key").arg(identity.key_file());
    command.args(["--group", setting.suite().group()]);
    command.args(["--inner-name", NAME, "--outer-name", OUTER_NAME]);
    command.arg("--ech").arg(setting.work().join("ech.pem"));
    if setting.spec.arm.sends_early_data() {
        command.arg("--early-data");
    }
    setting.schedule(&mut command);
    Program::start(node, setting.title("server"), command)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_program_is_found_where_told_beside_this_one_and_above() {
        let folder = tempfile::tempdir().unwrap();
        let (above, below) = (folder.path().join(PROGRAM), folder.path().join("deps"));
        fs::create_dir(&below).unwrap();
        let (nearer, this) = (below.join(PROGRAM), below.join("headstart-0123"));
        fs::write(&above, "").unwrap();
        assert_eq!(find(None, &this).as_ref(), Some(&above));
        fs::write(&nearer, "").unwrap();
        assert_eq!(find(None, &this).as_ref(), Some(&nearer));
        assert_eq!(find(Some(above.clone()), &this), Some(above));
        // A wrong path does not fall back to another program.
        assert_eq!(find(Some(folder.path().join("missing")), &this), None);
    }
}
