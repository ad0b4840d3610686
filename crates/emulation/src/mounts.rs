use std::env;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::UnshareFlags;

use crate::sys;

/// The names that programs know without asking anybody (hosts(5)).
const HOSTS: &str = "/etc/hosts";

/// Mounts a BPF file system at `place` that only this process and those it starts see.
///
/// What they pin there is gone when the last of them ends, however it ends, and with it what holds
/// a program at an interface or a control group. Call it while the process has one thread: others
/// would keep the mounts of all. Mounts made by others are not seen from then on.
///
/// # Errors
/// Not root, or no such folder or file system.
pub fn own_bpf_mount(place: impl AsRef<Path>) -> io::Result<()> {
    own_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("bpf", place.as_ref(), "bpf", flags, None::<&CStr>)?)
}

/// Replaces /etc/hosts by `text` for this process and those it starts, and for nobody else.
///
/// Call it while the process has one thread, as [`own_bpf_mount`], with whose mounts it may be
/// combined.
///
/// # Errors
/// Neither root nor in a user namespace of its own, no such file, or no place for a file.
pub fn own_hosts_file(text: &str) -> io::Result<()> {
    own_mounts()?;
    let path = env::temp_dir().join(format!("headstart-hosts-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    let mounted =
        file.write_all(text.as_bytes()).and_then(|()| Ok(mount_bind(path.as_path(), HOSTS)?));
    // The mount holds the file; its name is no longer needed.
    fs::remove_file(&path)?;
    mounted
}

fn own_mounts() -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    // Otherwise new mounts would spread to where these came from (mount_namespaces(7)).
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}
