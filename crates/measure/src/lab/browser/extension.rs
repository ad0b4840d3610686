//! The browser extension: where it is, and its settings.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chromium::session::{Session, Stopped};
use headstart::base::failure::Failure;

/// Names its folder.
const FOLDER: &str = "HEADSTART_EXTENSION";

/// Below the folder of the sources; and beside the program, or above it, where that was built.
const PLACES: [&str; 2] = ["extension/dist", "extension"];

const MANIFEST: &str = "manifest.json";

/// The unpacked extension.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(FOLDER).map(PathBuf::from);
    let here = std::env::current_dir().into_iter();
    let program = std::env::current_exe().ok();
    let above = program.iter().flat_map(|program| program.ancestors().skip(1)).map(PathBuf::from);
    let beside = here.chain(above).flat_map(|root| PLACES.map(|place| root.join(place)));
    let mut all = named.into_iter().chain(beside);
    all.find(|folder| folder.join(MANIFEST).exists()).ok_or_else(|| {
        Failure::usage("the browser extension is not there, which arms with databases need")
            .hint(format!("run it in a checkout, or name the extension's folder with {FOLDER}"))
    })
}

/// Installs it, and has it load a database.
pub(super) fn install(session: &mut Session, url: &str, key: &str) -> Result<(), Stopped> {
    let folder = find().map_err(|failure| Stopped::Failed(failure.message().to_owned()))?;
    // It learns this from the first page, and here there is only one.
    let what = json!({ "url": url, "key": key, "thirdPartyCookies": true });
    session.install(&folder, &format!("self.headstart.load({what})")).map(drop)
}

/// Returns true if it followed no redirect for the page and opened no connection, as far as it
/// tells: also where the database has none.
pub(super) fn is_idle(state: &Value) -> bool {
    ["redirects", "connections"]
        .iter()
        .all(|what| state.get(what).and_then(Value::as_u64).unwrap_or_default() == 0)
}

/// Returns the extension's own account; `None` if it is asleep.
pub(super) fn state(session: &mut Session) -> Option<Value> {
    session.ask_extension("self.headstart.state()")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_without_its_technique_is_idle() {
        assert!(is_idle(&json!({ "redirects": 0, "connections": 0, "pages": 1 })));
        assert!(!is_idle(&json!({ "redirects": 1, "connections": 0 })));
        assert!(!is_idle(&json!({ "redirects": 0, "connections": 7 })));
    }
}
