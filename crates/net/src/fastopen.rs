//! TCP Fast Open with private cookies (Sy et al. 2019), on an unpatched Linux.
//!
//! A server mints [cookies](headstart_proto::cookie) and hands them out inside TLS; a client spends
//! each in one SYN, together with its first bytes, which the server reads one round trip sooner.
//!
//! BPF programs put the cookie into the SYN and check it there. A privileged helper attaches them
//! (`attach_client`, `attach_server`, `headstart fastopen attach`). Everything else here runs
//! without privilege, and reports the reason where it cannot:
//!
//! * the client: [`probe`], then [`connect`] for each cookie, and [`was_accepted`] for the
//!   result;
//! * the server: a [`HiddenListener`] beside the public one, given to the
//!   [`Acceptor`](crate::AcceptorConfig::hidden), and [`ServerMaps`] for both listeners, keys and
//!   the clock.
//!
//! Any failure falls back to an ordinary handshake, and the data of the SYN arrive once.

#[cfg(feature = "attach")]
mod attach;
mod client;
mod hidden;
mod layout;
mod owner;
mod server;
mod stats;
mod unavailable;

pub use crate::sys::{Program, TestRun};
#[cfg(feature = "attach")]
pub use attach::{
    AttachError, AttachMethod, AttachedInterface, ClientOptions, ClientStatus, PIN_DIR, SPENT_MAX,
    ServerOptions, ServerStatus, attach_client, attach_server, client_status, detach_client,
    detach_server, server_status,
};
#[cfg(feature = "attach")]
#[doc(hidden)] // these are in `careful`
pub use attach::{CarefulOptions, CarefulStatus, attach_careful, careful_status, detach_careful};
pub use client::{
    CookieState, SYN_DATA_MAX, connect, cookie_state, probe, set_cookie, was_accepted,
};
pub use hidden::{HiddenListener, PENDING};
pub use server::{REFRESH, ServerMaps, unix_minus_boot};
pub use stats::Stats;
pub use unavailable::Unavailable;
