use std::ffi::CStr;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

use crate::sys;

/// Mounts a BPF file system at `place` that only this process and those it starts see.
///
/// What they pin there is gone when the last of them ends, however it ends, and with it what holds a program at an
/// interface or a control group. Call it while the process has one thread: others would keep the mounts of all.
/// Mounts made by others are not seen from then on.
///
/// # Errors
/// Not root, or no such folder or file system.
pub fn own_bpf_mount(place: impl AsRef<Path>) -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    // Otherwise the new mount would spread to where this one came from (mount_namespaces(7)).
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("bpf", place.as_ref(), "bpf", flags, None::<&CStr>)?)
}
