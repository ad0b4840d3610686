//! Both ends on real sockets of loopback, and what only one made to misbehave does to the other.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod acceptor;
mod connector;
mod fleet;
mod hello;
