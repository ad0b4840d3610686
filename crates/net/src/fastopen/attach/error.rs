use std::path::PathBuf;
use std::{error, fmt, fs, io};

use crate::fastopen::Unavailable;

/// Reason why programs cannot be attached, detached or inspected.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// A setting of this network namespace, or a program already attached, does not allow it.
    Unavailable(Unavailable),
    /// This process lacks the capabilities CAP_BPF and CAP_NET_ADMIN.
    Privilege,
    /// The directory is not in a BPF file system.
    NoBpfFs(PathBuf),
    /// No cgroup2 hierarchy is mounted.
    NoCgroup2,
    /// The directory is not in a cgroup2 hierarchy.
    NotCgroup2(PathBuf),
    /// The kernel refused a program or map.
    Refused {
        /// The oldest kernel that accepts it.
        needs: &'static str,
        /// The kernel's message; for the verifier, the end of its log.
        message: String,
    },
    /// No interface has this name in this network namespace.
    NoInterface(String),
    /// An interface whose packets begin neither with Ethernet nor with IP.
    InterfaceKind {
        /// Name.
        name: String,
        /// Hardware type (ARPHRD_ in linux/if_arp.h).
        kind: u16,
    },
    /// The program is attached for another port.
    OtherPort(u16),
    /// The programs are attached to another cgroup.
    OtherCgroup,
    /// The kernel has no BBR, by which the program of Careful Resume sets the pace.
    NoBbr,
    /// The command `tc`, which kernels before 6.6 need, failed.
    Tc(String),
    /// The system refused something else.
    System {
        /// The operation.
        what: String,
        /// The error.
        source: io::Error,
    },
}

impl AttachError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.raw_os_error() {
            Some(libc::EPERM) => Self::Privilege,
            _ => Self::System { what, source },
        }
    }

    /// Returns advice on how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unavailable(why) => why.hint(),
            Self::Privilege => {
                "run it as root, or in a systemd unit with AmbientCapabilities=CAP_BPF \
                 CAP_NET_ADMIN; in a container neither may be enough. Before Linux 5.11 it also \
                 needs LimitMEMLOCK=infinity (ulimit -l unlimited)"
                    .into()
            }
            Self::NoBpfFs(_) => {
                "as root: mount -t bpf bpf /sys/fs/bpf; or name a directory in a BPF \
                 file system with --dir"
                    .into()
            }
            Self::NoCgroup2 => {
                "as root: mount -t cgroup2 none /sys/fs/cgroup/unified (make the directory \
                 first); systemd mounts one at /sys/fs/cgroup"
                    .into()
            }
            Self::NotCgroup2(_) => {
                "name a directory below the cgroup2 mount, without --cgroup it is the \
                 mount itself; `ip netns exec` hides it, nsenter --net does not"
                    .into()
            }
            Self::Refused { needs, .. } => refusal_hint(needs, &release()),
            Self::NoInterface(_) => "`ip link` lists the interfaces".into(),
            Self::InterfaceKind { .. } => {
                "name the underlying Ethernet interface, or one like tun".into()
            }
            Self::OtherPort(_) | Self::OtherCgroup => {
                "run `headstart fastopen detach` first, or attach in another directory with --dir"
                    .into()
            }
            Self::NoBbr => "as root: modprobe tcp_bbr; connections keep their own algorithm".into(),
            Self::Tc(_) => {
                "this kernel is older than 6.6 and needs tc from the package iproute2".into()
            }
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run it as the user who attached, or as root; the directory must belong to \
                 the attaching user: as root: install -d -o USER /sys/fs/bpf/headstart"
                    .into()
            }
            Self::System { .. } => "`headstart fastopen status` shows how far it got".into(),
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => why.fmt(f),
            Self::Privilege => {
                f.write_str("the capabilities CAP_BPF and CAP_NET_ADMIN are missing")
            }
            Self::NoBpfFs(dir) => write!(f, "{} is not in a BPF file system", dir.display()),
            Self::NoCgroup2 => f.write_str("no cgroup2 hierarchy is mounted"),
            Self::NotCgroup2(dir) => write!(f, "{} is not a cgroup of version 2", dir.display()),
            Self::Refused { message, .. } => write!(f, "the kernel refused the program: {message}"),
            Self::NoInterface(name) => write!(f, "no interface '{name}' in this network namespace"),
            Self::InterfaceKind { name, kind } => {
                write!(
                    f,
                    "packets of '{name}' (hardware type {kind}) are neither Ethernet nor bare IP"
                )
            }
            Self::OtherPort(port) => write!(f, "the program is attached for port {port}"),
            Self::OtherCgroup => f.write_str("the programs are attached to another cgroup"),
            Self::NoBbr => f.write_str("the kernel has no congestion control bbr"),
            Self::Tc(message) => write!(f, "tc: {message}"),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl error::Error for AttachError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unavailable(why) => Some(why),
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Unavailable> for AttachError {
    fn from(why: Unavailable) -> Self {
        Self::Unavailable(why)
    }
}

/// Returns the hint for a refusal. If the kernel is new enough, it lacks something else, most
/// likely memory for the maps.
fn refusal_hint(needs: &str, release: &str) -> String {
    match (version(release), version(needs)) {
        (Some(this), Some(needed)) if this >= needed => {
            format!("{release} should support it: is there enough memory for --spent cookies?")
        }
        _ => format!("{needs} or newer is needed; this is {release}"),
    }
}

/// Parses the first two numbers of a release, with or without `Linux` before them.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("Linux ")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_kernel_is_called_old() {
        for (needs, release, old) in [
            ("Linux 5.8", "Linux 5.7.19-generic", true),
            ("Linux 5.10", "Linux 5.8.0", true),
            ("Linux 5.8", "Linux 5.8", false),
            ("Linux 5.8", "Linux 5.10.0-28-amd64", false),
            ("Linux 5.10", "Linux 6.18.44-fc", false),
            ("Linux 5.10", "Linux ", true),
        ] {
            let hint = refusal_hint(needs, release);
            assert_eq!(hint.starts_with(&format!("{needs} or newer is needed")), old, "{hint}");
            assert!(hint.contains(release), "{hint}");
        }
    }
}
