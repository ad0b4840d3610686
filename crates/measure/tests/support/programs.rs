//! The two programs under test.

use std::path::{Path, PathBuf};

/// The program of this package.
#[allow(dead_code)] // some tests call only the other
pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_headstart-lab");

/// Returns the path of `headstart`, beside `headstart-lab`.
///
/// Cargo builds it for tests of the whole workspace. For tests of this package alone it has to be
/// there, and up to date: `cargo build --workspace --bins`.
#[allow(dead_code)] // some tests call only the other
pub(crate) fn headstart() -> PathBuf {
    let program = Path::new(LAB).with_file_name("headstart");
    assert!(program.exists(), "{} is missing: cargo build --bins", program.display());
    program
}
