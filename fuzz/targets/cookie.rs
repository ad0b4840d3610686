#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| headstart_fuzz::cookie(bytes));
