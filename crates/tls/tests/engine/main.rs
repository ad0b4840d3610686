//! Both ends of TLS joined in memory, and the server before another implementation's client.
//!
//! The functions of OpenSSL that the crate calls without a binding are exercised here, so this is
//! what to run under valgrind or with address sanitizer:
//!
//! ```text
//! cargo test -p headstart-tls --test engine --no-run
//! valgrind --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite \
//!     target/debug/deps/engine-* --test-threads=1 --skip interop
//! ```

#![allow(clippy::unwrap_used)]

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
