//! The agent: beside applications, on the client's side of the slow network.

mod check;
mod harden;
pub mod inbound;
pub mod inside;
pub(crate) mod isolation;
mod managed;
pub mod options;
pub mod port_context;
mod serve;
pub mod upstream;

pub use check::check;
#[doc(hidden)]
pub use managed::ManagedAgent;
pub use serve::run;
