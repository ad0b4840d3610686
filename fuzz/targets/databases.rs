#![no_main]

#[path = "../src/databases.rs"]
mod databases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| databases::databases(bytes));
