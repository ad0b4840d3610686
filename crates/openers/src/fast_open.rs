//! The arms whose first flight is in the SYN: by the kernel's cookies (RFC 7413), or by those of
//! Fast Open Privacy.
//!
//! All of them use the engine of headstart, so that they differ in the cookie alone. Its bytes are
//! there before any socket is: ClientHello and early data leave in one write, which is the SYN.

mod client;
pub(crate) mod engine;
mod memory;
mod server;
mod wire;

pub(crate) use client::{FastOpenClient, Ready, established};
pub(crate) use memory::VisitKey;
pub(crate) use server::serve;
pub(crate) use wire::Wire;
