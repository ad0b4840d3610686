//! The edge: before a TLS server, on the server's side of the slow network.

mod dial;
mod fellows;
mod keys;
pub mod options;
pub mod proxy_protocol;
mod serve;
mod sparse;
mod terminate;

pub use serve::run;
