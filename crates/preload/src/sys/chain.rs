//! A session with the chain of its server, as exchanged with the agent, and its verification by a
//! connection.
//!
//! The format is the DER of the session, which includes the server's certificate, followed by that
//! of every other certificate that the server sent.

use std::ffi::{c_int, c_long, c_uchar, c_ulong};
use std::ptr;

use super::api::{Api, Object, api};

// From openssl/ssl.h.
const GET_VERIFY_STORE: c_int = 137;
const CERT_FLAGS: c_int = 99;
/// SSL_CERT_FLAG_SUITEB_128_LOS, which are also flags of a verification.
const SUITE_B: c_long = 0x30000;

/// Largest session with its chain in bytes; the agent's limit.
const BYTES_MAX: usize = 16 * 1024;

/// Verification errors for a missing root (openssl/x509_vfy.h): UNABLE_TO_GET_ISSUER_CERT,
/// DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_GET_ISSUER_CERT_LOCALLY and
/// UNABLE_TO_VERIFY_LEAF_SIGNATURE.
const ROOT_IS_MISSING: [c_int; 5] = [2, 18, 19, 20, 21];

/// A session that came from the agent.
pub(super) struct Offered<'a> {
    pub(super) session: Session<'a>,
    pub(super) chain: Chain<'a>,
    /// The chain as received.
    pub(super) encoded: &'a [u8],
}

/// One reference to a session.
pub(super) struct Session<'a>(&'a Api, *mut Object);

impl Session<'_> {
    pub(super) fn get(&self) -> *mut Object {
        self.1
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns it.
        unsafe { (self.0.SSL_SESSION_free)(self.1) };
    }
}

/// A stack of certificates that owns them.
pub(super) struct Chain<'a>(&'a Api, *mut Object);

impl Chain<'_> {
    pub(super) fn get(&self) -> *mut Object {
        self.1
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns it, and the certificates in it.
        unsafe { (self.0.OPENSSL_sk_pop_free)(self.1, self.0.X509_free) };
    }
}

impl<'a> Offered<'a> {
    /// Parses the agent's bytes, which may be anything.
    pub(super) fn read(api: &'a Api, bytes: &'a [u8]) -> Option<Self> {
        let (session, encoded) = decoded(api.d2i_SSL_SESSION, bytes)?;
        let session = Session(api, session);
        Some(Self { session, chain: Chain::read(api, encoded)?, encoded })
    }
}

impl<'a> Chain<'a> {
    /// Parses certificates, one behind the other.
    pub(super) fn read(api: &'a Api, encoded: &[u8]) -> Option<Self> {
        // SAFETY: it has no arguments.
        let chain = unsafe { (api.OPENSSL_sk_new_null)() };
        if chain.is_null() {
            return None;
        }
        let chain = Chain(api, chain);
        let mut rest = encoded;
        while !rest.is_empty() {
            let (certificate, after) = decoded(api.d2i_X509, rest)?;
            // SAFETY: the certificate is ours until the stack has it.
            unsafe {
                if (api.OPENSSL_sk_push)(chain.get(), certificate) <= 0 {
                    (api.X509_free)(certificate);
                    return None;
                }
            }
            rest = after;
        }
        Some(chain)
    }
}

type Decode = unsafe extern "C" fn(*mut *mut Object, *mut *const c_uchar, c_long) -> *mut Object;
type Encode = unsafe extern "C" fn(*const Object, *mut *mut c_uchar) -> c_int;

/// Decodes the object at the beginning of some bytes; returns it with the bytes behind it.
fn decoded(decode: Decode, bytes: &[u8]) -> Option<(*mut Object, &[u8])> {
    let length = c_long::try_from(bytes.len()).ok()?;
    let mut end = bytes.as_ptr();
    // SAFETY: the bytes are valid for their length; a new object is made.
    let object = unsafe { decode(ptr::null_mut(), &raw mut end, length) };
    let read = end.addr().checked_sub(bytes.as_ptr().addr())?;
    (!object.is_null()).then_some((object, bytes.get(read..).unwrap_or_default()))
}

/// Encodes an object.
///
/// # Safety
/// The object must have the type that the function encodes.
unsafe fn encoded(encode: Encode, object: *const Object) -> Option<Vec<u8>> {
    // SAFETY: the first call returns the length, and the second writes as many bytes.
    unsafe {
        let length = usize::try_from(encode(object, ptr::null_mut())).ok()?;
        if length == 0 || length > BYTES_MAX {
            return None;
        }
        let mut der = vec![0; length];
        let mut start = der.as_mut_ptr();
        let written = encode(object, &raw mut start);
        (usize::try_from(written) == Ok(length)).then_some(der)
    }
}

/// Encodes the certificates that the server sent behind its own.
pub(super) fn sent(api: &Api, ssl: *mut Object) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the caller's connection; its chain is only read.
    unsafe {
        let chain = (api.SSL_get_peer_cert_chain)(ssl);
        if chain.is_null() {
            return None;
        }
        for index in 1..(api.OPENSSL_sk_num)(chain) {
            all.extend(encoded(api.i2d_X509, (api.OPENSSL_sk_value)(chain, index))?);
            if all.len() > BYTES_MAX {
                return None;
            }
        }
    }
    Some(all)
}

/// Encodes a session with its chain, as sent to the agent.
pub(super) fn with_chain(api: &Api, session: *mut Object, chain: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the caller's session.
    let mut all = unsafe { encoded(api.i2d_SSL_SESSION, session) }?;
    all.extend_from_slice(chain);
    (all.len() <= BYTES_MAX).then_some(all)
}

/// Judge of a verification.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Judge {
    /// OpenSSL itself, ignoring missing roots.
    AllButRoots,
    /// OpenSSL itself.
    OpenSsl,
    /// OpenSSL and the program's callbacks.
    Program,
}

/// Returns true if the program has callbacks that take part in a verification.
pub(super) fn has_callbacks(api: &Api, ssl: *mut Object) -> bool {
    let store = store(api, ssl);
    // SAFETY: the caller's connection, and its store.
    unsafe {
        (api.SSL_get_verify_callback)(ssl).is_some()
            || (!store.is_null() && (api.X509_STORE_get_verify_cb)(store).is_some())
    }
}

/// Returns true if a connection has no roots yet: curl loads them after the ClientHello has left.
pub(super) fn has_no_roots(api: &Api, ssl: *mut Object) -> bool {
    let store = store(api, ssl);
    if store.is_null() {
        return false;
    }
    // SAFETY: the connection's store, under its lock; its objects are only counted.
    unsafe {
        if (api.X509_STORE_lock)(store) != 1 {
            return false;
        }
        let count = (api.OPENSSL_sk_num)((api.X509_STORE_get0_objects)(store));
        (api.X509_STORE_unlock)(store);
        count <= 0
    }
}

/// Verifies the certificate of a session with its server's chain as the connection would in a
/// handshake (`ssl_verify_cert_chain` of OpenSSL, step by step): with its roots, parameters, host
/// names and DANE records.
pub(super) fn verifies(
    api: &Api,
    ssl: *mut Object,
    session: *mut Object,
    chain: *mut Object,
    judge: Judge,
) -> bool {
    let store = store(api, ssl);
    if store.is_null() {
        return false;
    }
    // SAFETY: the connection, its store, its parameters and the certificates are the caller's, and
    // outlive the check, which is made and freed here.
    unsafe {
        let check = (api.X509_STORE_CTX_new)();
        if check.is_null() {
            return false;
        }
        let good =
            (api.X509_STORE_CTX_init)(check, store, (api.SSL_SESSION_get0_peer)(session), chain)
                == 1
                && is_set(api, ssl, check, judge)
                && (api.X509_verify_cert)(check) == 1
                && (judge == Judge::AllButRoots || (api.X509_STORE_CTX_get_error)(check) == 0);
        (api.X509_STORE_CTX_free)(check);
        good
    }
}

/// Configures a check as the connection does.
///
/// # Safety
/// Both must be objects of these types, and the check must be initialised.
unsafe fn is_set(api: &Api, ssl: *mut Object, check: *mut Object, judge: Judge) -> bool {
    // SAFETY: the caller's duty.
    unsafe {
        let param = (api.X509_STORE_CTX_get0_param)(check);
        (api.X509_VERIFY_PARAM_set_auth_level)(param, (api.SSL_get_security_level)(ssl));
        let suite_b = (api.SSL_ctrl)(ssl, CERT_FLAGS, 0, ptr::null_mut()) & SUITE_B;
        (api.X509_STORE_CTX_set_flags)(check, c_ulong::try_from(suite_b).unwrap_or(0));
        (api.X509_STORE_CTX_set0_dane)(check, (api.SSL_get0_dane)(ssl));
        let index = (api.SSL_get_ex_data_X509_STORE_CTX_idx)();
        let is_set = (api.X509_STORE_CTX_set_ex_data)(check, index, ssl) == 1
            && (api.X509_STORE_CTX_set_default)(check, c"ssl_server".as_ptr()) == 1
            && (api.X509_VERIFY_PARAM_set1)(param, (api.SSL_get0_param)(ssl)) == 1;
        match (judge, (api.SSL_get_verify_callback)(ssl)) {
            (Judge::AllButRoots, _) => {
                (api.X509_STORE_CTX_set_verify_cb)(check, Some(ignore_missing_roots))
            }
            (Judge::OpenSsl, _) => (api.X509_STORE_CTX_set_verify_cb)(check, Some(keep_verdict)),
            (Judge::Program, Some(own)) => (api.X509_STORE_CTX_set_verify_cb)(check, Some(own)),
            // The store's own callback is set already.
            (Judge::Program, None) => {}
        }
        is_set
    }
}

/// Accepts OpenSSL's verdict, as it does without a callback.
unsafe extern "C" fn keep_verdict(good: c_int, _: *mut Object) -> c_int {
    good
}

unsafe extern "C" fn ignore_missing_roots(good: c_int, check: *mut Object) -> c_int {
    // SAFETY: OpenSSL's verification, for which it calls this.
    let error = api().map(|api| unsafe { (api.X509_STORE_CTX_get_error)(check) });
    if error.is_some_and(|error| ROOT_IS_MISSING.contains(&error)) { 1 } else { good }
}

/// Returns the roots of a connection, or null.
fn store(api: &Api, ssl: *mut Object) -> *mut Object {
    let mut own: *mut Object = ptr::null_mut();
    // SAFETY: the caller's connection; the call writes the store, which the connection owns, to the
    // given variable.
    unsafe {
        (api.SSL_ctrl)(ssl, GET_VERIFY_STORE, 0, (&raw mut own).cast());
        if own.is_null() { (api.SSL_CTX_get_cert_store)((api.SSL_get_SSL_CTX)(ssl)) } else { own }
    }
}
