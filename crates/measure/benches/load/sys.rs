//! The one call of OpenSSL whose wrapper leaves something to its caller.
#![allow(unsafe_code)]

use openssl::error::ErrorStack;
use openssl::ssl::{SslRef, SslSessionRef};

/// Has the connection offer `session`, which must come from a connection with the same context.
pub(crate) fn set_session(ssl: &mut SslRef, session: &SslSessionRef) -> Result<(), ErrorStack> {
    // SAFETY: OpenSSL itself takes any session here; that the context be the same is about what it
    // means, and `Direct` keeps sessions of its one context that resumes.
    unsafe { ssl.set_session(session) }
}
