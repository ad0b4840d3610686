//! TurboTLS without IO (draft-joseph-tls-turbotls-00; Aguilar-Melchor et al. 2023).
//!
//! TLS runs over two byte streams, client to server and server to client. While TCP connects, a
//! prefix of each travels in UDP datagrams placed by offset; TCP takes over at exact offsets.
//! This crate decides; it owns no socket and no clock. `docs/draft-headstart-turbotls.md` specifies
//! the bytes.
//!
//! * [`Client`] is one connection at the client: tell it what happened (`handle_*`), then take what
//!   there is to do (`poll_*`) until nothing is left.
//! * [`Server`] holds all unjoined sessions of one edge.
//! * [`cookie`] mints and checks Fast Open cookies, which `docs/fop.md` specifies.
//! * [`hello`] reads the public part of a ClientHello; [`wire`] holds the frames of UDP, [`join`]
//!   what TCP begins with.
//! * [`GraceEstimator`] learns how long to wait for datagrams once TCP is connected.
//! * [`fastopen`] decides whether a SYN waits for data, and what it carries.
//! * [`careful`] decides by RFC 9959 how large a window a connection may begin with.
//!
//! ```
//! use headstart_proto::{Client, ClientConfig, Instant, JoinKey};
//!
//! let mut client = Client::new(JoinKey::new([7; 16]), ClientConfig::default());
//! client.handle_app_data(Instant::ZERO, b"GET / HTTP/1.1\r\n"); // not TLS: nothing goes over UDP
//! assert!(client.poll_datagram().is_none());
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod careful;
mod client;
pub mod cookie;
mod error;
mod event;
pub mod fastopen;
mod grace;
pub mod hello;
mod id;
pub mod join;
pub mod limits;
#[cfg(test)]
mod model;
mod opening;
mod reassembly;
mod record;
mod route;
mod server;
mod time;
pub mod wire;

pub use client::{Client, ClientConfig};
pub use error::{Discard, HelloError, Misfit, WireError};
pub use event::{ClientEvent, PlainReason, ResetReason, ServerEvent};
pub use grace::{GraceEstimator, Wait};
pub use id::{JoinKey, RouteTag, SessionId};
pub use opening::{Carrier, Opening, Session, UnknownOpening};
pub use route::{EdgeNumber, RouteKey, RouteRing, Routes};
pub use server::{
    Attachment, Handover, JoinOutcome, OriginEnd, Server, ServerConfig, Transmit, host,
};
pub use time::{Instant, UnixSeconds};
