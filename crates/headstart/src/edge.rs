//! The edge: before a TLS server, on the server's side of the slow network.

mod check;
mod connection_shares;
mod dial;
mod fleet_links;
mod health;
mod keys;
pub mod options;
mod origin_states;
pub mod proxy_protocol;
mod serve;
mod settings;
mod terminate;

pub use check::check;
pub use serve::run;
#[doc(hidden)]
pub use terminate::HttpEdge;
