//! `headstart pageload` as it is called.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[path = "../support/call.rs"]
#[allow(dead_code)] // the tests of the other commands use the rest
mod call;
mod databases;
mod place;
mod plan;
mod plan_database;
mod sharing;
mod show;
#[path = "../../../pageload/tests/support/mod.rs"]
mod support;
mod validated;
