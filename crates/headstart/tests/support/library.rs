//! The library that `headstart run` loads, which is no dependency that cargo would build for these
//! tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program of the package that these tests are of.
const PROGRAM: &str =
    match (option_env!("CARGO_BIN_EXE_headstart"), option_env!("CARGO_BIN_EXE_headstart-lab")) {
        (Some(program), _) | (None, Some(program)) => program,
        (None, None) => panic!("this package has no program"),
    };

pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let profile = Path::new(PROGRAM).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "headstart-preload", "--target-dir"]);
        cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the library cannot be built");
        profile.join("libheadstart_preload.so")
    })
}
