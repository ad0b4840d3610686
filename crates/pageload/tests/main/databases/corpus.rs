//! Replays the corpus of the fuzz target, so that what a fuzzer once reached stays reached.

use std::path::Path;

use headstart_pageload::db::{Database, Parts, write_columns};

use super::made::example;
use crate::fuzz_replay::replay;

#[allow(unreachable_pub)]
#[path = "../../../../../fuzz/src/databases.rs"]
mod bodies;

#[test]
fn databases() {
    replay("databases", bodies::databases);
}

/// Writes what the corpus begins with: the example with each choice of databases.
#[test]
#[ignore = "writes files, for a new version of the format"]
fn write_first_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/databases");
    std::fs::create_dir_all(&folder).unwrap();
    let example = example();
    for number in 0..16u8 {
        let [redirect, server, http2, prefetch] = [1, 2, 4, 8].map(|bit| number & bit != 0);
        let parts = Parts { redirect, server, http2, prefetch };
        let pages = example.pages().to_vec();
        let some = Database::new(example.created(), parts, pages, example.http2().clone()).unwrap();
        let bytes = [&[number], &write_columns(&some)[..]].concat();
        std::fs::write(folder.join(format!("example_{number:02}")), bytes).unwrap();
    }
}
