//! The `headstart` command: its options, and what each of its commands does.
//!
//! [`main`] reads the command line with [`settings`], starts [`logging`] and runs the command.
//! Data goes to standard output, words to standard error; a command ends with the exit code 0
//! (done), 1 (negative answer) or 2 (usage or environment), see [`failure`].

pub mod agent;
mod command;
mod daemon;
mod demo;
mod dns_record;
mod doctor;
pub mod edge;
pub mod failure;
mod fastopen;
mod fleet;
mod get;
mod http;
mod keys;
mod lab;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod options;
pub mod output;
mod pageload;
mod run;
pub mod runtime;
mod sessions;
pub mod settings;
mod shell;
mod tls;

pub use command::main;
