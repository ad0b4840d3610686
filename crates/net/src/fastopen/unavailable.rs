use std::path::PathBuf;
use std::{error, fmt, fs, io};

/// Bits of net.ipv4.tcp_fastopen (ip-sysctl.rst of the kernel).
pub(super) const CLIENT_BIT: u32 = 1;
pub(super) const SERVER_BIT: u32 = 2;

/// Reason why Fast Open with private cookies is unavailable here and now. Ordinary connections
/// still work.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unavailable {
    /// No program that writes cookies is attached, or none to this process's cgroup.
    NotAttached,
    /// `net.ipv4.tcp_fastopen` lacks this bit: 1 for clients, 2 for servers.
    TurnedOff(u32),
    /// `net.ipv4.tcp_syncookies` is 2: the kernel answers every SYN with a SYN cookie, which the
    /// hidden listener's connections do not survive.
    SynCookies,
    /// The directory has no pins: the server's program is not attached.
    NoMaps(PathBuf),
    /// This user may not open a pin.
    Denied(PathBuf),
    /// Another user could replace the pins in this directory.
    Foreign(PathBuf),
    /// The attached program belongs to another version of headstart.
    Layout,
    /// The system refused something else.
    System {
        /// The operation.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl Unavailable {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// Returns a short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotAttached => "not_attached",
            Self::TurnedOff(_) => "sysctl",
            Self::SynCookies => "syncookies",
            Self::NoMaps(_) => "no_maps",
            Self::Denied(_) => "denied",
            Self::Foreign(_) => "foreign",
            Self::Layout => "other_version",
            Self::System { .. } => "system",
        }
    }

    /// Returns advice on how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotAttached => {
                "as root: headstart fastopen attach client, for this process's cgroup or one \
                 above it"
                    .into()
            }
            Self::TurnedOff(bit) => {
                let value = tcp_fastopen().map_or(*bit, |value| value | bit);
                format!("as root: sysctl -w net.ipv4.tcp_fastopen={value}")
            }
            Self::SynCookies => "as root: sysctl -w net.ipv4.tcp_syncookies=1".into(),
            Self::NoMaps(_) => {
                "as root: headstart fastopen attach server --interface IF --port PORT".into()
            }
            Self::Denied(_) => {
                "attach with `--owner UID` for the user of the edge, and let other users pass \
                 through the directories above (chmod 711 /sys/fs/bpf); before Linux 5.19 \
                 kernel.unprivileged_bpf_disabled must also be 0"
                    .into()
            }
            Self::Foreign(_) => {
                "it must be a directory, not a link, that only root or this user owns and may \
                 write to: remove it, or name another one"
                    .into()
            }
            Self::Layout => "as root, with the installed version: headstart fastopen detach, \
                 then attach again"
                .into(),
            Self::System { .. } => "`headstart doctor` shows what this machine supports".into(),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAttached => f.write_str("no program that writes cookies is attached"),
            Self::TurnedOff(bit) => {
                let side = if *bit == CLIENT_BIT { "clients" } else { "servers" };
                write!(f, "net.ipv4.tcp_fastopen is off for {side}")
            }
            Self::SynCookies => f.write_str("net.ipv4.tcp_syncookies is 2"),
            Self::NoMaps(path) => write!(f, "no maps are pinned at {}", path.display()),
            Self::Denied(path) => write!(f, "this user may not open {}", path.display()),
            Self::Foreign(path) => {
                write!(f, "other users could replace the pins in {}", path.display())
            }
            Self::Layout => f.write_str("the attached program belongs to another version"),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl error::Error for Unavailable {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Checks that this network namespace allows Fast Open for clients, or for servers.
pub(super) fn check_sysctl(bit: u32) -> Result<(), Unavailable> {
    match tcp_fastopen() {
        Some(value) if value & bit == 0 => Err(Unavailable::TurnedOff(bit)),
        // If the setting is unreadable, the attempt will show.
        _ => Ok(()),
    }
}

/// Checks that connections of a hidden listener survive in this network namespace.
pub(super) fn check_syn_cookies() -> Result<(), Unavailable> {
    match sysctl("tcp_syncookies") {
        Some(2) => Err(Unavailable::SynCookies),
        _ => Ok(()),
    }
}

fn tcp_fastopen() -> Option<u32> {
    sysctl("tcp_fastopen")
}

fn sysctl(name: &str) -> Option<u32> {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?.trim().parse().ok()
}
