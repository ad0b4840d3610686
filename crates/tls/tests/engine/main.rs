//! Both ends of TLS joined in memory, and the server before another implementation's client.
//!
//! The functions of OpenSSL that the crate calls without a binding are exercised here, so
//! `./check.sh valgrind` runs these tests and those of the fuzz corpora in valgrind, but for
//! `interop`, which starts other programs.

#![allow(clippy::unwrap_used)]

mod across_names;
mod certificates;
mod hello;
mod site;

mod configuration;
mod cookies;
mod early_data;
mod garbage;
mod handshake;
mod interop;
mod resumption;
mod sessions;
mod tickets;
mod verification;
