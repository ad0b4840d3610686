//! QUIC by quinn, as it comes, for comparison: one group and one cipher, and HTTP/1.1's text on one
//! stream.

mod client;
mod server;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub(crate) use client::{QuicClient, Ready};
pub(crate) use server::serve;

use crate::arm::Suite;

/// QUIC wants a protocol to be named (RFC 9001 section 8.1); this one is of nobody else.
const PROTOCOL: &[u8] = b"headstart-emulation";

/// Returns the cryptography of rustls for `suite`, here and with Encrypted ClientHello.
pub(crate) fn provider(suite: Suite) -> Arc<CryptoProvider> {
    let group = match suite {
        Suite::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
        Suite::RsaChain => aws_lc_rs::kx_group::X25519,
        Suite::P256 | Suite::MlKem512MlDsa44 => aws_lc_rs::kx_group::SECP256R1,
    };
    Arc::new(CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![group],
        ..aws_lc_rs::default_provider()
    })
}
