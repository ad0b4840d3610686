//! The server's program on one interface: a TCX link, or a clsact filter before Linux 6.6.

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Output};

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Socket, Type};

use super::at_path;
use super::error::AttachError;
use super::pin_dir::PinDir;
use crate::sys::{self, Program, Target};

/// Pins of the program in its two forms, for packets with and without an Ethernet header. The first
/// is pinned last, so its presence shows that all are.
pub(super) const ETHERNET: &str = "steer_ethernet";
pub(super) const BARE: &str = "steer_bare";

/// Prefixes of pin names, followed by the name of the interface.
const LINK: &str = "link-";
const FILTER: &str = "filter-";

/// Hardware types of linux/if_arp.h whose packets begin with an Ethernet header: Ethernet,
/// loopback.
const WITH_HEADER: [u16; 2] = [1, 772];
/// Hardware types whose packets begin with the IP header: none (tun, WireGuard), raw IP.
const WITHOUT_HEADER: [u16; 2] = [65534, 519];

/// Preference and handle of our filter: late, because filters before it may redirect packets.
const PREFERENCE: &str = "49000";
const HANDLE: &str = "1";

/// Paths of `tc` tried if it is not in `PATH`.
const TC_COMMANDS: [&str; 3] = ["tc", "/usr/sbin/tc", "/sbin/tc"];

/// Mechanism that attaches a program to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMethod {
    /// A TCX link (Linux 6.6): other programs cannot remove it by accident.
    Tcx,
    /// A clsact filter.
    Filter,
}

impl AttachMethod {
    /// Returns a short stable name, for scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Filter => "clsact",
        }
    }
}

/// An interface to which the server's program was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedInterface {
    /// Name.
    pub name: String,
    /// Mechanism.
    pub method: AttachMethod,
    /// True if the interface is still the same; false if the link ended with it.
    pub is_live: bool,
}

/// An interface of this network namespace.
pub(super) struct Interface {
    name: String,
    index: u32,
    program: &'static str,
}

impl Interface {
    pub(super) fn find(name: &str) -> Result<Self, AttachError> {
        let socket = any_socket()?;
        let index = index_of(&socket, name)?;
        let kind = sys::hardware_type(socket.as_fd(), name)
            .map_err(AttachError::system(format!("inspecting the interface {name}")))?;
        let program = match kind {
            kind if WITH_HEADER.contains(&kind) => ETHERNET,
            kind if WITHOUT_HEADER.contains(&kind) => BARE,
            kind => return Err(AttachError::InterfaceKind { name: name.to_owned(), kind }),
        };
        Ok(Self { name: name.to_owned(), index, program })
    }

    /// Attaches the pinned program; does nothing if it is attached.
    pub(super) fn attach(&self, pins: &PinDir) -> Result<(), AttachError> {
        let pin = pin_name(LINK, &self.name);
        if pins.has(&pin) {
            let path = pins.path(&pin);
            let target = sys::link_target(&path).map_err(at_path("opening", &path))?;
            if target == Target::Interface(self.index) {
                return Ok(());
            }
            // Left by a removed interface of this name.
            pins.remove(&pin)?;
        }
        let path = pins.path(self.program);
        let program = Program::open(&path).map_err(at_path("opening", &path))?;
        match sys::link_to_interface(program.as_fd(), self.index) {
            Ok(link) => pins.pin(link.as_fd(), &pin),
            // The kernel does not know the hook.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.filter(&program, pins),
            Err(error) => {
                let what = format!("attaching to the interface {}", self.name);
                Err(AttachError::system(what)(error))
            }
        }
    }

    /// Attaches a filter. The pin only marks the filter, so it is made first.
    fn filter(&self, program: &Program, pins: &PinDir) -> Result<(), AttachError> {
        let pin = pin_name(FILTER, &self.name);
        if !pins.has(&pin) {
            pins.pin(program.as_fd(), &pin)?;
        }
        // Fails if the interface has one already.
        let _ = tc(&["qdisc", "add", "dev", &self.name, "clsact"]);
        let path = pins.path(&pin);
        let path = path.to_string_lossy();
        let filter = ["filter", "replace", "dev", &self.name, "ingress", "protocol", "all"];
        let number = ["pref", PREFERENCE, "handle", HANDLE];
        let what = ["bpf", "direct-action", "object-pinned", &path];
        done(tc(&[&filter[..], &number, &what].concat())?)
    }
}

/// Returns all interfaces that were attached to.
pub(super) fn attached(pins: &PinDir) -> Result<Vec<AttachedInterface>, AttachError> {
    let socket = any_socket()?;
    let mut all = Vec::new();
    for pin in pins.names()? {
        if let Some(name) = interface_name(LINK, &pin) {
            let path = pins.path(&pin);
            let target = sys::link_target(&path).map_err(at_path("opening", &path))?;
            let index = index_of(&socket, &name).ok();
            let is_live = matches!(target, Target::Interface(at) if index == Some(at));
            all.push(AttachedInterface { name, method: AttachMethod::Tcx, is_live });
        } else if let Some(name) = interface_name(FILTER, &pin) {
            let is_live = index_of(&socket, &name).is_ok();
            all.push(AttachedInterface { name, method: AttachMethod::Filter, is_live });
        }
    }
    Ok(all)
}

/// Detaches from an interface; returns true if it was attached.
pub(super) fn detach(pins: &PinDir, name: &str) -> Result<bool, AttachError> {
    let link = pins.remove(&pin_name(LINK, name))?;
    let pin = pin_name(FILTER, name);
    if !pins.has(&pin) {
        return Ok(link);
    }
    let exists = any_socket().is_ok_and(|socket| index_of(&socket, name).is_ok());
    if exists {
        let filter = ["filter", "del", "dev", name, "ingress", "pref", PREFERENCE];
        // If the filter was removed otherwise, the mark must still go.
        let _ = tc(&filter)?;
    }
    pins.remove(&pin)
}

/// Returns the pin's name: pins cannot have dots in their names, interfaces can.
fn pin_name(prefix: &str, interface: &str) -> String {
    format!("{prefix}{}", interface.replace('%', "%25").replace('.', "%2e"))
}

fn interface_name(prefix: &str, pin: &str) -> Option<String> {
    Some(pin.strip_prefix(prefix)?.replace("%2e", ".").replace("%25", "%"))
}

fn any_socket() -> Result<Socket, AttachError> {
    Socket::new(Domain::UNIX, Type::DGRAM, None).map_err(AttachError::system("opening a socket"))
}

fn index_of(socket: &Socket, name: &str) -> Result<u32, AttachError> {
    name_to_index(socket, name).map_err(|_| AttachError::NoInterface(name.to_owned()))
}

fn tc(arguments: &[&str]) -> Result<Output, AttachError> {
    for program in TC_COMMANDS {
        match Command::new(program).args(arguments).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|error| AttachError::Tc(error.to_string())),
        }
    }
    Err(AttachError::Tc("the command was not found".into()))
}

fn done(output: Output) -> Result<(), AttachError> {
    if output.status.success() {
        return Ok(());
    }
    Err(AttachError::Tc(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_come_back_from_pins() {
        for name in ["eth0", "eth0.100", "a%2eb", "%", "wg-vpn"] {
            let pin = pin_name(LINK, name);
            assert!(!pin.contains('.'), "{pin}");
            assert_eq!(interface_name(LINK, &pin).as_deref(), Some(name));
        }
        assert_eq!(interface_name(LINK, "filter-eth0"), None);
    }

    #[test]
    fn loopback_is_found_and_has_a_header() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!((lo.program, lo.index > 0), (ETHERNET, true));
        let error = Interface::find("no-such-one").map(drop).unwrap_err();
        assert!(matches!(error, AttachError::NoInterface(name) if name == "no-such-one"));
        let long = "x".repeat(100);
        assert!(matches!(Interface::find(&long), Err(AttachError::NoInterface(_))));
    }
}
