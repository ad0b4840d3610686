//! Tests of the crate as others use it, in one program: each program would be linked by itself.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may panic, its helper functions too

mod databases;
mod fop_balancing;
mod fuzz_replay;
mod har;
mod memory;
mod policy;
mod published;
mod sharing;
mod simulator;
#[path = "../support/mod.rs"]
mod support;
