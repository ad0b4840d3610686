//! The server's program, attached at the ingress of interfaces.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headstart_proto::UnixSeconds;

use super::error::AttachError;
use super::interface::{self, AttachedInterface, BARE, ETHERNET, Interface};
use super::load::Loaded;
use super::pin_dir::PinDir;
use super::{PIN_DIR, PRIVATE, SHARED};
use crate::fastopen::Stats;
use crate::fastopen::layout::{
    CONFIG, FIRST, LAYOUT, LISTENERS, SERVER_COUNTS, SERVER_STATS, SETUP, SPENT, Setup,
    server_stats,
};
use crate::fastopen::server::{
    SIDE, count, nanos, open, read_config, read_counts, read_setup, since_boot, unix_at,
};
use crate::fastopen::unavailable::{SERVER_BIT, Unavailable, check_syn_cookies, check_sysctl};
use crate::sys::{Access, Map};

/// Default number of taken cookies remembered in each generation: enough for 36 Fast Open
/// connections per second with cookies of the longest life.
const SPENT_DEFAULT: u32 = 1 << 20;

/// Largest useful number: 582 such connections per second, and 256 MB for each generation before it
/// holds a single cookie.
pub const SPENT_MAX: u32 = 1 << 24;

/// Options for attaching the server's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Directory of the pins, in a BPF file system.
    pub dir: PathBuf,
    /// Interfaces by name; others can be attached later.
    pub interfaces: Vec<String>,
    /// Port of the public listener.
    pub port: u16,
    /// User of the edge, if it differs from the user who attaches.
    pub owner: Option<u32>,
    /// Used cookies remembered in each generation.
    pub spent: u32,
    /// Age of the memory of used cookies: cookies minted before it began are refused. Zero except
    /// in tests, whose cookies come from the past.
    pub age: Duration,
}

impl ServerOptions {
    /// Creates options with defaults for a port of these interfaces.
    #[must_use]
    pub fn new(interfaces: Vec<String>, port: u16) -> Self {
        Self {
            dir: PIN_DIR.into(),
            interfaces,
            port,
            owner: None,
            spent: SPENT_DEFAULT,
            age: Duration::ZERO,
        }
    }
}

/// A loaded server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Protected port.
    pub port: u16,
    /// Creation time of its maps: the program refuses cookies minted before.
    pub created: UnixSeconds,
    /// Interfaces with the program attached.
    pub interfaces: Vec<AttachedInterface>,
    /// Ports of the hidden listeners on 127.0.0.1 and ::1; without any, the program accepts no
    /// cookie.
    pub hidden: [Option<u16>; 2],
    /// Number of valid keys; with 0 the program accepts no cookie.
    pub keys: usize,
    /// Number of used cookies remembered.
    pub spent: usize,
    /// Counters so far.
    pub stats: Stats,
}

/// Attaches the server's program to interfaces; does not touch those that have it already.
///
/// If it is killed at any moment, the next call completes it. An edge with open maps keeps them.
///
/// # Errors
/// The reason why it failed. Interfaces before the failed one stay attached.
pub fn attach_server(options: &ServerOptions) -> Result<ServerStatus, AttachError> {
    check_sysctl(SERVER_BIT)?;
    check_syn_cookies()?;
    let interfaces: Vec<_> =
        options.interfaces.iter().map(|name| Interface::find(name)).collect::<Result<_, _>>()?;
    let pins = PinDir::make(&options.dir, SIDE)?;
    if pins.has(ETHERNET) {
        check_same(&pins, options)?;
    } else {
        // Left by an attach or detach that was killed.
        pins.clear()?;
        install(&pins, options)?;
    }
    // Repeated, because the owner may have changed.
    give_away(&pins, options.owner)?;
    interfaces.iter().try_for_each(|interface| interface.attach(&pins))?;
    status(&pins)
}

/// Detaches from these interfaces; if none is named, from all, and removes everything. Returns true
/// if anything was attached.
///
/// # Errors
/// Errors of the system.
pub fn detach_server(dir: &Path, interfaces: &[String]) -> Result<bool, AttachError> {
    let Some(pins) = PinDir::find(dir, SIDE)? else { return Ok(false) };
    let mut was_attached = false;
    if !interfaces.is_empty() {
        for name in interfaces {
            was_attached |= interface::detach(&pins, name)?;
        }
        return Ok(was_attached);
    }
    for interface in interface::attached(&pins)? {
        was_attached |= interface::detach(&pins, &interface.name)?;
    }
    // Before the maps, so that the next attach sees an incomplete set.
    was_attached |= pins.remove(ETHERNET)?;
    pins.dissolve()?;
    Ok(was_attached)
}

/// Returns the status of the attached program; `None` if there is none.
///
/// # Errors
/// Errors of the system: reading the status needs the rights of the user who attached, or root.
pub fn server_status(dir: &Path) -> Result<Option<ServerStatus>, AttachError> {
    match PinDir::find(dir, SIDE)? {
        Some(pins) if pins.has(ETHERNET) => status(&pins).map(Some),
        _ => Ok(None),
    }
}

fn install(pins: &PinDir, options: &ServerOptions) -> Result<(), AttachError> {
    let mut loaded = Loaded::server(options.spent)?;
    for map in [SETUP, CONFIG, LISTENERS, SERVER_STATS].into_iter().chain(SPENT) {
        loaded.pin_map(map, pins)?;
    }
    let created = since_boot().wrapping_sub(nanos(options.age));
    let setup = Setup { layout: LAYOUT, port: options.port, created };
    open(pins.path(SETUP), Access::ReadWrite)?
        .set(&FIRST, &setup.to_bytes())
        .map_err(AttachError::system("writing a map"))?;
    let (bare, ethernet) = (loaded.classifier(BARE)?, loaded.classifier(ETHERNET)?);
    pins.pin(bare.as_fd(), BARE)?;
    pins.pin(ethernet.as_fd(), ETHERNET)
}

fn check_same(pins: &PinDir, options: &ServerOptions) -> Result<(), AttachError> {
    let setup = read_setup(&open(pins.path(SETUP), Access::Read)?)?;
    match setup {
        Setup { layout, .. } if layout != LAYOUT => Err(Unavailable::Layout.into()),
        Setup { port, .. } if port != options.port => Err(AttachError::OtherPort(port)),
        _ => Ok(()),
    }
}

/// Gives the maps that the edge writes to its user, and makes those that it only reads
/// world-readable.
fn give_away(pins: &PinDir, owner: Option<u32>) -> Result<(), AttachError> {
    for map in [CONFIG, LISTENERS].into_iter().chain(SPENT) {
        pins.give(map, owner, PRIVATE)?;
    }
    [SETUP, SERVER_STATS].into_iter().try_for_each(|map| pins.give(map, None, SHARED))
}

fn open_to_read(pins: &PinDir, map: &str) -> Result<Map, Unavailable> {
    open(pins.path(map), Access::Read)
}

fn status(pins: &PinDir) -> Result<ServerStatus, AttachError> {
    let setup = read_setup(&open_to_read(pins, SETUP)?)?;
    let (config, keys) = read_config(&open_to_read(pins, CONFIG)?)?;
    let counters = Unavailable::system("reading counters");
    let stats = read_counts(&open_to_read(pins, SERVER_STATS)?, SERVER_COUNTS);
    let stats = stats.map_err(counters)?;
    let mut spent = 0;
    for name in SPENT {
        let entries = count(&open_to_read(pins, name)?);
        spent += entries.map_err(Unavailable::system("reading a pinned map"))?;
    }
    Ok(ServerStatus {
        port: setup.port,
        created: unix_at(setup.created),
        interfaces: interface::attached(pins)?,
        hidden: [config.hidden4, config.hidden6].map(|port| Some(port).filter(|port| *port != 0)),
        keys,
        spent,
        stats: server_stats(&stats),
    })
}
