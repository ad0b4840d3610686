//! The client's programs, attached to a cgroup.

use std::path::{Path, PathBuf};

use super::cgroup::Cgroup;
use super::error::AttachError;
use super::load::Loaded;
use super::pin_dir::PinDir;
use super::{PIN_DIR, SHARED};
use crate::fastopen::layout::{CLIENT_COUNTS, CLIENT_STATS};
use crate::fastopen::server::{open, read_counts};
use crate::fastopen::unavailable::{CLIENT_BIT, Unavailable, check_sysctl};
use crate::sys::{Access, Hook};

const SIDE: &str = "client";

/// Pins of the links, in the order of creation. If the last exists, all do; otherwise setsockopt
/// returns `ENOPROTOOPT`, and no socket uses the others.
const SOCK_OPS: &str = "sockops";
const GET: &str = "getsockopt";
const SET: &str = "setsockopt";
const LINKS: [&str; 3] = [SOCK_OPS, GET, SET];

/// Options for attaching the client's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Directory of the pins, in a BPF file system.
    pub dir: PathBuf,
    /// Cgroup whose processes can use the programs, with those below it; `None` means the root.
    pub cgroup: Option<PathBuf>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { dir: PIN_DIR.into(), cgroup: None }
    }
}

/// Status of the attached client programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Inode number of the cgroup's directory; 0 once it is removed.
    pub cgroup: u64,
    /// SYNs sent with a cookie since then.
    pub sent: u64,
    /// SYNs without a cookie because other options left no room.
    pub no_room: u64,
    /// SYNs without a cookie because they had no data.
    pub no_data: u64,
}

/// Attaches the client's programs; does nothing if they are attached.
///
/// If killed at any moment, it leaves everything attached or nothing; the next call completes it.
///
/// # Errors
/// The reason why it failed; nothing is left behind then.
pub fn attach_client(options: &ClientOptions) -> Result<ClientStatus, AttachError> {
    check_sysctl(CLIENT_BIT)?;
    let cgroup = Cgroup::open(options.cgroup.clone())?;
    let pins = PinDir::make(&options.dir, SIDE)?;
    match attached_to(&pins)? {
        Some(id) if id == cgroup.id => return status(&pins, id),
        // The cgroup was removed, and its links with it.
        Some(0) | None => {}
        Some(_) => return Err(AttachError::OtherCgroup),
    }
    pins.clear()?;
    match install(&pins, &cgroup) {
        Ok(()) => status(&pins, cgroup.id),
        Err(error) => {
            // The first error says more than one from the cleanup.
            let _ = pins.dissolve();
            Err(error)
        }
    }
}

/// Detaches the client's programs; returns true if anything was attached.
///
/// # Errors
/// Errors of the system.
pub fn detach_client(dir: &Path) -> Result<bool, AttachError> {
    let Some(pins) = PinDir::find(dir, SIDE)? else { return Ok(false) };
    let was_attached = !pins.names()?.is_empty();
    // Without this one, the other programs are unused.
    pins.remove(SET)?;
    pins.dissolve()?;
    Ok(was_attached)
}

/// Returns the status of the attached programs; `None` if none are.
///
/// # Errors
/// Errors of the system: reading the status needs the rights of the user who attached.
pub fn client_status(dir: &Path) -> Result<Option<ClientStatus>, AttachError> {
    let Some(pins) = PinDir::find(dir, SIDE)? else { return Ok(None) };
    attached_to(&pins)?.map(|id| status(&pins, id)).transpose()
}

fn install(pins: &PinDir, cgroup: &Cgroup) -> Result<(), AttachError> {
    let mut loaded = Loaded::client()?;
    loaded.pin_map(CLIENT_STATS, pins)?;
    pins.give(CLIENT_STATS, None, SHARED)?;
    let sock_ops = loaded.sock_ops("fop_sockops")?;
    let get = loaded.sock_opt("fop_getsockopt")?;
    let set = loaded.sock_opt("fop_setsockopt")?;
    cgroup.link(&sock_ops, Hook::SockOps, SOCK_OPS, pins)?;
    cgroup.link(&get, Hook::GetSockOpt, GET, pins)?;
    cgroup.link(&set, Hook::SetSockOpt, SET, pins)
}

/// Returns the cgroup that all three programs are attached to.
fn attached_to(pins: &PinDir) -> Result<Option<u64>, AttachError> {
    if !LINKS.iter().all(|link| pins.has(link)) {
        return Ok(None);
    }
    Cgroup::of_link(pins, SET)
}

fn status(pins: &PinDir, cgroup: u64) -> Result<ClientStatus, AttachError> {
    let stats = open(pins.path(CLIENT_STATS), Access::Read)?;
    let counts =
        read_counts(&stats, CLIENT_COUNTS).map_err(Unavailable::system("reading counters"))?;
    let [sent, no_room, no_data] = counts[..] else { return Err(Unavailable::Layout.into()) };
    Ok(ClientStatus { cgroup, sent, no_room, no_data })
}
