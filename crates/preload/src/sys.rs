//! All that is unsafe: what programs call, what OpenSSL calls, and what is called of both.
//!
//! No panic gets into C: whatever comes in goes through [`guard`]. `errno` and OpenSSL's queue of errors are as they
//! would have been.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

mod api;
mod forward;
mod rules;
mod socket;
mod state;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use api::{Api, NewSession, Object, api, is_ours};
use state::{Trust, connection, context, note_trust};

/// Defines a function of OpenSSL's name that passes the address that it will return to, as one more argument, to ours.
macro_rules! interpose {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?, $x86:literal, $arm:literal, $ours:path;)*) => { $(
        /// Goes on in our own function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(concat!("mov ", $x86, ", qword ptr [rsp]"), "jmp {ours}", ours = sym $ours);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {ours}", ours = sym $ours);
        }
    )* };
}

interpose! {
    SSL_connect(ssl: *mut Object) -> c_int, "rsi", "x1", connect;
    SSL_do_handshake(ssl: *mut Object) -> c_int, "rsi", "x1", do_handshake;
    SSL_set_session(ssl: *mut Object, session: *mut Object) -> c_int, "rdx", "x2", set_session;
    SSL_CTX_sess_set_new_cb(ctx: *mut Object, callback: Option<NewSession>), "rdx", "x2", set_new_cb;
    SSL_CTX_set_default_verify_paths(ctx: *mut Object) -> c_int, "rsi", "x1", default_verify_paths;
    SSL_CTX_load_verify_file(ctx: *mut Object, file: *const c_char) -> c_int, "rdx", "x2", verify_file;
    SSL_CTX_load_verify_dir(ctx: *mut Object, dir: *const c_char) -> c_int, "rdx", "x2", verify_dir;
    SSL_CTX_load_verify_locations(ctx: *mut Object, file: *const c_char, dir: *const c_char) -> c_int, "rcx", "x3", verify_locations;
    X509_STORE_set_default_paths(store: *mut Object) -> c_int, "rsi", "x1", store_default_paths;
    X509_STORE_load_file(store: *mut Object, file: *const c_char) -> c_int, "rdx", "x2", store_file;
    X509_STORE_load_path(store: *mut Object, dir: *const c_char) -> c_int, "rdx", "x2", store_path;
    X509_STORE_load_locations(store: *mut Object, file: *const c_char, dir: *const c_char) -> c_int, "rcx", "x3", store_locations;
    SSL_CTX_set_cert_verify_callback(ctx: *mut Object, callback: *mut c_void, arg: *mut c_void), "rcx", "x3", cert_verify_callback;
    SSL_CTX_set_cert_cb(ctx: *mut Object, callback: *mut c_void, arg: *mut c_void), "rcx", "x3", cert_cb;
    SSL_set_cert_cb(ssl: *mut Object, callback: *mut c_void, arg: *mut c_void), "rcx", "x3", ssl_cert_cb;
    SSL_CTX_set_psk_use_session_callback(ctx: *mut Object, callback: *mut c_void), "rdx", "x2", psk_callback;
    SSL_CTX_set_alpn_protos(ctx: *mut Object, list: *const c_uchar, length: c_uint) -> c_int, "rcx", "x3", ctx_alpn;
    SSL_set_alpn_protos(ssl: *mut Object, list: *const c_uchar, length: c_uint) -> c_int, "rcx", "x3", ssl_alpn;
    SSL_CTX_set_session_id_context(ctx: *mut Object, id: *const c_uchar, length: c_uint) -> c_int, "rcx", "x3", ctx_id;
    SSL_set_session_id_context(ssl: *mut Object, id: *const c_uchar, length: c_uint) -> c_int, "rcx", "x3", ssl_id;
}

/// Calls the next function of this name with these arguments, or answers with a failure where there is none (then
/// nobody can have made the object that it is about). Says, too, whether it is that of the OpenSSL that is served.
macro_rules! forward {
    ($name:literal, $caller:expr, fn($($type:ty),*) -> $result:ty, ($($arg:expr),*), $none:expr) => {{
        let function = forward::next($name, $caller);
        if function.is_null() {
            ($none, false)
        } else {
            // SAFETY: OpenSSL's function of this name has this signature, in every version that has it, and
            // the arguments are the caller's own.
            let result = unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(function)($($arg),*) };
            (result, is_ours($name, function))
        }
    }};
}

/// Does what is ours; a panic ends it, and nothing is said. `errno` and errors are restored.
fn guard<R>(ours: impl FnOnce(&'static Api) -> Option<R>) -> Option<R> {
    static SILENT: Once = Once::new();
    // That of this library alone: it has a standard library of its own.
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let api = api()?;
    // SAFETY: the thread's own errno; marks are paired, and nothing between them removes one.
    unsafe {
        let errno = *libc::__errno_location();
        (api.ERR_set_mark)();
        let result = catch_unwind(AssertUnwindSafe(|| ours(api))).ok().flatten();
        (api.ERR_pop_to_mark)();
        *libc::__errno_location() = errno;
        result
    }
}

/// Whether `name` is found to be of the OpenSSL that is served, for what has to be done before the call.
fn serves(name: &CStr, caller: *const c_void) -> bool {
    let function = forward::next(name, caller);
    !function.is_null() && is_ours(name, function)
}

extern "C" fn connect(ssl: *mut Object, caller: *const c_void) -> c_int {
    if serves(c"SSL_connect", caller) {
        guard(|api| rules::before_handshake(api, ssl));
    }
    forward!(c"SSL_connect", caller, fn(*mut Object) -> c_int, (ssl), -1).0
}

extern "C" fn do_handshake(ssl: *mut Object, caller: *const c_void) -> c_int {
    if serves(c"SSL_do_handshake", caller) {
        guard(|api| rules::before_handshake(api, ssl));
    }
    forward!(c"SSL_do_handshake", caller, fn(*mut Object) -> c_int, (ssl), -1).0
}

extern "C" fn set_session(ssl: *mut Object, session: *mut Object, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_set_session", caller, fn(*mut Object, *mut Object) -> c_int, (ssl, session), 0);
    if ours && !session.is_null() {
        guard(|api| {
            connection(api, ssl)?.own_session = true;
            Some(())
        });
    }
    done
}

/// Ours stays in front, where it is there already.
extern "C" fn set_new_cb(ctx: *mut Object, callback: Option<NewSession>, caller: *const c_void) {
    let kept = serves(c"SSL_CTX_sess_set_new_cb", caller)
        && guard(|api| {
            // SAFETY: the caller's context.
            let set = unsafe { (api.SSL_CTX_sess_get_new_cb)(ctx) }?;
            (set as usize == rules::new_session as NewSession as usize).then(|| context(api, ctx))??.set_original(callback)
        })
        .is_some();
    if !kept {
        forward!(c"SSL_CTX_sess_set_new_cb", caller, fn(*mut Object, Option<NewSession>) -> (), (ctx, callback), ());
    }
}

extern "C" fn default_verify_paths(ctx: *mut Object, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_set_default_verify_paths", caller, fn(*mut Object) -> c_int, (ctx), 0);
    trusted_by(ctx, ours, Trust::System);
    done
}

extern "C" fn verify_file(ctx: *mut Object, file: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_load_verify_file", caller, fn(*mut Object, *const c_char) -> c_int, (ctx, file), 0);
    trusted_by(ctx, ours, state::trust_of(&[file]));
    done
}

extern "C" fn verify_dir(ctx: *mut Object, dir: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_load_verify_dir", caller, fn(*mut Object, *const c_char) -> c_int, (ctx, dir), 0);
    trusted_by(ctx, ours, state::trust_of(&[dir]));
    done
}

extern "C" fn verify_locations(ctx: *mut Object, file: *const c_char, dir: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_load_verify_locations", caller, fn(*mut Object, *const c_char, *const c_char) -> c_int, (ctx, file, dir), 0);
    trusted_by(ctx, ours, state::trust_of(&[file, dir]));
    done
}

/// Whether a call succeeds makes no difference: it has meant what it says.
fn trusted_by(ctx: *mut Object, ours: bool, trust: Trust) {
    if ours {
        // SAFETY: the caller's context.
        guard(|api| note_trust(api, unsafe { (api.SSL_CTX_get_cert_store)(ctx) }, trust));
    }
}

extern "C" fn store_default_paths(store: *mut Object, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"X509_STORE_set_default_paths", caller, fn(*mut Object) -> c_int, (store), 0);
    trusted(store, ours, Trust::System);
    done
}

extern "C" fn store_file(store: *mut Object, file: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"X509_STORE_load_file", caller, fn(*mut Object, *const c_char) -> c_int, (store, file), 0);
    trusted(store, ours, state::trust_of(&[file]));
    done
}

extern "C" fn store_path(store: *mut Object, dir: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"X509_STORE_load_path", caller, fn(*mut Object, *const c_char) -> c_int, (store, dir), 0);
    trusted(store, ours, state::trust_of(&[dir]));
    done
}

extern "C" fn store_locations(store: *mut Object, file: *const c_char, dir: *const c_char, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"X509_STORE_load_locations", caller, fn(*mut Object, *const c_char, *const c_char) -> c_int, (store, file, dir), 0);
    trusted(store, ours, state::trust_of(&[file, dir]));
    done
}

fn trusted(store: *mut Object, ours: bool, trust: Trust) {
    if ours {
        guard(|api| note_trust(api, store, trust));
    }
}

extern "C" fn cert_verify_callback(ctx: *mut Object, callback: *mut c_void, arg: *mut c_void, caller: *const c_void) {
    let ((), ours) = forward!(c"SSL_CTX_set_cert_verify_callback", caller, fn(*mut Object, *mut c_void, *mut c_void) -> (), (ctx, callback, arg), ());
    opt_out(ctx, ours && !callback.is_null());
}

extern "C" fn cert_cb(ctx: *mut Object, callback: *mut c_void, arg: *mut c_void, caller: *const c_void) {
    let ((), ours) = forward!(c"SSL_CTX_set_cert_cb", caller, fn(*mut Object, *mut c_void, *mut c_void) -> (), (ctx, callback, arg), ());
    opt_out(ctx, ours && !callback.is_null());
}

extern "C" fn psk_callback(ctx: *mut Object, callback: *mut c_void, caller: *const c_void) {
    let ((), ours) = forward!(c"SSL_CTX_set_psk_use_session_callback", caller, fn(*mut Object, *mut c_void) -> (), (ctx, callback), ());
    opt_out(ctx, ours && !callback.is_null());
}

/// For good: a connection may have been made of it meanwhile.
fn opt_out(ctx: *mut Object, does: bool) {
    if does {
        guard(|api| context(api, ctx)?.opt_out());
    }
}

extern "C" fn ssl_cert_cb(ssl: *mut Object, callback: *mut c_void, arg: *mut c_void, caller: *const c_void) {
    let ((), ours) = forward!(c"SSL_set_cert_cb", caller, fn(*mut Object, *mut c_void, *mut c_void) -> (), (ssl, callback, arg), ());
    if ours && !callback.is_null() {
        guard(|api| {
            connection(api, ssl)?.own_session = true;
            Some(())
        });
    }
}

extern "C" fn ctx_alpn(ctx: *mut Object, list: *const c_uchar, length: c_uint, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_set_alpn_protos", caller, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ctx, list, length), 1);
    if ours {
        // SAFETY: the caller's list is valid for its length.
        guard(|api| context(api, ctx)?.set_alpn(unsafe { state::bytes(list, length) }));
    }
    done
}

extern "C" fn ssl_alpn(ssl: *mut Object, list: *const c_uchar, length: c_uint, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_set_alpn_protos", caller, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ssl, list, length), 1);
    if ours {
        guard(|api| {
            // SAFETY: as above.
            connection(api, ssl)?.alpn = Some(unsafe { state::bytes(list, length) });
            Some(())
        });
    }
    done
}

extern "C" fn ctx_id(ctx: *mut Object, id: *const c_uchar, length: c_uint, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_CTX_set_session_id_context", caller, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ctx, id, length), 0);
    if ours && done == 1 {
        // SAFETY: the caller's bytes are valid for their length.
        guard(|api| context(api, ctx)?.set_id(unsafe { state::bytes(id, length) }));
    }
    done
}

extern "C" fn ssl_id(ssl: *mut Object, id: *const c_uchar, length: c_uint, caller: *const c_void) -> c_int {
    let (done, ours) = forward!(c"SSL_set_session_id_context", caller, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ssl, id, length), 0);
    if ours && done == 1 {
        guard(|api| {
            // SAFETY: as above.
            connection(api, ssl)?.id = Some(unsafe { state::bytes(id, length) });
            Some(())
        });
    }
    done
}
