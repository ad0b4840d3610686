//! Who takes a session, who leaves one: the rules at the head of the crate.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::api::{Api, NewSession, Object, api};
use super::guard;
use super::socket::Socket;
use super::state::{BLIND, Settings, Trust, Visit, connection, context, trust_in};
use crate::link;
use crate::query::Query;

// Of openssl/ssl.h, tls1.h and x509_vfy.h.
const VERIFY_PEER: c_int = 1;
const NAME_HOST: c_int = 0;
const GET_MAX_VERSION: c_int = 131;
const GET_STATUS_TYPE: c_int = 127;
const GET_VERIFY_STORE: c_int = 137;
const GET_CACHE_MODE: c_int = 45;
const SET_CACHE_MODE: c_int = 44;
const CACHE_CLIENT: c_long = 0x001;
const NO_INTERNAL_STORE: c_long = 0x200;
const TLS_1_3: c_int = 0x0304;
const VERIFIED: c_long = 0;

/// X509_V_FLAG_TRUSTED_FIRST and X509_V_FLAG_PARTIAL_CHAIN, which Python and curl set: with the system's roots they
/// change nothing. All others ask for more than the check here does, such as CRLs.
const FLAGS: c_ulong = 0x8000 | 0x8_0000;

/// Bytes of a session at most, as the agent has it.
const SESSION_MAX: usize = 16 * 1024;

/// The client's own: what it calls in the middle of a handshake is another's.
fn is_beginning(api: &Api, ssl: *mut Object) -> bool {
    // SAFETY: the caller's connection.
    unsafe { (api.SSL_is_server)(ssl) == 0 && (api.SSL_in_before)(ssl) == 1 && (api.SSL_get_session)(ssl).is_null() }
}

/// Takes a session for a connection that may have one.
pub(super) fn before_handshake(api: &'static Api, ssl: *mut Object) -> Option<()> {
    // The loader gives no library of ours to setuid programs; if one has it all the same, it is off.
    if BLIND.load(Ordering::Acquire) {
        return None;
    }
    let socket = setting(c"HEADSTART_SOCKET")?;
    let connection = connection(api, ssl)?;
    if connection.begun || connection.own_session || !is_beginning(api, ssl) {
        return None;
    }
    connection.begun = true;
    // SAFETY: the caller's connection.
    let ctx = unsafe { (api.SSL_get_SSL_CTX)(ssl) };
    let settings = context(api, ctx)?.settings()?;
    let server = eligible(api, ssl, ctx, &settings)?;
    let query = query(api, ssl, &server, connection.alpn.as_ref().unwrap_or(&settings.alpn));
    let began = now()?;
    let said = link::take(&mut Socket::connect(&socket)?, &query)?;
    watch(api, ctx)?;
    let verified = began.checked_sub(said.age).unwrap_or_default();
    connection.visit = Some(Visit { query, opened: said.opened, verified, began });
    let id = connection.id.as_ref().unwrap_or(&settings.id);
    if said.status == 200 { offer(api, ssl, &said.body, &server, id) } else { None }
}

/// The server's name, if the connection is one that shares.
fn eligible(api: &Api, ssl: *mut Object, ctx: *mut Object, settings: &Settings) -> Option<CString> {
    // SAFETY: the caller's connection and its context; what they give out is theirs, and is copied or only looked
    // at. SSL_ctrl with these commands reads: the store to the place given.
    unsafe {
        let mut own_store: *mut Object = ptr::null_mut();
        (api.SSL_ctrl)(ssl, GET_VERIFY_STORE, 0, (&raw mut own_store).cast());
        let newest = (api.SSL_ctrl)(ssl, GET_MAX_VERSION, 0, ptr::null_mut());
        let param = (api.SSL_get0_param)(ssl);
        let store = (api.SSL_CTX_get_cert_store)(ctx);
        let shares = !settings.left_alone
            && (api.SSL_get_verify_mode)(ssl) & VERIFY_PEER != 0
            && (api.SSL_get_verify_callback)(ssl).is_null()
            && (api.SSL_get_certificate)(ssl).is_null()
            && (api.SSL_CTX_get_client_cert_cb)(ctx).is_null()
            && own_store.is_null()
            && trust_in(api, store) == Some(Trust::System)
            && (newest == 0 || newest >= c_long::from(TLS_1_3))
            && (api.SSL_ctrl)(ssl, GET_STATUS_TYPE, 0, ptr::null_mut()) == -1
            && (api.X509_VERIFY_PARAM_get_flags)(param) & !FLAGS == 0
            && (api.X509_VERIFY_PARAM_get_flags)((api.X509_STORE_get0_param)(store)) & !FLAGS == 0;
        let server = copy((api.SSL_get_servername)(ssl, NAME_HOST))?;
        let host = copy((api.X509_VERIFY_PARAM_get0_host)(param, 0));
        let is_host = host.is_none_or(|host| host.to_bytes().eq_ignore_ascii_case(server.to_bytes()));
        (shares && is_host && !server.is_empty()).then_some(server)
    }
}

fn query(api: &Api, ssl: *mut Object, server: &CStr, alpn: &[u8]) -> Query {
    // SAFETY: the caller's connection.
    let level = unsafe { (api.SSL_get_security_level)(ssl) };
    // SAFETY: it takes nothing.
    let version = unsafe { (api.OpenSSL_version_num)() };
    let text = |name| setting(name).map(|value| value.to_string_lossy().into_owned());
    let (file, dir) = (text(c"SSL_CERT_FILE"), text(c"SSL_CERT_DIR"));
    Query {
        server: server.to_string_lossy().into_owned(),
        alpn: alpn.to_vec(),
        settings: format!("openssl {version:x} level {level} roots {file:?} {dir:?}"),
        context: text(c"HEADSTART_CONTEXT").filter(|context| !context.is_empty()),
    }
}

/// Has OpenSSL tell of new sessions, the program's own callback after ours.
fn watch(api: &Api, ctx: *mut Object) -> Option<()> {
    // SAFETY: the caller's context. The callback is of the signature that is asked for, in a library that stays.
    unsafe {
        let set = (api.SSL_CTX_sess_get_new_cb)(ctx);
        if set.is_none_or(|set| set as usize != new_session as NewSession as usize) {
            context(api, ctx)?.set_original(set)?;
            (api.SSL_CTX_sess_set_new_cb)(ctx, Some(new_session));
        }
        let mode = (api.SSL_CTX_ctrl)(ctx, GET_CACHE_MODE, 0, ptr::null_mut());
        if mode & CACHE_CLIENT == 0 {
            // Not into OpenSSL's own cache, which would hold a session that is another's by then.
            (api.SSL_CTX_ctrl)(ctx, SET_CACHE_MODE, mode | CACHE_CLIENT | NO_INTERNAL_STORE, ptr::null_mut());
        }
    }
    Some(())
}

/// Has a connection offer a session, if it is what it should be: it was in others' hands.
fn offer(api: &Api, ssl: *mut Object, der: &[u8], server: &CStr, id: &[u8]) -> Option<()> {
    let length = c_long::try_from(der.len()).ok()?;
    let mut start = der.as_ptr();
    // SAFETY: the bytes are valid for their length; the session is ours until it is freed, and the connection
    // takes a reference of its own.
    unsafe {
        let session = (api.d2i_SSL_SESSION)(ptr::null_mut(), &raw mut start, length);
        if session.is_null() {
            return None;
        }
        // A client whose id context is another one than its session's breaks the handshake off.
        let fits = is_good(api, session, server)
            && (api.SSL_SESSION_set1_id_context)(session, id.as_ptr(), c_uint::try_from(id.len()).ok().unwrap_or(0)) == 1
            && (api.SSL_set_session)(ssl, session) == 1;
        if fits && (api.SSL_get_verify_result)(ssl) != VERIFIED {
            (api.SSL_set_session)(ssl, ptr::null_mut());
        }
        (api.SSL_SESSION_free)(session);
    }
    Some(())
}

/// Whether a session is of TLS 1.3, and its certificate and its name are those of the server.
///
/// # Safety
/// The session is one.
unsafe fn is_good(api: &Api, session: *mut Object, server: &CStr) -> bool {
    // SAFETY: as the caller says; what the session gives out is the session's.
    unsafe {
        let peer = (api.SSL_SESSION_get0_peer)(session);
        (api.SSL_SESSION_get_protocol_version)(session) == TLS_1_3
            && (api.SSL_SESSION_is_resumable)(session) == 1
            && copy((api.SSL_SESSION_get0_hostname)(session)).is_some_and(|name| *name == *server)
            && !peer.is_null()
            && (api.X509_check_host)(peer, server.as_ptr(), server.count_bytes(), 0, ptr::null_mut()) == 1
    }
}

/// A server has handed out a session. 1 keeps it, as the program's own callback says.
pub(super) unsafe extern "C" fn new_session(ssl: *mut Object, session: *mut Object) -> c_int {
    if guard(|api| leave(api, ssl, session)).is_some() {
        return 0;
    }
    let original = api().and_then(|api| {
        // SAFETY: OpenSSL's connection, which it calls about.
        let ctx = unsafe { (api.SSL_get_SSL_CTX)(ssl) };
        context(api, ctx)?.original()
    });
    // SAFETY: the program's own callback for this context, called as it would have been.
    original.map_or(0, |original| unsafe { original(ssl, session) })
}

/// Leaves the first session of a connection with the agent; nothing if it is the program's.
fn leave(api: &Api, ssl: *mut Object, session: *mut Object) -> Option<()> {
    let socket = setting(c"HEADSTART_SOCKET")?;
    let visit = connection(api, ssl)?.visit.take()?;
    let server = CString::new(visit.query.server.as_bytes()).ok()?;
    // SAFETY: OpenSSL's connection and session, which it calls about.
    let (resumed, lifetime) = unsafe {
        let holds = (api.SSL_get_verify_result)(ssl) == VERIFIED
            && (api.SSL_get_certificate)(ssl).is_null()
            && is_good(api, session, &server);
        if !holds {
            return None;
        }
        ((api.SSL_session_reused)(ssl) == 1, (api.SSL_SESSION_get_ticket_lifetime_hint)(session))
    };
    // A session that was resumed was checked when it was left.
    if !resumed && !verifies(api, ssl, session, &server) {
        return None;
    }
    let verified = if resumed { visit.verified } else { visit.began };
    let age = now()?.saturating_sub(verified);
    let more = format!("&lifetime={lifetime}&age_ms={age}&opened={}", visit.opened);
    let der = encoded(api, session)?;
    link::put(&mut Socket::connect(&socket)?, &visit.query, &more, &der).then_some(())
}

fn encoded(api: &Api, session: *mut Object) -> Option<Vec<u8>> {
    // SAFETY: first the length is asked for, then as many bytes are written.
    unsafe {
        let length = usize::try_from((api.i2d_SSL_SESSION)(session, ptr::null_mut())).ok()?;
        if length == 0 || length > SESSION_MAX {
            return None;
        }
        let mut der = vec![0; length];
        let mut start = der.as_mut_ptr();
        let written = (api.i2d_SSL_SESSION)(session, &raw mut start);
        (usize::try_from(written) == Ok(length)).then_some(der)
    }
}

/// Whether the server's chain is good for its name by the system's roots, whatever the program has looked at.
fn verifies(api: &Api, ssl: *mut Object, session: *mut Object, server: &CStr) -> bool {
    let Some(store) = system_roots(api) else { return false };
    // SAFETY: the certificates are the connection's and the session's, and are only read; the rest is made
    // and freed here.
    unsafe {
        let check = (api.X509_STORE_CTX_new)();
        if check.is_null() {
            return false;
        }
        let (leaf, chain) = ((api.SSL_SESSION_get0_peer)(session), (api.SSL_get_peer_cert_chain)(ssl));
        let good = (api.X509_STORE_CTX_init)(check, store, leaf, chain) == 1
            && (api.X509_STORE_CTX_set_default)(check, c"ssl_server".as_ptr()) == 1
            && (api.X509_VERIFY_PARAM_set1_host)((api.X509_STORE_CTX_get0_param)(check), server.as_ptr(), server.count_bytes()) == 1
            && (api.X509_verify_cert)(check) == 1;
        (api.X509_STORE_CTX_free)(check);
        good
    }
}

/// The system's roots, read once.
fn system_roots(api: &Api) -> Option<*mut Object> {
    static STORE: OnceLock<usize> = OnceLock::new();
    let store = *STORE.get_or_init(|| {
        // SAFETY: made here, and kept for as long as the process runs; OpenSSL's stores are for many threads.
        unsafe {
            let store = (api.X509_STORE_new)();
            if !store.is_null() && (api.X509_STORE_set_default_paths)(store) != 1 {
                (api.X509_STORE_free)(store);
                return 0;
            }
            store as usize
        }
    });
    (store != 0).then_some(store as *mut Object)
}

/// A variable of the environment, which programs with more rights than their user do not have.
pub(super) fn setting(name: &CStr) -> Option<CString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *mut c_char;
    }
    // SAFETY: the name ends with zero, and so does the value, which is copied at once.
    unsafe { copy(secure_getenv(name.as_ptr())) }
}

/// # Safety
/// It is null, or a string that ends with zero.
unsafe fn copy(text: *const c_char) -> Option<CString> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// Milliseconds since boot, with those that the machine slept.
fn now() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for a time.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds * 1000 + u64::try_from(time.tv_nsec).ok()? / 1_000_000)
}
