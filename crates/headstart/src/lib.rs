//! The `headstart` command: its options, and what each of its commands does.
//!
//! [`main`] reads the command line with [`base::settings`], starts [`base::logging`] and runs the
//! command. Data goes to standard output, words to standard error; a command ends with the exit
//! code 0 (done), 1 (negative answer) or 2 (usage or environment), see [`base::failure`].
//!
//! `headstart lab`, `pageload` and `demo` are commands of a program of their own, [`companion`].

pub mod agent;
pub mod base;
pub mod careful;
pub mod check;
mod command;
pub mod companion;
mod daemon;
pub mod dns_record;
pub mod doctor;
pub mod edge;
pub mod fastopen;
pub mod fleet;
pub mod get;
mod http;
pub mod keys;
mod listen;
mod master;
pub mod metrics;
pub mod qlog;
pub mod run;
pub mod sessions;
mod shares;
mod supervisor;
pub mod takeover;
pub mod up;

pub use command::main;
