//! `headstart pageload` as it is called, but for its databases.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod place;
mod plan;
mod sharing;
mod show;
#[path = "../../../pageload/tests/support/mod.rs"]
mod support;
