//! Functions of the one OpenSSL 3 in the process that is served; calls to another copy pass
//! unchanged.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};

use super::once::Published;

/// Any object of OpenSSL; only ever pointed at.
pub(super) type Object = c_void;

pub(super) type NewSession = unsafe extern "C" fn(*mut Object, *mut Object) -> c_int;
pub(super) type Info = unsafe extern "C" fn(*const Object, c_int, c_int);
pub(super) type Verify = unsafe extern "C" fn(c_int, *mut Object) -> c_int;
pub(super) type Destroy = unsafe extern "C" fn(*mut Object);
pub(super) type Dup = unsafe extern "C" fn(
    *mut Object,
    *const Object,
    *mut *mut c_void,
    c_int,
    c_long,
    *mut c_void,
) -> c_int;
pub(super) type Free =
    unsafe extern "C" fn(*mut Object, *mut c_void, *mut Object, c_int, c_long, *mut c_void);

macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Api {
            /// Loads all functions from the library of `handle` and its dependencies.
            ///
            /// # Safety
            /// The handle must be open.
            unsafe fn load(handle: *mut c_void) -> Option<Self> {
                Some(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the caller's duty; the name is NUL-terminated.
                    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                    if found.is_null() {
                        return None;
                    }
                    // SAFETY: OpenSSL 3's function of this name has this signature.
                    unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $result)?,
                        >(found)
                    }
                },)* })
            }
        }
    };
}

api! {
    OpenSSL_version_num: fn() -> c_ulong;
    CRYPTO_get_ex_new_index:
        fn(c_int, c_long, *mut c_void, *mut c_void, Option<Dup>, Option<Free>) -> c_int;
    ERR_new: fn();
    ERR_set_mark: fn() -> c_int;
    ERR_pop_to_mark: fn() -> c_int;
    OPENSSL_sk_new_null: fn() -> *mut Object;
    OPENSSL_sk_num: fn(*const Object) -> c_int;
    OPENSSL_sk_value: fn(*const Object, c_int) -> *mut Object;
    OPENSSL_sk_push: fn(*mut Object, *const Object) -> c_int;
    OPENSSL_sk_pop_free: fn(*mut Object, Destroy);

    BIO_new: fn(*const Object) -> *mut Object;
    BIO_s_null: fn() -> *const Object;
    BIO_up_ref: fn(*mut Object) -> c_int;

    SSL_get_SSL_CTX: fn(*const Object) -> *mut Object;
    SSL_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    SSL_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    SSL_ctrl: fn(*mut Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_ct_is_enabled: fn(*const Object) -> c_int;
    SSL_get0_dane: fn(*mut Object) -> *mut Object;
    SSL_get0_param: fn(*mut Object) -> *mut Object;
    SSL_get_certificate: fn(*const Object) -> *mut Object;
    SSL_get_ex_data_X509_STORE_CTX_idx: fn() -> c_int;
    SSL_get_info_callback: fn(*const Object) -> Option<Info>;
    SSL_set_info_callback: fn(*mut Object, Option<Info>);
    SSL_get_options: fn(*const Object) -> u64;
    SSL_get_peer_cert_chain: fn(*const Object) -> *mut Object;
    SSL_get_security_level: fn(*const Object) -> c_int;
    SSL_get_servername: fn(*const Object, c_int) -> *const c_char;
    SSL_get_session: fn(*const Object) -> *mut Object;
    SSL_set_session: fn(*mut Object, *mut Object) -> c_int;
    SSL_set_session_id_context: fn(*mut Object, *const c_uchar, c_uint) -> c_int;
    SSL_get_verify_callback: fn(*const Object) -> Option<Verify>;
    SSL_get_verify_mode: fn(*const Object) -> c_int;
    SSL_get_verify_result: fn(*const Object) -> c_long;
    SSL_set_verify_result: fn(*mut Object, c_long);
    SSL_get_wbio: fn(*const Object) -> *mut Object;
    SSL_set0_wbio: fn(*mut Object, *mut Object);
    SSL_set_shutdown: fn(*mut Object, c_int);
    SSL_in_before: fn(*const Object) -> c_int;
    SSL_is_server: fn(*const Object) -> c_int;
    SSL_session_reused: fn(*const Object) -> c_int;
    SSL_version: fn(*const Object) -> c_int;

    SSL_CTX_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    SSL_CTX_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    SSL_CTX_ctrl: fn(*mut Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_get_cert_store: fn(*const Object) -> *mut Object;
    SSL_CTX_get_client_cert_cb: fn(*mut Object) -> *mut c_void;
    SSL_CTX_get_info_callback: fn(*mut Object) -> Option<Info>;
    SSL_CTX_sess_get_new_cb: fn(*mut Object) -> Option<NewSession>;
    SSL_CTX_sess_set_new_cb: fn(*mut Object, Option<NewSession>);

    SSL_SESSION_free: fn(*mut Object);
    SSL_SESSION_get0_hostname: fn(*const Object) -> *const c_char;
    SSL_SESSION_get0_peer: fn(*mut Object) -> *mut Object;
    SSL_SESSION_get_ex_data: fn(*const Object, c_int) -> *mut c_void;
    SSL_SESSION_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    SSL_SESSION_get_protocol_version: fn(*const Object) -> c_int;
    SSL_SESSION_get_time: fn(*const Object) -> c_long;
    SSL_SESSION_set_time: fn(*mut Object, c_long) -> c_long;
    SSL_SESSION_get_ticket_lifetime_hint: fn(*const Object) -> c_ulong;
    SSL_SESSION_is_resumable: fn(*const Object) -> c_int;
    SSL_SESSION_set1_id_context: fn(*mut Object, *const c_uchar, c_uint) -> c_int;
    SSL_SESSION_set_max_early_data: fn(*mut Object, u32) -> c_int;
    d2i_SSL_SESSION: fn(*mut *mut Object, *mut *const c_uchar, c_long) -> *mut Object;
    i2d_SSL_SESSION: fn(*const Object, *mut *mut c_uchar) -> c_int;

    X509_free: fn(*mut Object);
    X509_check_host: fn(*mut Object, *const c_char, usize, c_uint, *mut *mut c_char) -> c_int;
    d2i_X509: fn(*mut *mut Object, *mut *const c_uchar, c_long) -> *mut Object;
    i2d_X509: fn(*const Object, *mut *mut c_uchar) -> c_int;
    X509_STORE_get_verify_cb: fn(*const Object) -> Option<Verify>;
    X509_STORE_get0_objects: fn(*const Object) -> *mut Object;
    X509_STORE_lock: fn(*mut Object) -> c_int;
    X509_STORE_unlock: fn(*mut Object) -> c_int;
    X509_STORE_CTX_new: fn() -> *mut Object;
    X509_STORE_CTX_free: fn(*mut Object);
    X509_STORE_CTX_init: fn(*mut Object, *mut Object, *mut Object, *mut Object) -> c_int;
    X509_STORE_CTX_get_error: fn(*const Object) -> c_int;
    X509_STORE_CTX_get0_param: fn(*mut Object) -> *mut Object;
    X509_STORE_CTX_set0_dane: fn(*mut Object, *mut Object);
    X509_STORE_CTX_set_default: fn(*mut Object, *const c_char) -> c_int;
    X509_STORE_CTX_set_ex_data: fn(*mut Object, c_int, *mut c_void) -> c_int;
    X509_STORE_CTX_set_flags: fn(*mut Object, c_ulong);
    X509_STORE_CTX_set_verify_cb: fn(*mut Object, Option<Verify>);
    X509_VERIFY_PARAM_set1: fn(*mut Object, *const Object) -> c_int;
    X509_VERIFY_PARAM_set_auth_level: fn(*mut Object, c_int);
    X509_verify_cert: fn(*mut Object) -> c_int;
}

/// ERR_set_error, the only variadic function.
type SetError = unsafe extern "C" fn(c_int, c_int, *const c_char, ...);

/// The loaded OpenSSL 3, with its handle, which stays open because the library keeps our callbacks.
struct Loaded {
    handle: usize,
    /// The functions; `None` if it is another version, or lacks something.
    api: Option<Api>,
}

static LOADED: Published<Loaded> = Published::nothing();

/// Returns the functions if OpenSSL 3 is loaded. If it is not, it may be later.
pub(super) fn api() -> Option<&'static Api> {
    loaded()?.api.as_ref()
}

fn loaded() -> Option<&'static Loaded> {
    if let Some(loaded) = LOADED.get() {
        return Some(loaded);
    }
    let handle = open(c"libssl.so.3")?;
    Some(LOADED.get_or(|| {
        Loaded {
            handle: handle as usize,
            // SAFETY: just opened, and never closed. The file name proves little, so its version is
            // checked.
            api: unsafe { Api::load(handle) }
                .filter(|api| unsafe { (api.OpenSSL_version_num)() } >> 28 == 3),
        }
    }))
}

/// Adds an error to OpenSSL's queue.
pub(super) fn raise(api: &Api, library: c_int, reason: c_int) {
    let function = find(c"ERR_set_error");
    if !function.is_null() {
        // SAFETY: OpenSSL 3's function of this name has this signature; without a format it reads
        // no further arguments.
        unsafe {
            (api.ERR_new)();
            std::mem::transmute::<*mut c_void, SetError>(function)(
                library,
                reason,
                std::ptr::null(),
            );
        }
    }
}

/// Opens a library that the process has loaded already; loads nothing.
fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// Returns true if `function` is that of the OpenSSL that is served.
pub(super) fn is_served(name: &CStr, function: *mut c_void) -> bool {
    api().is_some() && find(name) == function
}

/// Returns the function of this name in the loaded OpenSSL 3, else in an older version; null if
/// there is none.
pub(super) fn find(name: &CStr) -> *mut c_void {
    let handle =
        loaded().map(|loaded| loaded.handle as *mut c_void).or_else(|| open(c"libssl.so.1.1"));
    // SAFETY: the handles are never closed.
    handle.map_or(std::ptr::null_mut(), |handle| unsafe { libc::dlsym(handle, name.as_ptr()) })
}
