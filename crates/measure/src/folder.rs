//! Folders of results and keys, named by options.

use std::path::Path;

use headstart::base::failure::Failure;
use headstart::base::files;

/// Makes the folder that `option` names, and those above it, or takes one that this user made
/// before.
///
/// # Errors
/// As [`files::make_own_directory`].
pub(crate) fn make(path: &Path, option: &str) -> Result<(), Failure> {
    files::make_own_directory(path).map_err(|fault| {
        Failure::usage(format!("cannot write {}: {fault}", path.display())).hint(format!(
            "name a folder with {option} that can be made, in a directory of your own"
        ))
    })
}

/// Checks that there are no results of another run at `path`.
pub(crate) fn check_new(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(format!("{} exists", path.display()))
            .hint("results are not overwritten: name another folder with --out"));
    }
    Ok(())
}
