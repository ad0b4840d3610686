//! The edge: before a TLS server, on the server's side of the slow network.

pub mod proxy_protocol;
mod serve;
mod sparse;

pub use serve::run;
