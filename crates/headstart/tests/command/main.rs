//! The program as a process, and its daemons on loopback. Nothing here measures time.
//!
//! All in one program, since each one that is linked with OpenSSL is large. So no test changes what
//! is the process's: its environment, directory, limits, signals.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../support/call.rs"]
mod call;
mod command;
mod companion;
mod context;
#[allow(dead_code)] // the tests of managed TLS use the rest
#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/edge.rs"]
mod edge;
mod failures;
#[path = "../support/files.rs"]
mod files;
#[path = "../support/front.rs"]
mod front;
mod fuzz_replay;
mod get;
mod inbound;
mod inside;
mod keys;
mod metrics_server;
mod operability;
mod options;
#[path = "../support/origin.rs"]
mod origin;
#[path = "../support/ports.rs"]
mod ports;
mod qlog;
mod relayed;
#[path = "../support/socks.rs"]
mod socks;
mod status;
mod supervisor;
mod takeover;
mod terminate;
mod upstream;
