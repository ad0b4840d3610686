//! The `headstart-lab` command: what openings and page loads cost, measured.
//!
//! `headstart lab`, `pageload` and `demo` run it. Data goes to standard output, words to standard
//! error; exit codes are those of `headstart`, see [`headstart::base::failure`].

mod chart;
mod chromium;
mod command;
mod demo;
mod doctor;
mod folder;
mod interop;
mod interrupt;
mod json;
mod lab;
mod network;
mod pageload;
mod progress;
mod recordings;
mod simulated;
mod socks;
mod stats;
mod stream;
mod table;
mod terminal;
mod value;

pub use command::main;
