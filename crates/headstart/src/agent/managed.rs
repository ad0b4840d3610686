//! Managed TLS: the agent speaks TLS for programs of this machine, and keeps their sessions.
//!
//! docs/managed.md is the specification of what programs see. [`listener`] takes connections, on a
//! socket or a port with a [`token`] and a [`proof`]; [`exchange`] serves each: it reads a
//! [`request`], [`open`]s a connection for it or has [`control`] answer, and passes bytes through a
//! [`tunnel`]. Sessions reach a connection, and come back from it, by [`visit`] and
//! [`session_capture`] alone; the agent keeps them in its [`state`].

mod answer;
mod audit;
mod caller;
mod clients;
mod control;
mod exchange;
mod fuzzing;
mod limits;
mod listener;
mod open;
pub(crate) mod options;
mod program_stream;
mod proof;
mod request;
mod session_capture;
mod state;
mod ticket;
mod token;
mod tunnel;
mod visit;

pub(super) use clients::Clients;
pub use fuzzing::ManagedAgent;
pub(super) use listener::start;
pub(super) use state::AgentState;
