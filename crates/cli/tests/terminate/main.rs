//! The terminating edge as a process on loopback, with the system's curl and openssl as clients: what they see,
//! what the origin sees, and what becomes of files and signals.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod aged;
#[allow(dead_code)] // managed TLS's tests use the rest
mod daemon;
mod early;
mod edge;
mod faults;
mod files;
mod h2;
mod http;
mod limits;
mod origin;
mod raw;
mod recorder;
mod reload;
mod replay;
mod smuggling;
mod start;
mod stop;
mod tools;
mod turbo;
