//! The `headstart-lab` command: what openings and page loads cost, measured.
//!
//! `headstart lab`, `pageload` and `demo` run it. Data goes to standard output, words to standard
//! error; exit codes are those of `headstart`, see [`headstart::base::failure`].

mod command;
mod demo;
mod doctor;
mod lab;
mod pageload;
mod value;

pub use command::main;
