//! The functions of the one OpenSSL 3 of the process that is served; another one passes unchanged.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

/// Anything of OpenSSL; only ever pointed at.
pub(crate) type Object = c_void;

pub(crate) type NewSession = unsafe extern "C" fn(*mut Object, *mut Object) -> c_int;
pub(crate) type Dup = unsafe extern "C" fn(*mut Object, *const Object, *mut *mut c_void, c_int, c_long, *mut c_void) -> c_int;
pub(crate) type Free = unsafe extern "C" fn(*mut Object, *mut c_void, *mut Object, c_int, c_long, *mut c_void);

macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        pub(crate) struct Api { $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            /// All functions, from the library of `handle` and those that it needs.
            unsafe fn load(handle: *mut c_void) -> Option<Self> {
                Some(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the handle is open, the name ends with zero.
                    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                    if found.is_null() {
                        return None;
                    }
                    // SAFETY: OpenSSL 3's function of this name has this signature.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(found) }
                },)* })
            }
        }
    };
}

api! {
    OpenSSL_version_num: fn() -> c_ulong;
    CRYPTO_get_ex_new_index: fn(c_int, c_long, *mut c_void, *mut c_void, Option<Dup>, Option<Free>) -> c_int;
    ERR_set_mark: fn() -> c_int;
    ERR_pop_to_mark: fn() -> c_int;
    SSL_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    SSL_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    SSL_CTX_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    SSL_CTX_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    X509_STORE_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    X509_STORE_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    SSL_get_SSL_CTX: fn(*const Object) -> *mut Object;
    SSL_CTX_get_cert_store: fn(*const Object) -> *mut Object;
    SSL_is_server: fn(*const Object) -> c_int;
    SSL_in_before: fn(*const Object) -> c_int;
    SSL_get_servername: fn(*const Object, c_int) -> *const c_char;
    SSL_get_verify_mode: fn(*const Object) -> c_int;
    SSL_get_verify_callback: fn(*const Object) -> *mut c_void;
    SSL_get_verify_result: fn(*const Object) -> c_long;
    SSL_get_certificate: fn(*const Object) -> *mut Object;
    SSL_CTX_get_client_cert_cb: fn(*mut Object) -> *mut c_void;
    SSL_get0_param: fn(*mut Object) -> *mut Object;
    X509_VERIFY_PARAM_get_flags: fn(*const Object) -> c_ulong;
    X509_VERIFY_PARAM_get0_host: fn(*mut Object, c_int) -> *const c_char;
    X509_VERIFY_PARAM_set1_host: fn(*mut Object, *const c_char, usize) -> c_int;
    SSL_get_security_level: fn(*const Object) -> c_int;
    SSL_ctrl: fn(*mut Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_ctrl: fn(*mut Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_get_session: fn(*const Object) -> *mut Object;
    SSL_set_session: fn(*mut Object, *mut Object) -> c_int;
    SSL_session_reused: fn(*const Object) -> c_int;
    SSL_get_peer_cert_chain: fn(*const Object) -> *mut Object;
    SSL_CTX_sess_get_new_cb: fn(*mut Object) -> Option<NewSession>;
    SSL_CTX_sess_set_new_cb: fn(*mut Object, Option<NewSession>);
    SSL_SESSION_free: fn(*mut Object);
    SSL_SESSION_get_protocol_version: fn(*const Object) -> c_int;
    SSL_SESSION_get0_hostname: fn(*const Object) -> *const c_char;
    SSL_SESSION_get0_peer: fn(*mut Object) -> *mut Object;
    SSL_SESSION_is_resumable: fn(*const Object) -> c_int;
    SSL_SESSION_get_ticket_lifetime_hint: fn(*const Object) -> c_ulong;
    SSL_SESSION_set1_id_context: fn(*mut Object, *const c_uchar, c_uint) -> c_int;
    d2i_SSL_SESSION: fn(*mut *mut Object, *mut *const c_uchar, c_long) -> *mut Object;
    i2d_SSL_SESSION: fn(*const Object, *mut *mut c_uchar) -> c_int;
    X509_check_host: fn(*mut Object, *const c_char, usize, c_uint, *mut *mut c_char) -> c_int;
    X509_STORE_get0_param: fn(*const Object) -> *mut Object;
    X509_STORE_new: fn() -> *mut Object;
    X509_STORE_free: fn(*mut Object);
    X509_STORE_set_default_paths: fn(*mut Object) -> c_int;
    X509_STORE_CTX_new: fn() -> *mut Object;
    X509_STORE_CTX_free: fn(*mut Object);
    X509_STORE_CTX_init: fn(*mut Object, *mut Object, *mut Object, *mut Object) -> c_int;
    X509_STORE_CTX_set_default: fn(*mut Object, *const c_char) -> c_int;
    X509_STORE_CTX_get0_param: fn(*mut Object) -> *mut Object;
    X509_verify_cert: fn(*mut Object) -> c_int;
}

/// The OpenSSL 3 that is loaded, with its handle, which stays open: it keeps callbacks of ours.
struct Loaded {
    handle: usize,
    api: Api,
}

/// The functions, if an OpenSSL 3 is there. Where none is yet, it may come later.
pub(crate) fn api() -> Option<&'static Api> {
    loaded().map(|loaded| &loaded.api)
}

fn loaded() -> Option<&'static Loaded> {
    static LOADED: OnceLock<Option<Loaded>> = OnceLock::new();
    // SAFETY: it loads nothing, and the name ends with zero.
    let handle = unsafe { libc::dlopen(c"libssl.so.3".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    LOADED
        .get_or_init(|| {
            // SAFETY: just opened.
            let api = unsafe { Api::load(handle) }?;
            // SAFETY: it takes nothing. The name of the file promises little, so it is asked.
            let is_3 = unsafe { (api.OpenSSL_version_num)() } >> 28 == 3;
            is_3.then_some(Loaded { handle: handle as usize, api })
        })
        .as_ref()
}

/// Whether `function` is that of the OpenSSL that is served.
pub(crate) fn is_ours(name: &CStr, function: *mut c_void) -> bool {
    // SAFETY: the handle is never closed.
    loaded().is_some_and(|loaded| unsafe { libc::dlsym(loaded.handle as *mut c_void, name.as_ptr()) } == function)
}
