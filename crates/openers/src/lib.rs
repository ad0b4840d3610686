//! Clients and servers of every way to open a connection, side by side for measurements.
//!
//! An [`Arm`] is a way to open a connection, a [`Suite`] what is agreed on in TLS. A [`Server`]
//! serves one arm with one suite; a [`Client`] opens connections to it and gives a [`Trial`] of
//! each: when the first request byte left, when response bytes came, and how the connection was
//! opened in truth. All speak HTTP/1.1, `GET /bytes/N`, so that other servers can stand behind;
//! every response byte is checked. The same servers answer as the origins of a recorded page, of
//! which a [`PageClient`] makes [`PageLoad`]s.
//!
//! [`site`] has web sites for browsers to load.
//!
//! [`run_client`] and [`run_server`] make programs of them, driven by lines on standard input.
//!
//! All arms over TCP use OpenSSL, which has the post-quantum suites and early data; those of Fast
//! Open by way of headstart's engine, whose bytes are there before a socket is. Those over QUIC use
//! quinn with rustls, and clients that encrypt their ClientHello rustls as well: OpenSSL has that
//! from version 4.0, and their server is in extras/ech-server for this reason. This is a crate of
//! its own so that only measurements pay for the second TLS library.

mod arm;
mod attempt;
mod certificate;
mod client;
mod console;
mod content;
mod ech;
mod error;
mod fast_open;
mod flight;
mod identity;
mod kept;
mod limits;
mod load;
mod obtain;
mod options;
mod page;
mod psk;
mod quic;
mod server;
mod serving;
pub mod site;
mod sys;
mod tickets;
mod tls;
mod transport;
mod trial;
mod visit;

pub use arm::{Arm, Sharing, Suite, UnknownName, Via};
pub use certificate::self_signed;
pub use client::Client;
pub use console::{run_client, run_page_client, run_server};
pub use content::{BYTES_MAX, WAIT_MAX, fill};
pub use error::PeerError;
pub use flight::FLIGHT_MAX;
pub use headstart_net::OpeningPolicy;
pub use headstart_proto::{Carrier, Opening, Session};
pub use identity::Identity;
pub use load::{Load, Tally, part_before};
pub use options::{ClientOptions, NAME, OTHER_NAME, ServerOptions, TIMEOUT};
pub use page::{
    CONNECTIONS_MAX, PageClient, PageClientOptions, PageDependency, PageHost, PageLoad, PagePlan,
    PageResource, PageTimes, REQUEST_MAX,
};
pub use server::Server;
pub use sys::{early_data_accepted, set_session};
pub use trial::Trial;
pub use visit::Visit;
