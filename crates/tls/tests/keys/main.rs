//! The keys of a site: key rings, their files, and what is derived from them.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

#[allow(dead_code)] // the frames' vectors use all of it
#[path = "../../../proto/tests/wire_vectors/blocks.rs"]
mod blocks;
mod files;
mod ring;
mod vectors;
