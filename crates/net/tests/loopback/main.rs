//! Both ends on real loopback sockets, and the reaction of one to misbehaviour of the other.
#![allow(clippy::unwrap_used)] // tests and their helpers may panic

mod acceptor;
mod connector;
mod fleet;
mod generations;
mod hello;
mod join;
mod ordinary;
mod proxied;
mod spares;
mod time;
