#![no_main]

#[allow(dead_code, unused_imports)]
#[path = "../src/headstart.rs"]
mod command;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| command::options(bytes));
