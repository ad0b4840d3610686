//! `headstart lab`: measurements over emulated networks.

pub(crate) mod calibrate;
