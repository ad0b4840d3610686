//! TLS with OpenSSL and without IO, and the keys that all servers of a site share.
//!
//! * [`ServerContext`] and [`ClientContext`] hold the shared state of connections and create them.
//! * [`Conn`] is one connection: ciphertext in and out, plain bytes in and out.
//! * [`LinkContext`] creates connections between the edges of a fleet, which authenticate by a key.
//! * [`keyring`] holds the secrets behind tickets and cookies.
//! * [`limits`] names every limit; [`wire`] parses what OpenSSL does not parse for us.
//!
//! Servers accept early data with stateless tickets, once each ([`ReplayFilter`]). If a server
//! hands out Fast Open cookies, its TLS 1.3 tickets start with one, and clients that ask get
//! cookies in an extension too. Sessions are bytes that can be stored elsewhere and offered later
//! ([`Session`]).
//!
//! OpenSSL reads the wall clock itself, for certificates and tickets.

pub mod keyring;
pub mod limits;
pub mod wire;

mod client;
mod conn;
mod error;
mod facts;
mod ffi;
mod flags;
mod link;
mod pipe;
mod server;
mod session;
mod settings;
mod ticket_request;

pub use client::{ClientConfig, ClientContext, Trust};
pub use conn::{Conn, Progress, Read};
pub use error::{CertificateFault, ConfigError, Fault, TlsError};
pub use facts::{EarlyData, Facts, Version};
pub use link::LinkContext;
pub use server::{
    ClientAuth, CookiePolicy, FirstSeen, MemoryFilter, NoEarlyData, ReplayFilter, ServerConfig,
    ServerContext, SharedRing, TicketBinding,
};
pub use session::{ADVERT_EXTENSION, NewSession, Session, SessionError};
pub use settings::{CertifiedKey, KeyLog};
pub use ticket_request::TicketRequest;
