//! OpenSSL functions without a safe wrapper, and the callbacks that OpenSSL calls through them.
//!
//! No panic crosses into C: every callback goes through [`guard`], which then returns the refusal.
//! OpenSSL calls back on the thread that called it, with the connection of that call.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::time::Duration;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtxRef;
use openssl::error::ErrorStack;
use openssl::pkey::{PKeyRef, Private};
use openssl::ssl::{SslContextBuilder, SslRef, SslSession, SslSessionRef};
use openssl::stack::StackRef;
use openssl::x509::verify::X509CheckFlags;
use openssl::x509::{X509, X509Ref};
use openssl_sys::{
    EVP_CIPHER_CTX, EVP_MAC_CTX, EVP_MAC_init, EVP_PKEY, OSSL_PARAM, OSSL_PARAM_construct_end, SSL,
    SSL_CTX, SSL_SESSION, SSL_client_hello_get0_ext, SSL_ctrl, X509 as RawX509, X509_check_host,
    stack_st_X509,
};
use zeroize::Zeroizing;

/// Length of a ticket's first field, `TLSEXT_KEYNAME_LENGTH` of openssl/tls1.h.
pub(crate) const KEY_NAME: usize = 16;

/// Length of a ticket's second field: the IV of AES in CBC mode.
pub(crate) const IV: usize = 16;

/// `SSL_CTRL_GET_NEGOTIATED_GROUP` of openssl/ssl.h.
const GET_NEGOTIATED_GROUP: c_int = 134;

type TicketKeyCallback = unsafe extern "C" fn(
    *mut SSL,
    *mut c_uchar,
    *mut c_uchar,
    *mut EVP_CIPHER_CTX,
    *mut EVP_MAC_CTX,
    c_int,
) -> c_int;

type ConnectionCallback = unsafe extern "C" fn(*mut SSL, *mut c_void) -> c_int;

type TicketOpenedCallback = unsafe extern "C" fn(
    *mut SSL,
    *mut SSL_SESSION,
    *const c_uchar,
    usize,
    c_int,
    *mut c_void,
) -> c_int;

// From openssl/ssl.h and openssl/tls1.h; no Rust binding has them.
unsafe extern "C" {
    fn SSL_CTX_set_tlsext_ticket_key_evp_cb(
        ctx: *mut SSL_CTX,
        callback: Option<TicketKeyCallback>,
    ) -> c_int;
    fn SSL_CTX_set_session_ticket_cb(
        ctx: *mut SSL_CTX,
        generate: Option<ConnectionCallback>,
        opened: Option<TicketOpenedCallback>,
        arg: *mut c_void,
    ) -> c_int;
    fn SSL_CTX_set_allow_early_data_cb(
        ctx: *mut SSL_CTX,
        callback: Option<ConnectionCallback>,
        arg: *mut c_void,
    );
    fn SSL_CTX_set_recv_max_early_data(ctx: *mut SSL_CTX, bytes: u32) -> c_int;
    fn SSL_CTX_set_timeout(ctx: *mut SSL_CTX, seconds: c_long) -> c_long;
    fn SSL_CTX_use_cert_and_key(
        ctx: *mut SSL_CTX,
        certificate: *mut RawX509,
        key: *mut EVP_PKEY,
        chain: *mut stack_st_X509,
        replace: c_int,
    ) -> c_int;
    fn SSL_set_session_id_context(ssl: *mut SSL, context: *const c_uchar, length: c_uint) -> c_int;
    fn SSL_SESSION_set1_ticket_appdata(
        session: *mut SSL_SESSION,
        data: *const c_void,
        length: usize,
    ) -> c_int;
    fn SSL_SESSION_get0_ticket_appdata(
        session: *mut SSL_SESSION,
        data: *mut *mut c_void,
        length: *mut usize,
    ) -> c_int;
    fn SSL_SESSION_get0_alpn_selected(
        session: *const SSL_SESSION,
        protocol: *mut *const c_uchar,
        length: *mut usize,
    );
    fn SSL_SESSION_dup(session: *const SSL_SESSION) -> *mut SSL_SESSION;
    fn SSL_SESSION_get0_peer(session: *mut SSL_SESSION) -> *mut RawX509;
    fn SSL_SESSION_set1_hostname(session: *mut SSL_SESSION, name: *const c_char) -> c_int;
    fn SSL_SESSION_get_ticket_lifetime_hint(session: *const SSL_SESSION) -> c_ulong;
    fn SSL_get_early_data_status(ssl: *const SSL) -> c_int;
    fn SSL_group_to_name(ssl: *mut SSL, id: c_int) -> *const c_char;
    fn SSL_new_session_ticket(ssl: *mut SSL) -> c_int;
}

/// A server's decisions about tickets; OpenSSL calls every function during a handshake.
pub(crate) trait TicketHooks: 'static {
    /// Returns the start and the keys of a new ticket; `None` creates no ticket.
    fn seal(ssl: &SslRef) -> Option<Seal>;

    /// Returns the keys of a ticket with this start; `None` if unknown, which causes a full
    /// handshake.
    ///
    /// Keys say nothing about the ticket's authenticity, which OpenSSL checks next.
    fn open(ssl: &SslRef, key_name: &[u8; KEY_NAME], iv: &[u8; IV]) -> Option<TicketKeys>;

    /// Returns the server's own data for a new ticket.
    fn data(ssl: &SslRef) -> Vec<u8>;

    /// Returns true if the session in a ticket, which the keys have decrypted, may be resumed at
    /// all.
    fn takes(ssl: &SslRef, session: &SslSessionRef) -> bool;

    /// Returns true if early data is accepted; called once, after all other checks.
    fn allows_early_data(ssl: &SslRef) -> bool;
}

/// The public start of a ticket, and the keys for the rest.
pub(crate) struct Seal {
    pub(crate) key_name: [u8; KEY_NAME],
    pub(crate) iv: [u8; IV],
    pub(crate) keys: TicketKeys,
}

/// The keys of AES-256-CBC and HMAC-SHA-256, encrypt-then-MAC as in OpenSSL (RFC 5077 section 4).
pub(crate) struct TicketKeys {
    pub(crate) cipher: Zeroizing<[u8; 32]>,
    pub(crate) mac: Zeroizing<[u8; 32]>,
}

/// Lets `H` decide about tickets and early data of a server's connections.
pub(crate) fn set_ticket_hooks<H: TicketHooks>(
    ctx: &mut SslContextBuilder,
) -> Result<(), ErrorStack> {
    let ctx = ctx.as_ptr();
    let (made, opened): (ConnectionCallback, TicketOpenedCallback) =
        (ticket_data::<H>, ticket_opened::<H>);
    // SAFETY: the context is valid while its builder is, and the callbacks have the signatures that
    // the headers require. They are functions of the program, so they outlive every context; no
    // argument is kept for them.
    let set = unsafe {
        SSL_CTX_set_allow_early_data_cb(ctx, Some(allow_early_data::<H>), ptr::null_mut());
        SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, Some(ticket_key::<H>)) == 1
            && SSL_CTX_set_session_ticket_cb(ctx, Some(made), Some(opened), ptr::null_mut()) == 1
    };
    if set { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Return values of the ticket key callback, from SSL_CTX_set_tlsext_ticket_key_evp_cb(3).
mod answer {
    use super::c_int;

    /// Sealing: create no ticket. Opening: the key is unknown.
    pub(super) const NO: c_int = 0;
    /// Sealing: both contexts are ready.
    pub(super) const SEAL: c_int = 1;
    /// Opening: both contexts are ready, and the client gets a new ticket. With 1 it would get
    /// none, and a client that uses each ticket once would run out.
    pub(super) const OPEN_AND_RENEW: c_int = 2;
}

unsafe extern "C" fn ticket_key<H: TicketHooks>(
    ssl: *mut SSL,
    key_name: *mut c_uchar,
    iv: *mut c_uchar,
    cipher: *mut EVP_CIPHER_CTX,
    mac: *mut EVP_MAC_CTX,
    sealing: c_int,
) -> c_int {
    guard(answer::NO, || {
        // SAFETY: OpenSSL passes its own valid objects, which nothing else uses during the call;
        // the references end with it.
        let (ssl, cipher) = unsafe { (SslRef::from_ptr(ssl), CipherCtxRef::from_ptr_mut(cipher)) };
        if sealing == 1 {
            let Some(seal) = H::seal(ssl) else { return answer::NO };
            // SAFETY: when sealing these are OpenSSL's buffers of 16 bytes each, to be filled here
            // (EVP_MAX_IV_LENGTH is 16); an array of bytes needs no alignment.
            unsafe {
                key_name.cast::<[u8; KEY_NAME]>().write(seal.key_name);
                iv.cast::<[u8; IV]>().write(seal.iv);
            }
            let (key, iv) = (Some(&seal.keys.cipher[..]), Some(&seal.iv[..]));
            let ready = cipher.encrypt_init(Some(Cipher::aes_256_cbc()), key, iv).is_ok();
            // SAFETY: OpenSSL's context for the HMAC of this ticket.
            let ready = ready && unsafe { init_mac(mac, &seal.keys.mac) };
            return if ready { answer::SEAL } else { answer::NO };
        }
        // SAFETY: when opening they point into the ticket, which is only read, and which OpenSSL
        // has checked to have at least 32 bytes; an array of bytes needs no alignment.
        let (key_name, iv) =
            unsafe { (key_name.cast::<[u8; KEY_NAME]>().read(), iv.cast::<[u8; IV]>().read()) };
        let Some(keys) = H::open(ssl, &key_name, &iv) else { return answer::NO };
        let (key, iv) = (Some(&keys.cipher[..]), Some(&iv[..]));
        let ready = cipher.decrypt_init(Some(Cipher::aes_256_cbc()), key, iv).is_ok();
        // SAFETY: OpenSSL's context for the HMAC of this ticket.
        let ready = ready && unsafe { init_mac(mac, &keys.mac) };
        if ready { answer::OPEN_AND_RENEW } else { answer::NO }
    })
}

/// `OSSL_PARAM_UTF8_STRING` of openssl/core.h.
const UTF8_STRING: c_uint = 4;

/// Prepares the HMAC context of a ticket.
///
/// # Safety
/// `mac` is a valid HMAC context that nothing else uses during the call.
unsafe fn init_mac(mac: *mut EVP_MAC_CTX, key: &[u8; 32]) -> bool {
    const DIGEST: &CStr = c"SHA256";
    let digest = OSSL_PARAM {
        key: c"digest".as_ptr(), // OSSL_MAC_PARAM_DIGEST
        data_type: UTF8_STRING,
        data: DIGEST.as_ptr().cast_mut().cast(),
        data_size: DIGEST.to_bytes().len(),
        return_size: 0,
    };
    // SAFETY: returns a value without pointers.
    let params = [digest, unsafe { OSSL_PARAM_construct_end() }];
    // SAFETY: the context is valid by contract; key and parameters outlive the call, which copies
    // them, and parameters to be set are only read.
    unsafe { EVP_MAC_init(mac, key.as_ptr(), key.len(), params.as_ptr()) == 1 }
}

unsafe extern "C" fn ticket_data<H: TicketHooks>(ssl: *mut SSL, _: *mut c_void) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL's valid connection, which nothing else uses during the call.
        let ssl = unsafe { SslRef::from_ptr(ssl) };
        let data = H::data(ssl);
        let Some(session) = ssl.session() else { return 0 };
        // SAFETY: the session is the one whose ticket is being made, not shared with another
        // connection (OpenSSL copies it first where it could be); the call copies the data.
        unsafe {
            SSL_SESSION_set1_ticket_appdata(session.as_ptr(), data.as_ptr().cast(), data.len())
        }
    })
}

/// Arguments and return values of the callback for opened tickets, `SSL_TICKET_*` of openssl/ssl.h.
mod opened {
    use super::c_int;

    /// The ticket held a session; with `SUCCESS_RENEW` the client gets a new one.
    pub(super) const SUCCESS: [c_int; 2] = [5, 6];
    /// A full handshake and new tickets; also the right answer if the ticket held no session.
    pub(super) const IGNORE_AND_RENEW: c_int = 2;
    /// The session is resumed, and the client gets a new ticket.
    pub(super) const USE_AND_RENEW: c_int = 4;
}

unsafe extern "C" fn ticket_opened<H: TicketHooks>(
    ssl: *mut SSL,
    session: *mut SSL_SESSION,
    _: *const c_uchar,
    _: usize,
    status: c_int,
    _: *mut c_void,
) -> c_int {
    guard(opened::IGNORE_AND_RENEW, || {
        if !opened::SUCCESS.contains(&status) || session.is_null() {
            return opened::IGNORE_AND_RENEW;
        }
        // SAFETY: OpenSSL's valid connection, and the session that it has just read from the ticket
        // and nothing else knows; the references end with the call.
        let (ssl, session) = unsafe { (SslRef::from_ptr(ssl), SslSessionRef::from_ptr(session)) };
        if H::takes(ssl, session) { opened::USE_AND_RENEW } else { opened::IGNORE_AND_RENEW }
    })
}

unsafe extern "C" fn allow_early_data<H: TicketHooks>(ssl: *mut SSL, _: *mut c_void) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL's valid connection, which nothing else uses during the call.
        let ssl = unsafe { SslRef::from_ptr(ssl) };
        c_int::from(H::allows_early_data(ssl))
    })
}

/// Returns the result of `body`, or `refusal` if it panics: a panic that reached C would be
/// undefined behaviour.
///
/// The program's hook still reports the panic. It leaves nothing half changed, since callbacks set
/// whole values.
pub(crate) fn guard<T>(refusal: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(refusal)
}

/// Returns the data that the server put into the ticket being resumed; empty if it put none.
pub(crate) fn ticket_data_of(session: &SslSessionRef) -> &[u8] {
    let (mut data, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the call only reads the session and writes the two variables, which outlive it.
    unsafe { SSL_SESSION_get0_ticket_appdata(session.as_ptr(), &raw mut data, &raw mut length) };
    if data.is_null() {
        return &[];
    }
    // SAFETY: OpenSSL's own copy of that many bytes, which lives and does not change while the
    // session is borrowed: only `ticket_data` sets it, for sessions that nothing else has.
    unsafe { slice::from_raw_parts(data.cast::<u8>(), length) }
}

/// Returns an extension of the ClientHello, as received; only inside the ClientHello callback.
pub(crate) fn hello_extension(ssl: &SslRef, number: u16) -> Option<&[u8]> {
    let (mut content, mut length) = (ptr::null(), 0);
    // SAFETY: the call only reads the connection and writes the two variables, which outlive it.
    // Outside the callback it finds nothing.
    let found = unsafe {
        SSL_client_hello_get0_ext(ssl.as_ptr(), number.into(), &raw mut content, &raw mut length)
    };
    if found != 1 || content.is_null() {
        return None;
    }
    // SAFETY: the bytes lie in the handshake buffer, which lives through the callback and does not
    // change while the connection is borrowed.
    Some(unsafe { slice::from_raw_parts(content, length) })
}

/// Restricts this connection's sessions to `context` (SSL_set_session_id_context(3)).
pub(crate) fn set_session_id_context(ssl: &mut SslRef, context: &[u8]) -> Result<(), ErrorStack> {
    let length = c_uint::try_from(context.len()).unwrap_or(c_uint::MAX);
    // SAFETY: the call copies that many bytes, which outlive it; it refuses more than 32
    // (SSL_MAX_SID_CTX_LENGTH).
    let set = unsafe { SSL_set_session_id_context(ssl.as_ptr(), context.as_ptr(), length) };
    if set == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Adds a certificate with its chain and key; one for each kind of key.
pub(crate) fn add_certificate(
    ctx: &mut SslContextBuilder,
    certificate: &X509Ref,
    key: &PKeyRef<Private>,
    chain: &StackRef<X509>,
) -> Result<(), ErrorStack> {
    let (certificate, key) = (certificate.as_ptr(), key.as_ptr());
    // SAFETY: all are valid during the call, which takes its own references.
    let added =
        unsafe { SSL_CTX_use_cert_and_key(ctx.as_ptr(), certificate, key, chain.as_ptr(), 0) };
    if added == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Limits the early data read on one connection, or skipped if refused.
pub(crate) fn set_early_data_limit(
    ctx: &mut SslContextBuilder,
    bytes: u32,
) -> Result<(), ErrorStack> {
    // SAFETY: the context is valid while its builder is; the call sets a number.
    let set = unsafe { SSL_CTX_set_recv_max_early_data(ctx.as_ptr(), bytes) };
    if set == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Sets the lifetime of the context's sessions.
pub(crate) fn set_session_life(ctx: &mut SslContextBuilder, life: Duration) {
    let seconds = c_long::try_from(life.as_secs()).unwrap_or(c_long::MAX);
    // SAFETY: the context is valid while its builder is; the call sets a number.
    unsafe { SSL_CTX_set_timeout(ctx.as_ptr(), seconds) };
}

/// Offers `session` to the server.
pub(crate) fn set_session(ssl: &mut SslRef, session: &SslSessionRef) -> Result<(), ErrorStack> {
    // SAFETY: the wrapper requires a session of the same context, for semantic reasons; OpenSSL
    // itself accepts any. `ClientContext` offers only sessions from a context with the same trust.
    unsafe { ssl.set_session(session) }
}

/// Returns a copy of a session, or `None` if memory is short.
pub(crate) fn copy_session(session: &SslSessionRef) -> Option<SslSession> {
    // SAFETY: the call only reads the session, and its result is the caller's.
    unsafe {
        let copy = SSL_SESSION_dup(session.as_ptr());
        (!copy.is_null()).then(|| SslSession::from_ptr(copy))
    }
}

/// Returns the application protocol of a session.
pub(crate) fn session_alpn(session: &SslSessionRef) -> Option<&[u8]> {
    let (mut protocol, mut length) = (ptr::null(), 0);
    // SAFETY: the call only reads the session and writes the two variables, which outlive it.
    unsafe { SSL_SESSION_get0_alpn_selected(session.as_ptr(), &raw mut protocol, &raw mut length) };
    // SAFETY: OpenSSL's own bytes, which live and do not change while the session is borrowed.
    (!protocol.is_null()).then(|| unsafe { slice::from_raw_parts(protocol, length) })
}

/// Returns the certificate that the server showed in the full handshake behind a session.
pub(crate) fn certificate_of(session: &SslSessionRef) -> Option<&X509Ref> {
    // SAFETY: the certificate belongs to the session, which outlives the reference.
    unsafe {
        let certificate = SSL_SESSION_get0_peer(session.as_ptr());
        (!certificate.is_null()).then(|| X509Ref::from_ptr(certificate))
    }
}

/// Sets the name that early data of a session is for. Returns false if memory is short.
///
/// OpenSSL keeps that of the full handshake when the session is renewed under another name.
pub(crate) fn set_session_name(session: &SslSessionRef, name: &CStr) -> bool {
    // SAFETY: OpenSSL copies the name; the session is that of a connection in its callback, and no
    // other thread has it.
    unsafe { SSL_SESSION_set1_hostname(session.as_ptr(), name.as_ptr()) == 1 }
}

/// Returns true if a certificate is for a host, by the rules for verifying it in a handshake.
pub(crate) fn is_for_host(certificate: &X509Ref, host: &str) -> bool {
    let flags = X509CheckFlags::NO_PARTIAL_WILDCARDS.bits();
    // SAFETY: the pointer and the length are those of `host`; nothing keeps them.
    unsafe {
        let (name, length) = (host.as_ptr().cast(), host.len());
        X509_check_host(certificate.as_ptr(), name, length, flags, ptr::null_mut()) == 1
    }
}

/// Returns the server's lifetime for a session's ticket; zero if it gave none (TLS 1.2).
pub(crate) fn ticket_lifetime(session: &SslSessionRef) -> Duration {
    // SAFETY: the call only reads a field of the session.
    Duration::from_secs(unsafe { SSL_SESSION_get_ticket_lifetime_hint(session.as_ptr()) })
}

/// Returns `SSL_EARLY_DATA_*` of openssl/ssl.h.
pub(crate) fn early_data_status(ssl: &SslRef) -> i32 {
    // SAFETY: the call only reads a field of the connection.
    unsafe { SSL_get_early_data_status(ssl.as_ptr()) }
}

/// Makes a server send one more ticket, with the next handshake step or the next bytes, once the
/// handshake is done (SSL_new_session_ticket(3)). Returns false if it will not.
pub(crate) fn add_ticket(ssl: &SslRef) -> bool {
    // SAFETY: the call changes fields of a valid connection that nothing else uses meanwhile.
    unsafe { SSL_new_session_ticket(ssl.as_ptr()) == 1 }
}

/// Returns the key exchange group; call it only once there is a session.
pub(crate) fn group_name(ssl: &SslRef) -> Option<String> {
    ssl.session()?;
    // From OpenSSL 3.2 on, SSL_get0_group_name does this in one call.
    // SAFETY: with a session, the call only reads the connection.
    let id = unsafe { SSL_ctrl(ssl.as_ptr(), GET_NEGOTIATED_GROUP, 0, ptr::null_mut()) };
    // SAFETY: the call only reads the connection and its context.
    let name = unsafe { SSL_group_to_name(ssl.as_ptr(), c_int::try_from(id).ok()?) };
    if name.is_null() {
        return None;
    }
    // SAFETY: a constant string of OpenSSL's, or of the context, which the connection keeps alive.
    unsafe { CStr::from_ptr(name) }.to_str().ok().map(str::to_owned)
}

/// Prepares a key update that also asks the peer for one; the next handshake step sends it.
#[cfg(test)]
pub(crate) fn prepare_key_update(ssl: &SslRef) -> bool {
    const REQUESTED: c_int = 1; // SSL_KEY_UPDATE_REQUESTED
    unsafe extern "C" {
        fn SSL_key_update(ssl: *mut SSL, kind: c_int) -> c_int;
    }
    // SAFETY: the call changes fields of a valid connection that nothing else uses meanwhile.
    unsafe { SSL_key_update(ssl.as_ptr(), REQUESTED) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_refusal() {
        assert_eq!(guard(0, || 1), 1);
        assert_eq!(
            guard(0, || -> i32 { panic!("a callback failed; this message is expected") }),
            0
        );
    }
}
