//! Attaching by a privileged helper: everything here needs CAP_BPF and CAP_NET_ADMIN, and nothing
//! else does.

mod careful;
mod cgroup;
mod client;
mod error;
mod interface;
mod load;
mod mounts;
mod pin_dir;
mod server;

use std::io;
use std::path::Path;

pub use careful::{CarefulOptions, CarefulStatus, attach_careful, careful_status, detach_careful};
pub use client::{ClientOptions, ClientStatus, attach_client, client_status, detach_client};
pub use error::AttachError;
pub use interface::{AttachMethod, AttachedInterface};
pub use server::{
    SPENT_MAX, ServerOptions, ServerStatus, attach_server, detach_server, server_status,
};

/// Default directory of the pins.
pub const PIN_DIR: &str = "/sys/fs/bpf/headstart";

/// Modes of pins: private to the owner, or readable by all (in a BPF file system, reading a map is
/// what the mode protects).
const PRIVATE: u32 = 0o600;
const SHARED: u32 = 0o644;

/// Builds the error about a pin: a denied open may mean that another user attached it.
fn at_path(what: &str, path: &Path) -> impl FnOnce(io::Error) -> AttachError + use<> {
    AttachError::system(format!("{what} {}", path.display()))
}
