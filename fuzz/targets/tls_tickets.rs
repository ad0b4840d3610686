#![no_main]

#[allow(dead_code)]
#[path = "../src/tls.rs"]
mod tls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tls::tls_tickets(bytes));
