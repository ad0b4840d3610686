//! Environment of both Fast Open tests: a mount namespace with a BPF file system, both of which end
//! with the process.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{Cookie, CookieKey, CookieRing};
use headstart_testkit::has_net;
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

/// A check and its name.
pub(crate) type Check = (&'static str, fn());

/// Environment variable set in the process that has the mount namespace.
const IN_NAMESPACE: &str = "HEADSTART_TEST_WITHIN";

/// Environment variable with the control group of that process, if there is cgroup2.
const GROUP: &str = "HEADSTART_TEST_GROUP";

/// Mount point of the BPF file system.
static BPF: OnceLock<PathBuf> = OnceLock::new();

/// Runs the checks that the command line names; ignores all unless they are switched on.
pub(crate) fn run(checks: &[Check]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They attach programs to the same interfaces.
    arguments.test_threads = Some(1);
    let is_on = has_net();
    let trials = checks.iter().map(|check| trial(check).with_ignored_flag(!is_on)).collect();
    if !is_on || arguments.list {
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    within(|| libtest_mimic::run(&arguments, trials).exit_code())
}

fn trial(&(name, check): &Check) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

/// Does work in a process with its own BPF file system and control group.
pub(crate) fn within(work: impl FnOnce() -> ExitCode) -> ExitCode {
    if std::env::var_os(IN_NAMESPACE).is_none() {
        return rerun_in_namespace();
    }
    if std::env::var_os(GROUP).is_some() {
        let pid = std::process::id().to_string();
        std::fs::write(group().join("cgroup.procs"), pid).unwrap();
    }
    let place = mounted();
    assert!(BPF.set(place.bpf()).is_ok());
    work()
}

/// Runs the same program once more. Its mounts are private and end with it, and so do programs
/// attached by pins there.
fn rerun_in_namespace() -> ExitCode {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(std::env::args_os().skip(1)).env(IN_NAMESPACE, "1");
    let group = new_group();
    command.envs(group.iter().map(|group| (GROUP, group)));
    let status = command.status().expect("unshare of util-linux runs");
    let groups = group.iter().flat_map(|group| group.ancestors().take(2));
    groups.for_each(|group| drop(std::fs::remove_dir(group)));
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes a control group without other processes inside the current one, so that programs attached
/// to it affect no other process.
fn new_group() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|mount| mount.get(2) == Some(&"cgroup2"))?;
    let name = format!("headstart-fastopen-{}", std::process::id());
    let group = Path::new(mount.get(1)?).join(name).join("inner");
    std::fs::create_dir_all(&group).unwrap();
    Some(group)
}

/// Returns the control group of this process, where cgroup2 is mounted.
pub(crate) fn group() -> PathBuf {
    std::env::var_os(GROUP).expect("cgroup2 is mounted").into()
}

/// A directory that other users may enter, with a BPF file system in `bpf`.
struct Mounted(TempDir);

impl Mounted {
    fn bpf(&self) -> PathBuf {
        self.0.path().join("bpf")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Otherwise the directory could not be removed.
        let _ = Command::new("umount").arg("--lazy").arg(self.bpf()).status();
    }
}

fn mounted() -> Mounted {
    let place = tempfile::Builder::new()
        .prefix("headstart-bpf")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let place = Mounted(place);
    std::fs::create_dir(place.bpf()).unwrap();
    succeeds(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(place.bpf()));
    place
}

/// Returns the directory of the BPF file system.
pub(crate) fn bpf() -> &'static Path {
    BPF.get().expect("checks run inside `within`")
}

/// Runs a command to its end; it must succeed.
pub(crate) fn succeeds(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
}

/// Returns a test key; each number gives another.
pub(crate) const fn key(number: u8) -> CookieKey {
    CookieKey::new([number; 16], [number ^ 0x55; 16])
}

/// Returns a ring with only a current key.
pub(crate) const fn ring(current: CookieKey) -> CookieRing {
    CookieRing { previous: None, current, next: None }
}

/// Mints a cookie with a random nonce.
pub(crate) fn mint(key: &CookieKey, expiry: u64, client: std::net::IpAddr) -> Cookie {
    key.mint(rand::random(), UnixSeconds(expiry), client)
}

/// Computes the checksum of IP and TCP (RFC 1071).
pub(crate) fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| [pair[0], *pair.get(1).unwrap_or(&0)]);
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Returns the current unix time in seconds.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}
