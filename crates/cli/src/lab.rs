//! `headstart lab`: emulated networks, and what is measured on them.

pub(crate) mod stats;
