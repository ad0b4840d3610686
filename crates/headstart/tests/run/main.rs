//! `headstart run` with Debian's curl, Python, Ruby and openssl as unmodified programs.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../support/agent.rs"]
#[allow(dead_code)] // the tests of managed TLS use the rest
mod agent;
#[path = "../support/call.rs"]
#[allow(dead_code)] // as above
mod call;
mod checks;
#[path = "../support/client.rs"]
#[allow(dead_code)] // as above
mod client;
mod command;
#[path = "../support/daemon.rs"]
#[allow(dead_code)] // as above
mod daemon;
#[path = "../support/edge.rs"]
#[allow(dead_code, unused_imports)] // as above
mod edge;
mod faults;
#[path = "../support/files.rs"]
#[allow(dead_code)] // as above
mod files;
mod kinds;
#[path = "../support/library.rs"]
mod library;
#[path = "../support/ports.rs"]
mod ports;
mod program;
#[path = "../support/server.rs"]
#[allow(dead_code)] // as above
mod server;
mod sharing;
mod trust;
