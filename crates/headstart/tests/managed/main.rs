//! Managed TLS: the agent as a process, with the system's openssl and the terminating edge as
//! servers, and raw clients and curl as programs.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../support/agent.rs"]
mod agent;
#[path = "../support/call.rs"]
#[allow(dead_code)] // the tests of commands use the rest
mod call;
#[path = "../support/client.rs"]
mod client;
mod command;
mod connector;
mod crossing;
#[path = "../support/daemon.rs"]
#[allow(dead_code)] // the terminating edge's tests use the rest
mod daemon;
mod documented;
mod early;
#[path = "../support/edge.rs"]
#[allow(dead_code, unused_imports)] // as above
mod edge;
mod faults;
#[path = "../support/files.rs"]
#[allow(dead_code)] // as above
mod files;
#[path = "../support/front.rs"]
mod front;
mod hostile;
mod learnt;
#[path = "../support/origin.rs"]
#[allow(dead_code)] // as above
mod origin;
mod origins;
mod port;
#[path = "../support/ports.rs"]
mod ports;
mod privacy;
mod secrets;
#[path = "../support/server.rs"]
mod server;
mod shares;
mod sharing;
#[path = "../support/socks.rs"]
mod socks;
mod start;
mod tap;
mod upstream;
mod users;
mod verify;
