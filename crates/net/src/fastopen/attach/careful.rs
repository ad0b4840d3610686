//! The program of Careful Resume, attached to a cgroup.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use socket2::{Domain, Protocol, Socket, Type};

use super::cgroup::Cgroup;
use super::error::AttachError;
use super::load::Loaded;
use super::pin_dir::PinDir;
use super::{PIN_DIR, SHARED};
use crate::fastopen::layout::{CAREFUL_SETUP, FIRST, careful_owner, careful_setup};
use crate::fastopen::server::open;
use crate::fastopen::unavailable::Unavailable;
use crate::sys::{self, Access, Hook};

const SIDE: &str = "careful";

/// Pin of the link.
const SET: &str = "setsockopt";

/// Congestion control by which the program sets the pace.
const BBR: &str = "bbr";

/// Options for attaching the program of Careful Resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarefulOptions {
    /// Directory of the pins, in a BPF file system.
    pub dir: PathBuf,
    /// Cgroup whose processes can use the program, with those below it; `None` means the root.
    pub cgroup: Option<PathBuf>,
    /// User whose processes may set windows, beside root; `None` means the caller's.
    pub owner: Option<u32>,
}

impl Default for CarefulOptions {
    fn default() -> Self {
        Self { dir: PIN_DIR.into(), cgroup: None, owner: None }
    }
}

/// Status of the attached program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarefulStatus {
    /// Inode number of the cgroup's directory; 0 once it is removed.
    pub cgroup: u64,
    /// User whose processes may set windows, beside root.
    pub owner: u32,
}

/// Attaches the program of Careful Resume; does nothing if it is attached for the same user.
///
/// # Errors
/// The reason why it failed; nothing is left behind then. Another version's program stays until it
/// is detached.
pub fn attach_careful(options: &CarefulOptions) -> Result<CarefulStatus, AttachError> {
    let wanted = CarefulStatus {
        cgroup: Cgroup::open(options.cgroup.clone())?.id,
        owner: options.owner.unwrap_or_else(|| geteuid().as_raw()),
    };
    let pins = PinDir::make(&options.dir, SIDE)?;
    match status(&pins)? {
        Some(attached) if attached == wanted => return Ok(attached),
        Some(attached) if ![0, wanted.cgroup].contains(&attached.cgroup) => {
            return Err(AttachError::OtherCgroup);
        }
        Some(_) | None => {}
    }
    pins.clear()?;
    match install(&pins, options, wanted.owner) {
        Ok(()) => Ok(wanted),
        Err(error) => {
            // The first error says more than one from the cleanup.
            let _ = pins.dissolve();
            Err(error)
        }
    }
}

/// Detaches the program; returns true if it was attached.
///
/// # Errors
/// Errors of the system.
pub fn detach_careful(dir: &Path) -> Result<bool, AttachError> {
    let Some(pins) = PinDir::find(dir, SIDE)? else { return Ok(false) };
    let was_attached = !pins.names()?.is_empty();
    pins.dissolve()?;
    Ok(was_attached)
}

/// Returns the status of the attached program; `None` if it is not.
///
/// # Errors
/// Errors of the system: reading the status needs the rights of the user who attached.
/// [`Unavailable::Layout`] if another version did.
pub fn careful_status(dir: &Path) -> Result<Option<CarefulStatus>, AttachError> {
    PinDir::find(dir, SIDE)?.map_or(Ok(None), |pins| status(&pins))
}

fn install(pins: &PinDir, options: &CarefulOptions, owner: u32) -> Result<(), AttachError> {
    let mut loaded = Loaded::careful()?;
    load_bbr()?;
    let cgroup = Cgroup::open(options.cgroup.clone())?;
    loaded.pin_map(CAREFUL_SETUP, pins)?;
    let map = open(pins.path(CAREFUL_SETUP), Access::ReadWrite)?;
    map.set(&FIRST, &careful_setup(owner)).map_err(AttachError::system("writing the set-up"))?;
    pins.give(CAREFUL_SETUP, None, SHARED)?;
    let set = loaded.sock_opt("careful_setsockopt")?;
    cgroup.link(&set, Hook::SetSockOpt, SET, pins)
}

/// Has the kernel load BBR, which needs a privilege that edges lack.
fn load_bbr() -> Result<(), AttachError> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .map_err(AttachError::system("opening a socket"))?;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    let chosen = sys::set_option(socket.as_fd(), level, name, BBR.as_bytes()).is_ok();
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    // A unit that is hardened (ProcSubset=pid) cannot read the list.
    let is_there = available.map_or(chosen, |all| all.split_whitespace().any(|name| name == BBR));
    if is_there { Ok(()) } else { Err(AttachError::NoBbr) }
}

fn status(pins: &PinDir) -> Result<Option<CarefulStatus>, AttachError> {
    if !pins.has(SET) || !pins.has(CAREFUL_SETUP) {
        return Ok(None);
    }
    let Some(cgroup) = Cgroup::of_link(pins, SET)? else { return Ok(None) };
    let setup = open(pins.path(CAREFUL_SETUP), Access::Read)?;
    let setup = setup.get(&FIRST).map_err(Unavailable::system("reading the set-up"))?;
    let owner = setup.as_deref().and_then(careful_owner).ok_or(Unavailable::Layout)?;
    Ok(Some(CarefulStatus { cgroup, owner }))
}
