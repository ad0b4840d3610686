//! Environment variables, read when the program is loaded: later, other threads may change them.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::time::Duration;

use super::once::Published;
use crate::link::{ANSWER_TIMEOUT, ANSWER_TIMEOUT_MAX};

/// Initial value of kernel.overflowuid.
const OVERFLOW_UID: libc::uid_t = 65534;

pub(super) struct Environment {
    /// Path of the agent's socket.
    pub(super) socket: CString,
    /// User whose agent is trusted beside this user's and root's.
    agent_uid: Option<libc::uid_t>,
    /// The kernel's value for users that do not exist in this user namespace.
    overflow_uid: Option<libc::uid_t>,
    pub(super) context: Option<String>,
    pub(super) timeout: Duration,
}

impl Environment {
    /// Returns true if a listener of `user` may be trusted: it could impersonate any server.
    /// Trusted are this user, root, and the user that the environment names. A user that does not
    /// exist in this namespace is shown as the overflow uid, and may be anyone.
    pub(super) fn is_trusted(&self, user: libc::uid_t) -> bool {
        // SAFETY: it has no arguments.
        let own = unsafe { libc::geteuid() };
        let is_anyone = user == OVERFLOW_UID || Some(user) == self.overflow_uid;
        !is_anyone && (user == 0 || user == own || Some(user) == self.agent_uid)
    }
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
        agent_uid: setting(c"HEADSTART_AGENT_UID").and_then(|uid| uid.to_str().ok()?.parse().ok()),
        overflow_uid: fs::read_to_string("/proc/sys/kernel/overflowuid")
            .ok()
            .and_then(|uid| uid.trim().parse().ok()),
        context: context()?,
        timeout: timeout.min(ANSWER_TIMEOUT_MAX),
    })
}

/// Returns the context, `Some(None)` if none is set, or `None` if it is not UTF-8: the agent would
/// reject it, and a lossy conversion could name another context.
fn context() -> Option<Option<String>> {
    match setting(c"HEADSTART_CONTEXT").filter(|context| !context.is_empty()) {
        None => Some(None),
        Some(context) => context.into_string().ok().map(Some),
    }
}

/// Returns an environment variable; `None` in set-user-ID programs and the like.
fn setting(name: &CStr) -> Option<CString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *mut c_char;
    }
    // SAFETY: the name is NUL-terminated, and so is the value, which is copied at once.
    unsafe { copy(secure_getenv(name.as_ptr())) }
}

/// Copies a string.
///
/// # Safety
/// `text` must be null, or a NUL-terminated string.
pub(super) unsafe fn copy(text: *const c_char) -> Option<CString> {
    // SAFETY: the caller's duty.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}
