//! TLS by OpenSSL without IO, and the keys that all servers of a site share.
//!
//! * [`ServerContext`] and [`ClientContext`] hold what connections have in common and make them.
//! * [`Conn`] is one connection: ciphertext in and out, plain bytes in and out.
//! * [`LinkContext`] makes those between the edges of a fleet, which know each other by a key.
//! * [`keyring`] holds the secrets that tickets and cookies are made with.
//! * [`limits`] names every bound; [`wire`] reads what OpenSSL does not read for us.
//!
//! Early data is taken with stateless tickets, once each ([`ReplayFilter`]). Tickets of TLS 1.3
//! start with a Fast Open cookie where a server hands them out, and clients that ask get cookies in
//! an extension too. Sessions are bytes that can be kept and offered elsewhere ([`Session`]).
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
mod link;
mod pipe;
mod server;
mod settings;
mod ticket_request;

pub use client::{ClientConfig, ClientContext, NewSession, Session, SessionError, Trust};
pub use conn::{Conn, Progress, Read};
pub use error::{CertificateFault, ConfigError, Fault, TlsError};
pub use facts::{EarlyData, Facts, Version};
pub use link::LinkContext;
pub use server::{
    ClientAuth, CookiePolicy, FirstSeen, MemoryFilter, NoEarlyData, ReplayFilter, ServerConfig,
    ServerContext, SharedRing, TicketBinding,
};
pub use settings::{CertifiedKey, KeyLog};
pub use ticket_request::TicketRequest;
