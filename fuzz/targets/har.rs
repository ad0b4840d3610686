#![no_main]

#[path = "../src/pageload.rs"]
mod pageload;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pageload::har(bytes));
