//! The ground floor: what commands of both programs stand on, and what knows none of them.

pub mod clock;
pub mod edge_address;
pub mod failure;
pub mod files;
pub(crate) mod forward;
pub(crate) mod log_throttle;
pub mod logging;
pub mod names;
pub(crate) mod opening_event;
pub mod output;
pub mod own_address;
pub mod peer_user;
pub mod printable;
pub mod runtime;
pub mod settings;
pub mod shell;
pub mod trust;
pub(crate) mod unix_socket;
pub mod value;
