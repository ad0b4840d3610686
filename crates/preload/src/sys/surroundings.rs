//! The environment, read when the program is loaded: later, other threads may change it.

use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use super::once::Published;
use crate::link::{PATIENCE, PATIENCE_MAX};

pub(super) struct Surroundings {
    /// Where the agent is.
    pub(super) socket: CString,
    pub(super) context: Option<String>,
    pub(super) patience: Duration,
}

static SURROUNDINGS: Published<Option<Surroundings>> = Published::nothing();

/// Reads the environment; `None`: there is no agent, and all is left alone.
pub(super) fn surroundings() -> Option<&'static Surroundings> {
    SURROUNDINGS.get()?.as_ref()
}

/// The loader calls it, before the program has threads.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // Of this library alone: it has a standard library of its own. A panic ends what is ours, and nothing is said.
    std::panic::set_hook(Box::new(|_| {}));
    SURROUNDINGS.get_or(read);
}

fn read() -> Option<Surroundings> {
    let text = |name| setting(name).map(|value| value.to_string_lossy().into_owned());
    let patience =
        text(c"HEADSTART_PATIENCE_MS").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    Some(Surroundings {
        socket: setting(c"HEADSTART_SOCKET").filter(|path| !path.is_empty())?,
        context: context()?,
        patience: patience.unwrap_or(PATIENCE).min(PATIENCE_MAX),
    })
}

/// The context, if there is one; no sharing at all if it has no name that the agent takes: what is like it is another one.
fn context() -> Option<Option<String>> {
    match setting(c"HEADSTART_CONTEXT").filter(|context| !context.is_empty()) {
        None => Some(None),
        Some(context) => context.into_string().ok().map(Some),
    }
}

/// A variable of the environment, which programs with more rights than their user do not have.
fn setting(name: &CStr) -> Option<CString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *mut c_char;
    }
    // SAFETY: the name ends with zero, and so does the value, which is copied at once.
    unsafe { copy(secure_getenv(name.as_ptr())) }
}

/// # Safety
/// It is null, or a string that ends with zero.
pub(super) unsafe fn copy(text: *const c_char) -> Option<CString> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}
