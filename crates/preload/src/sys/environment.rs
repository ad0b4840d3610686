//! Environment variables, read when the program is loaded: later, other threads may change them.

use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use super::once::Published;
use crate::link::{ANSWER_TIMEOUT, ANSWER_TIMEOUT_MAX};

pub(super) struct Environment {
    /// Path of the agent's socket.
    pub(super) socket: CString,
    pub(super) context: Option<String>,
    pub(super) timeout: Duration,
}

static ENVIRONMENT: Published<Option<Environment>> = Published::nothing();

/// Returns the settings; `None` if there is no agent, and everything is left alone.
pub(super) fn environment() -> Option<&'static Environment> {
    ENVIRONMENT.get()?.as_ref()
}

/// Called by the loader, before the program has threads.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // Affects only this library, which has its own standard library. A panic ends our part
    // silently.
    std::panic::set_hook(Box::new(|_| {}));
    ENVIRONMENT.get_or(read);
}

fn read() -> Option<Environment> {
    let timeout = setting(c"HEADSTART_PATIENCE_MS");
    let timeout = timeout.and_then(|ms| ms.to_str().ok()?.parse().ok());
    let timeout = timeout.map_or(ANSWER_TIMEOUT, Duration::from_millis);
    Some(Environment {
        socket: setting(c"HEADSTART_SOCKET").filter(|path| !path.is_empty())?,
        context: context()?,
        timeout: timeout.min(ANSWER_TIMEOUT_MAX),
    })
}

/// Returns the context, if there is one. No sharing at all if the agent would not accept its name:
/// a similar name is another context.
fn context() -> Option<Option<String>> {
    match setting(c"HEADSTART_CONTEXT").filter(|context| !context.is_empty()) {
        None => Some(None),
        Some(context) => context.into_string().ok().map(Some),
    }
}

/// Returns an environment variable, but not for programs with more rights than their user.
fn setting(name: &CStr) -> Option<CString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *mut c_char;
    }
    // SAFETY: the name ends with zero, and so does the value, which is copied at once.
    unsafe { copy(secure_getenv(name.as_ptr())) }
}

/// Copies a string.
///
/// # Safety
/// `text` must be null, or a string that ends with zero.
pub(super) unsafe fn copy(text: *const c_char) -> Option<CString> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}
