//! The function of OpenSSL that this program needs and whose binding is unsafe.
#![allow(unsafe_code)]

use openssl::error::ErrorStack;
use openssl::ssl::{SslRef, SslSessionRef};

/// Resumes `session`, which must come from a connection with the same context as `ssl`.
pub(super) fn set_session(ssl: &mut SslRef, session: &SslSessionRef) -> Result<(), ErrorStack> {
    // SAFETY: OpenSSL takes a reference of its own to any session; that the context be the same is
    // about what it means, and `Resumption` keeps the sessions of its one context only.
    unsafe { ssl.set_session(session) }
}
