#![no_main]

#[path = "../src/headstart.rs"]
mod headstart_targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| headstart_targets::proxies(bytes));
