use std::ffi::CString;
use std::fmt;
use std::fs;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use crate::sys;

/// Rights of this process to build a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It may create network namespaces as it is: real root, or root of a user namespace it already
    /// entered.
    Root,
    /// It is no root, but [`enter_user_namespace`] will work, called while the process has one
    /// thread.
    UserNamespace,
    /// Neither.
    None(Refusal),
}

/// Reason why the system grants no user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process has more than one thread.
    Threads,
    /// The system's setting of this name forbids it.
    Setting(&'static str),
    /// The system refuses for a reason it does not tell, such as a container's system call filter.
    System(Errno),
}

impl Refusal {
    /// Returns advice for the user.
    pub fn hint(&self) -> String {
        match self {
            Refusal::Threads => "enter the user namespace before starting threads".to_owned(),
            Refusal::Setting(name) => {
                let value = SETTINGS
                    .iter()
                    .find(|setting| setting.name == *name)
                    .map_or("1", |setting| setting.allows);
                format!("run as root, or let the administrator allow it: sysctl -w {name}={value}")
            }
            Refusal::System(_) => {
                "run as root; in a container, allow user namespaces or add SYS_ADMIN".to_owned()
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Threads => {
                f.write_str("a process with several threads cannot enter a user namespace")
            }
            Refusal::Setting(name) => {
                write!(f, "unprivileged user namespaces are forbidden by {name}")
            }
            Refusal::System(error) => write!(f, "the system refuses user namespaces: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Finds out what this process may do; tries a user namespace in a child process if it has to.
pub fn privilege() -> Privilege {
    if has_capabilities() {
        return Privilege::Root;
    }
    let Ok(identity) = Identity::own() else {
        return Privilege::None(Refusal::System(Errno::INVAL));
    };
    match sys::try_in_child(|| identity.enter()) {
        Ok(None) => Privilege::UserNamespace,
        Ok(Some(error)) => Privilege::None(refusal(error)),
        Err(_) => Privilege::None(Refusal::System(Errno::AGAIN)),
    }
}

/// Makes this process root of new user, network and mount namespaces, in which it may build labs.
///
/// Call it first thing in `main`: the kernel refuses it to a process with several threads. Files
/// keep their owner; being root holds for the new namespaces only.
pub fn enter_user_namespace() -> Result<(), Refusal> {
    if threads() > 1 {
        return Err(Refusal::Threads);
    }
    Identity::own().and_then(|identity| identity.enter()).map_err(refusal)
}

fn has_capabilities() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// The one user and group that a new user namespace knows, made ready for a child that must not
/// allocate.
struct Identity {
    user_map: CString,
    group_map: CString,
}

impl Identity {
    fn own() -> Result<Identity, Errno> {
        let [user_map, group_map] = [geteuid().as_raw(), getegid().as_raw()]
            .map(|id| CString::new(format!("0 {id} 1")).map_err(|_| Errno::INVAL));
        Ok(Identity { user_map: user_map?, group_map: group_map? })
    }

    /// Makes system calls only, see [`sys::try_in_child`].
    fn enter(&self) -> Result<(), Errno> {
        sys::unshare(UnshareFlags::from_bits_retain(NEWUSER))?;
        // Without this an unprivileged process may not set a group map (user_namespaces(7)).
        write_file(c"/proc/self/setgroups", c"deny".to_bytes())?;
        write_file(c"/proc/self/uid_map", self.user_map.to_bytes())?;
        write_file(c"/proc/self/gid_map", self.group_map.to_bytes())?;
        // Only now: AppArmor lets the namespace above be made, but gives no capabilities in it.
        sys::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS)
    }
}

/// `CLONE_NEWUSER` of linux/sched.h.
const NEWUSER: u32 = 0x1000_0000;

fn write_file(path: &std::ffi::CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}

/// A system setting that can forbid user namespaces.
struct Setting {
    name: &'static str,
    path: &'static str,
    forbids: &'static str,
    allows: &'static str,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "user.max_user_namespaces",
        path: "/proc/sys/user/max_user_namespaces",
        forbids: "0",
        allows: "15000",
    },
    // Debian's and Arch's.
    Setting {
        name: "kernel.unprivileged_userns_clone",
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        forbids: "0",
        allows: "1",
    },
    // Ubuntu's, since 23.10.
    Setting {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        forbids: "1",
        allows: "0",
    },
];

fn refusal(error: Errno) -> Refusal {
    SETTINGS
        .iter()
        .find(|setting: &&Setting| {
            fs::read_to_string(setting.path).is_ok_and(|v| v.trim() == setting.forbids)
        })
        .map_or(Refusal::System(error), |setting| Refusal::Setting(setting.name))
}
