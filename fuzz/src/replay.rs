//! Replays a corpus of `fuzz/`, for tests of the crates whose code the targets are for.

use std::fs;
use std::panic;
use std::path::Path;

/// Gives each file of the corpus of `target` to its `body`.
pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(root.join(target)).expect("a corpus");
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let result = panic::catch_unwind(|| body(&bytes));
        assert!(result.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 10, "{target}: a corpus of {count} files is none");
}
