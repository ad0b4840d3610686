//! HAR files.

mod pages;
mod rule;
