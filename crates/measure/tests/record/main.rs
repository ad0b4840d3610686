//! `headstart pageload record` with real Chromium: HEADSTART_TEST_BROWSER=1 switches it on, and
//! then it must be there.
//!
//! What needs no browser is in the tests of the modules; what a browser does wrong is played by
//! scripts.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod agent;
mod browsers;
mod faults;
mod lab;
mod place;
#[path = "../support/programs.rs"]
mod programs;
mod server;
mod sites;
mod world;
