//! The agent: beside applications, on the client's side of the slow network.

pub mod context;
pub mod inbound;
mod serve;

pub use serve::run;
