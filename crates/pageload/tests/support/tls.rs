//! First flights of TLS.

use std::sync::atomic::{AtomicU64, Ordering};

use headstart_testkit::hello::{CraftedHello, extension, vector8, vector16};
pub(crate) use headstart_testkit::hello::{message, record};

const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const APPLICATION_DATA: u8 = 23;

/// The random of a HelloRetryRequest: SHA-256 of its name (RFC 8446 section 4.1.3).
pub(crate) const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A ClientHello of TLS 1.3 for this name; without one if it is empty.
pub(crate) fn hello(name: &str) -> CraftedHello {
    named(name, CraftedHello::default())
}

/// One of TLS 1.2.
pub(crate) fn hello12(name: &str) -> CraftedHello {
    named(name, CraftedHello { extensions: Vec::new(), ..CraftedHello::default() })
}

fn named(name: &str, hello: CraftedHello) -> CraftedHello {
    if name.is_empty() { hello } else { hello.name(name) }
}

/// A server's first flight of TLS 1.3.
pub(crate) fn answer13(psk: bool) -> Vec<u8> {
    let mut extensions = extension(43, &[3, 4]);
    extensions.extend(extension(51, &[0; 36]));
    if psk {
        extensions.extend(extension(41, &[0, 0]));
    }
    let mut flight = record(HANDSHAKE, &server_hello(&random(), &[], Some(&extensions)));
    flight.extend(record(CHANGE_CIPHER_SPEC, &[1]));
    flight.extend(record(APPLICATION_DATA, &[0; 900]));
    flight
}

/// A HelloRetryRequest, as the beginning of a server's stream.
pub(crate) fn retry() -> Vec<u8> {
    let mut extensions = extension(43, &[3, 4]);
    extensions.extend(extension(51, &[0, 29]));
    let mut flight = record(HANDSHAKE, &server_hello(&RETRY, &[], Some(&extensions)));
    flight.extend(record(CHANGE_CIPHER_SPEC, &[1]));
    flight
}

/// Parts of a server's flight of TLS 1.2.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer12 {
    pub(crate) abbreviated: bool,
    /// Bytes of the certificates.
    pub(crate) certificate: usize,
    pub(crate) certificate_request: bool,
    /// Bytes of the new ticket.
    pub(crate) ticket: Option<usize>,
}

impl Answer12 {
    /// All messages in as few records as there can be.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut messages = server_hello(&random(), &[4; 32], Some(&extension(35, &[])));
        if !self.abbreviated {
            messages.extend(message(11, &vec![0x30; self.certificate]));
            messages.extend(message(12, &[3; 100]));
            if self.certificate_request {
                messages.extend(message(13, &[1, 1, 0, 0, 0, 0]));
            }
            messages.extend(message(14, &[]));
        }
        let mut flight: Vec<u8> =
            messages.chunks(1 << 14).flat_map(|piece| record(HANDSHAKE, piece)).collect();
        if let Some(length) = self.ticket {
            let mut body = vec![0, 0, 0x0e, 0x10];
            body.extend(vector16(&vec![8; length]));
            flight.extend(record(HANDSHAKE, &message(4, &body)));
        }
        flight.extend(record(CHANGE_CIPHER_SPEC, &[1]));
        flight.extend(record(HANDSHAKE, &[0xee; 40])); // Finished, encrypted
        flight
    }
}

/// A fatal alert: handshake_failure.
pub(crate) fn alert() -> Vec<u8> {
    record(21, &[2, 40])
}

/// A warning, after which the handshake goes on: unrecognized_name.
pub(crate) fn warning() -> Vec<u8> {
    record(21, &[1, 112])
}

/// Another one at each call, as servers have it: two handshakes with one are copies of each other.
fn random() -> [u8; 32] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0x22; 32];
    random[24..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    random
}

fn server_hello(random: &[u8; 32], session_id: &[u8], extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend(random);
    body.extend(vector8(session_id));
    body.extend([0x13, 0x01, 0]);
    body.extend(extensions.map(vector16).unwrap_or_default());
    message(2, &body)
}
