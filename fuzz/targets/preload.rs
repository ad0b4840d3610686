#![no_main]

#[allow(dead_code)]
#[path = "../../crates/preload/src/link.rs"]
mod link;
#[path = "../src/preload.rs"]
mod preload;
#[path = "../../crates/preload/src/query.rs"]
mod query;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| preload::preload(bytes));
