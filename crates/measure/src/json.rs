//! Output as JSON.

use serde::Serialize;

use headstart::base::failure::Failure;

/// Returns a value as JSON, with a line end.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))
}
