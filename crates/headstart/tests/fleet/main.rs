//! Several edges of one site, as processes on loopback, with a real Redis (Debian's redis-server),
//! and with one that misbehaves: what is resumed, what is taken as early data, which joins arrive.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod client;
#[allow(dead_code)] // the terminating edge's tests use all of it
#[path = "../support/daemon.rs"]
mod daemon;
#[allow(dead_code, unused_imports)]
#[path = "../support/edge.rs"]
mod edge;
mod export;
#[allow(dead_code)]
#[path = "../support/files.rs"]
mod files;
mod filter;
mod forward;
#[path = "../support/front.rs"]
mod front;
mod keys;
mod load;
#[allow(dead_code)]
#[path = "../support/origin.rs"]
mod origin;
#[path = "../support/ports.rs"]
mod ports;
mod proxy;
mod redis;
mod ring;
mod site;
