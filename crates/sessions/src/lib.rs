//! TLS sessions, Fast Open cookies and spare connections that a client keeps for its next
//! connection, by host name and context.
//!
//! Pure: no IO, no TLS library, and the time is an argument. In memory only: nothing outlives the
//! process.
//!
//! * [`Context`] is the owner of a connection; two contexts share nothing.
//! * [`CookieJar`] keeps cookies and gives each out once, on the network where it was received.
//! * [`SessionStore`] keeps TLS sessions and gives each ticket out once; docs/sessions.md defines
//!   to which connections.
//! * [`OfferMemory`] keeps what servers offer inside TLS, for connections of the same context.
//! * [`SparePool`] learns for which hosts to hold idle TCP connections.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use headstart_proto::cookie::Cookie;
//! use headstart_sessions::{Context, CookieJar, Network, Visit};
//!
//! let network = Network { local: [192, 0, 2, 7].into(), interface: 2, gateway: None };
//! let context = Context::user(1000);
//! let visit = Visit { host: "www.example.com", context: &context, network };
//! let (mut jar, now) = (CookieJar::new(), Instant::now());
//! let cookie = Cookie::new([1; 16]);
//! assert!(jar.put(&visit, cookie, Duration::from_secs(3600), now).is_ok());
//! assert_eq!(jar.take(&visit, now), Some(cookie));
//! assert_eq!(jar.take(&visit, now), None);
//! ```
#![forbid(unsafe_code)]

mod context;
mod host;
mod jar;
pub mod limits;
mod names;
mod network;
mod not_kept;
mod offers;
mod origin;
mod policy;
mod seen;
mod spares;
mod store;
mod table;
mod ticket;

pub use context::Context;
pub use jar::{CookieJar, Limits, Visit, Visited};
pub use names::CertificateNames;
pub use network::Network;
pub use not_kept::NotKept;
pub use offers::{OfferMemory, Service};
pub use origin::{Filter, Origin, Server, Whose};
pub use policy::{NotSet, Policy, Sharing};
pub use seen::Unspendable;
pub use spares::{Moment, SpareKey, SparePool, TakenSpare, Vain};
pub use store::{Counts, Listed, SessionStore, StoreLimits};
pub use ticket::{Stamp, Taken, Ticket, TicketsWanted};
