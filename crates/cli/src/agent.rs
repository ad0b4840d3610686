//! The agent: beside applications, on the client's side of the slow network.

pub mod context;
mod harden;
pub mod inbound;
pub(crate) mod isolation;
mod managed;
mod serve;

pub use serve::run;
