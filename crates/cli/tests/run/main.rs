//! `headstart run` with Debian's curl, Python, Ruby and openssl as unmodified programs.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../managed/agent.rs"]
#[allow(dead_code)] // the tests of managed TLS use the rest
mod agent;
mod checks;
#[path = "../managed/client.rs"]
#[allow(dead_code)] // as above
mod client;
mod command;
#[path = "../terminate/daemon.rs"]
#[allow(dead_code)] // as above
mod daemon;
#[path = "../terminate/edge.rs"]
#[allow(dead_code, unused_imports)] // as above
mod edge;
mod faults;
#[path = "../terminate/files.rs"]
#[allow(dead_code)] // as above
mod files;
mod kinds;
mod library;
#[path = "../fleet/ports.rs"]
mod ports;
mod program;
#[path = "../managed/server.rs"]
#[allow(dead_code)] // as above
mod server;
mod sharing;
