//! External keys of TLS 1.3 (RFC 8446 section 2.2) that allow early data. The safe binding has
//! those of OpenSSL's older interface alone, which allow none.

use std::ffi::{c_int, c_uchar, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession};
use zeroize::Zeroizing;

/// Returns the secret of the key that a client names, if the server takes it.
pub(crate) type FindKey = Box<dyn Fn(&[u8]) -> Option<Zeroizing<[u8; 32]>> + Send + Sync>;

/// `SSL_psk_use_session_cb_func` of openssl/ssl.h.
type UseSession = extern "C" fn(
    *mut c_void,
    *const c_void,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut c_void,
) -> c_int;

/// `SSL_psk_find_session_cb_func` of openssl/ssl.h.
type FindSession = extern "C" fn(*mut c_void, *const c_uchar, usize, *mut *mut c_void) -> c_int;

// From openssl/ssl.h; the last one is in no safe binding, the others are in none.
unsafe extern "C" {
    fn SSL_set_psk_use_session_callback(ssl: *mut c_void, callback: UseSession);
    fn SSL_CTX_set_psk_find_session_callback(context: *mut c_void, callback: FindSession);
    fn SSL_CIPHER_find(ssl: *mut c_void, number: *const c_uchar) -> *const c_void;
    fn SSL_SESSION_new() -> *mut c_void;
    fn SSL_SESSION_set1_master_key(
        session: *mut c_void,
        secret: *const c_uchar,
        length: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut c_void, cipher: *const c_void) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut c_void, version: c_int) -> c_int;
    fn SSL_SESSION_set_max_early_data(session: *mut c_void, bytes: u32) -> c_int;
}

/// TLS_AES_128_GCM_SHA256, the cipher of all arms: its number, as it is sent.
const CIPHER: [c_uchar; 2] = [0x13, 0x01];

const TLS1_3: c_int = 0x0304;

/// A key that a client offers.
struct Offered {
    identity: Vec<u8>,
    session: SslSession,
}

/// Keys that a server takes.
struct Taken {
    early_data_max: u32,
    find: FindKey,
}

/// Makes the session that stands for an external key, for connections like `ssl`.
pub(crate) fn key_session(
    ssl: &SslRef,
    secret: &[u8],
    early_data_max: u32,
) -> Result<SslSession, ErrorStack> {
    // SAFETY: the pointer is valid as long as the reference, and the number has two bytes, as the
    // function reads; ciphers are static. The new session is owned by `made` alone, from then on it
    // is valid, and the secret is copied.
    unsafe {
        let raw = SSL_SESSION_new();
        if raw.is_null() {
            return Err(ErrorStack::get());
        }
        let made = SslSession::from_ptr(raw.cast());
        let cipher = SSL_CIPHER_find(ssl.as_ptr().cast(), CIPHER.as_ptr());
        let set = !cipher.is_null()
            && SSL_SESSION_set1_master_key(raw, secret.as_ptr(), secret.len()) > 0
            && SSL_SESSION_set_cipher(raw, cipher) > 0
            && SSL_SESSION_set_protocol_version(raw, TLS1_3) > 0
            && SSL_SESSION_set_max_early_data(raw, early_data_max) > 0;
        if set { Ok(made) } else { Err(ErrorStack::get()) }
    }
}

/// Offers the key that `session` stands for under the name `identity`.
pub(crate) fn offer_key(
    ssl: &mut SslRef,
    identity: &[u8],
    session: SslSession,
) -> Result<(), ErrorStack> {
    ssl.set_ex_data(offered()?, Offered { identity: identity.to_vec(), session });
    // SAFETY: the pointer is valid as long as the reference.
    unsafe { SSL_set_psk_use_session_callback(ssl.as_ptr().cast(), use_session) };
    Ok(())
}

/// Has a server take the keys that `find` returns, with so many bytes of early data.
pub(crate) fn find_keys(
    tls: &mut SslContextBuilder,
    early_data_max: u32,
    find: FindKey,
) -> Result<(), ErrorStack> {
    tls.set_ex_data(taken()?, Taken { early_data_max, find });
    // SAFETY: the pointer is valid as long as the reference.
    unsafe { SSL_CTX_set_psk_find_session_callback(tls.as_ptr().cast(), find_session) };
    Ok(())
}

extern "C" fn use_session(
    ssl: *mut c_void,
    _: *const c_void,
    identity: *mut *const c_uchar,
    length: *mut usize,
    session: *mut *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL calls this with a valid connection, and with places for the three results.
    // The identity stays where it is as long as the connection, and OpenSSL copies it at once; the
    // session that is passed is a reference of its own, which OpenSSL frees.
    unsafe {
        let ssl = SslRef::from_ptr(ssl.cast());
        *session = ptr::null_mut();
        if let Some(offered) = offered().ok().and_then(|index| ssl.ex_data(index)) {
            (*identity, *length) = (offered.identity.as_ptr(), offered.identity.len());
            *session = passed(offered.session.clone());
        }
    }
    1
}

/// Without a session the handshake goes on as a full one.
extern "C" fn find_session(
    ssl: *mut c_void,
    identity: *const c_uchar,
    length: usize,
    session: *mut *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL calls this with a valid connection, an identity of at least one byte, and a
    // place for the result, whose reference it frees.
    unsafe {
        let ssl = SslRef::from_ptr(ssl.cast());
        *session = ptr::null_mut();
        let taken = taken().ok().and_then(|index| ssl.ssl_context().ex_data(index));
        if let Some(taken) = taken
            && let Some(secret) = (taken.find)(slice::from_raw_parts(identity, length))
            && let Ok(found) = key_session(ssl, &*secret, taken.early_data_max)
        {
            *session = passed(found);
        }
    }
    1
}

/// Gives a reference away.
fn passed(session: SslSession) -> *mut c_void {
    ManuallyDrop::new(session).as_ptr().cast()
}

/// Returns the slot for keys in OpenSSL's connections: one per program, as the next in contexts.
fn offered() -> Result<Index<Ssl, Offered>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Offered>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let new = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| new))
}

fn taken() -> Result<Index<SslContext, Taken>, ErrorStack> {
    static INDEX: OnceLock<Index<SslContext, Taken>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let new = SslContext::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| new))
}
