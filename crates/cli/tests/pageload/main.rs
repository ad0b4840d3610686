//! `headstart pageload` as it is called; of its databases what is made of recordings and what is made of them again.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod database;
mod place;
mod plan;
mod sharing;
mod show;
#[path = "../../../pageload/tests/support/mod.rs"]
mod support;
