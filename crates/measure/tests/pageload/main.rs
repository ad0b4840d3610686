//! `headstart pageload` as a process.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../../../headstart/tests/support/call.rs"]
#[allow(dead_code)] // the tests of the other commands use the rest
mod call;
mod databases;
mod har;
mod place;
mod plan;
mod plan_database;
#[path = "../support/programs.rs"]
mod programs;
mod sharing;
mod show;
#[path = "../../../pageload/tests/support/mod.rs"]
mod support;
mod validated;
