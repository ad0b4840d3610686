//! The kernel's programs of Fast Open Privacy: at a control group of the clients, and at the
//! interfaces of servers.
//!
//! Both are attached by `headstart fastopen`, as on any machine, and the program of Careful Resume
//! for edges by `headstart careful-resume`. What they pin is in a file system that only this run
//! sees, and the clients are in a control group of their own, so that nothing outside of the run
//! has anything to do with them; they are gone with it, however it ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headstart_emulation::{INTERFACE, Node, own_bpf_mount};

use crate::lab::plan::Plan;
use crate::lab::process::{Broken, Program};
use crate::lab::topology::HTTPS;
use headstart::base::failure::Failure;

/// Conventional mount point of BPF file systems.
const BPF_MOUNT: &str = "/sys/fs/bpf";

/// The mounts that this process sees (proc_pid_mounts(5)).
const MOUNTS: &str = "/proc/self/mounts";

/// The file that takes a process into a control group (cgroups(7)).
const MEMBERS: &str = "cgroup.procs";

const ATTACH: [&str; 2] = ["fastopen", "attach"];

/// Programs attached for the clients of a run, and for edges.
#[derive(Debug)]
pub(crate) struct ClientSide {
    group: PathBuf,
}

impl ClientSide {
    /// Attaches it if an arm of the plan needs it. Call it while the process has one thread.
    ///
    /// # Errors
    /// The user is not root, the kernel lacks something, or programs are refused.
    pub(crate) fn attach(plan: &Plan, program: &Path) -> Result<Option<Self>, Failure> {
        let cells = plan.stages.iter().flat_map(|stage| &stage.cells);
        let arms: Vec<_> = cells.map(|cell| cell.arm).collect();
        let (name, careful) =
            (&plan.experiment.name, arms.iter().any(|arm| arm.resumes_carefully()));
        if !careful && !arms.iter().any(|arm| arm.has_private_cookies()) {
            return Ok(None);
        }
        let side = Self::attach_for(name, program)?;
        if careful {
            side.attach_careful(program)?;
        }
        Ok(Some(side))
    }

    /// Lets edges in the group set windows.
    fn attach_careful(&self, program: &Path) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command.args(["careful-resume", "attach", "--cgroup"]).arg(&self.group);
        outcome(command.args(["--dir", BPF_MOUNT]).output()).map_err(|why| {
            Failure::usage(format!("headstart careful-resume attach: {why}"))
                .hint("`headstart doctor` tells what this machine supports")
        })
    }

    /// Returns a command that runs a program on a node, in the group from its start.
    pub(crate) fn command(&self, node: &Node, program: &Path) -> Command {
        let mut command = node.command("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.join(MEMBERS));
        command.arg(program);
        command
    }

    /// Attaches it for an experiment of this name. Call it while the process has one thread.
    pub(crate) fn attach_for(experiment: &str, program: &Path) -> Result<Self, Failure> {
        own_bpf_mount(BPF_MOUNT).map_err(|error| {
            Failure::usage(format!(
                "{experiment}: arms of FOP need a BPF file system, and there is none to be had: \
                    {error}"
            ))
            .hint(
                "run it as root: the kernel takes such programs from nobody else; other \
                experiments need no root",
            )
        })?;
        let group = group().map_err(|error| {
            Failure::usage(format!("cannot make a control group: {error}"))
                .hint("mount a cgroup2 file system: mount -t cgroup2 none /sys/fs/cgroup")
        })?;
        let side = Self { group };
        let mut command = Command::new(program);
        command.args(ATTACH).args(["client", "--cgroup"]).arg(&side.group);
        command.args(["--dir", BPF_MOUNT]);
        outcome(command.output()).map_err(|why| {
            Failure::usage(format!("headstart fastopen attach client: {why}"))
                .hint("`headstart doctor` tells what this machine supports")
        })?;
        Ok(side)
    }

    /// Takes a program among those whose connections may have cookies.
    pub(crate) fn take(&self, program: &Program) -> Result<(), Broken> {
        fs::write(self.group.join(MEMBERS), program.pid().to_string()).map_err(|error| {
            Broken::Program(format!("cannot use {}: {error}", self.group.display()))
        })
    }
}

/// Programs that run at the end of a run have been killed, but may not be gone yet: then the empty
/// folder stays.
impl Drop for ClientSide {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// A new control group below the root of cgroup2.
fn group() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string(MOUNTS)?;
    let root = cgroup2(&mounts).ok_or_else(|| io::Error::other("no cgroup2 is mounted"))?;
    let group = Path::new(root).join(format!("headstart-emulation-{}", std::process::id()));
    fs::create_dir(&group)?;
    Ok(group)
}

/// Returns the mount point of cgroup2; a hybrid hierarchy has it beside others.
fn cgroup2(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then_some(place)
    })
}

/// Programs attached to the interface of one server.
#[derive(Debug)]
pub(crate) struct ServerSide {
    /// Directory of its pinned maps.
    pub(super) dir: PathBuf,
}

impl ServerSide {
    /// Attaches it to a node; `label` is that of no other in the run.
    pub(crate) fn attach(program: &Path, node: &Node, label: &str) -> Result<Self, Broken> {
        let dir = Path::new(BPF_MOUNT).join(label);
        let mut command = node.command(program);
        command.args(ATTACH).args(["server", "--interface", INTERFACE]);
        command.args(["--port", &HTTPS.to_string(), "--dir"]).arg(&dir);
        let side = Self { dir };
        outcome(command.output())
            .map_err(|why| Broken::Program(format!("headstart fastopen attach server: {why}")))?;
        Ok(side)
    }
}

impl ServerSide {
    /// Returns the directory of its pinned maps.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Without its pins it goes, and before it would with the run.
impl Drop for ServerSide {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Checks the exit of a command; otherwise returns what it wrote to stderr.
fn outcome(output: io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Err(if text.is_empty() { output.status.to_string() } else { text })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_in_every_hierarchy() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2(hybrid), Some("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2("none /sys/fs/cgroup cgroup2 rw 0 0\n"), Some("/sys/fs/cgroup"));
        assert_eq!(cgroup2("cgroup2 /cgroup2 tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let run = |script: &str| outcome(Command::new("sh").args(["-c", script]).output());
        assert_eq!(run("true"), Ok(()));
        assert_eq!(run("echo no >&2; echo really >&2; false"), Err("no; really".into()));
        assert!(run("exit 3").unwrap_err().contains('3'));
        assert!(outcome(Command::new("/nonexistent").output()).is_err());
    }
}
