#![no_main]

#[path = "../src/preload_sessions.rs"]
mod preload_sessions;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| preload_sessions::preload_sessions(bytes));
