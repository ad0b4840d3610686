//! All unsafe code: functions that programs and OpenSSL call, and calls to both.
//!
//! No panic reaches C: every entry goes through [`guard`]. `errno` and OpenSSL's error queue stay
//! as they would have been.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

mod api;
mod chain;
mod clock;
mod environment;
mod forward;
mod once;
mod rules;
mod settle;
mod socket;
mod state;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use api::{Api, Info, NewSession, Object, api};
use environment::environment;
use forward::next;
use rules::{Role, Roots};
use settle::after_handshake;
use state::{connection, context, disable_sharing};

/// Defines functions with OpenSSL's names that call ours with their return address as an additional
/// argument.
macro_rules! interpose {
    ($(
        $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?,
            $x86:literal, $arm:literal, $ours:path;
    )*) => { $(
        /// Jumps to our own function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                concat!("mov ", $x86, ", qword ptr [rsp]"), "jmp {ours}", ours = sym $ours
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {ours}", ours = sym $ours);
        }
    )* };
}

type Callback = *mut c_void;

interpose! {
    SSL_CTX_new(method: *const Object) -> *mut Object, "rsi", "x1", ctx_new;
    SSL_CTX_new_ex(
        library: *mut Object,
        properties: *const c_char,
        method: *const Object
    ) -> *mut Object, "rcx", "x3", ctx_new_ex;
    SSL_connect(ssl: *mut Object) -> c_int, "rsi", "x1", connect;
    SSL_do_handshake(ssl: *mut Object) -> c_int, "rsi", "x1", do_handshake;
    SSL_set_connect_state(ssl: *mut Object), "rsi", "x1", set_connect_state;
    SSL_set_session(ssl: *mut Object, session: *mut Object) -> c_int, "rdx", "x2", set_session;
    SSL_CTX_sess_set_new_cb(ctx: *mut Object, callback: Option<NewSession>),
        "rdx", "x2", set_new_cb;
    SSL_CTX_sess_get_new_cb(ctx: *mut Object) -> Option<NewSession>, "rsi", "x1", get_new_cb;
    SSL_set_info_callback(ssl: *mut Object, callback: Option<Info>), "rdx", "x2", set_info;
    SSL_get_info_callback(ssl: *const Object) -> Option<Info>, "rsi", "x1", get_info;
    SSL_CTX_set_cert_verify_callback(ctx: *mut Object, callback: Callback, arg: *mut c_void),
        "rcx", "x3", ctx_verification;
    SSL_CTX_set_cert_cb(ctx: *mut Object, callback: Callback, arg: *mut c_void),
        "rcx", "x3", ctx_cert_cb;
    SSL_set_cert_cb(ssl: *mut Object, callback: Callback, arg: *mut c_void),
        "rcx", "x3", ssl_cert_cb;
    SSL_CTX_set_client_cert_engine(ctx: *mut Object, engine: *mut Object) -> c_int,
        "rdx", "x2", ctx_engine;
    SSL_CTX_set_psk_use_session_callback(ctx: *mut Object, callback: Callback),
        "rdx", "x2", ctx_psk;
    SSL_set_psk_use_session_callback(ssl: *mut Object, callback: Callback), "rdx", "x2", ssl_psk;
    SSL_CTX_set_psk_client_callback(ctx: *mut Object, callback: Callback),
        "rdx", "x2", ctx_psk_client;
    SSL_set_psk_client_callback(ssl: *mut Object, callback: Callback), "rdx", "x2", ssl_psk_client;
    SSL_CTX_set_alpn_protos(ctx: *mut Object, list: *const c_uchar, length: c_uint) -> c_int,
        "rcx", "x3", ctx_alpn;
    SSL_set_alpn_protos(ssl: *mut Object, list: *const c_uchar, length: c_uint) -> c_int,
        "rcx", "x3", ssl_alpn;
    SSL_CTX_set_session_id_context(ctx: *mut Object, id: *const c_uchar, length: c_uint) -> c_int,
        "rcx", "x3", ctx_id;
    SSL_set_session_id_context(ssl: *mut Object, id: *const c_uchar, length: c_uint) -> c_int,
        "rcx", "x3", ssl_id;
}

/// Calls the function found for a caller with its arguments, or returns a failure if there is none
/// (then the object in question cannot exist).
macro_rules! call {
    ($next:expr, fn($($type:ty),*) -> $result:ty, ($($arg:expr),*), $none:expr) => {
        if $next.function.is_null() {
            $none
        } else {
            // SAFETY: OpenSSL's function of this name has this signature in every version that has
            // it, and the arguments are the caller's own.
            unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(
                    $next.function
                )($($arg),*)
            }
        }
    };
}

/// Runs our part if there is an agent; a panic ends it silently. Restores `errno` and the error
/// queue.
fn guard<R>(ours: impl FnOnce(&'static Api) -> Option<R>) -> Option<R> {
    environment()?;
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

/// Records a setting that has no getter. If that fails, nothing is shared from now on.
fn note(is_served: bool, ours: impl FnOnce(&'static Api) -> Option<()>) {
    if is_served && guard(ours).is_none() {
        disable_sharing();
    }
}

extern "C" fn ctx_new(method: *const Object, caller: *const c_void) -> *mut Object {
    let next = next(c"SSL_CTX_new", caller);
    let ctx = call!(next, fn(*const Object) -> *mut Object, (method), ptr::null_mut());
    remember_new(ctx, next.is_served)
}

extern "C" fn ctx_new_ex(
    library: *mut Object,
    properties: *const c_char,
    method: *const Object,
    caller: *const c_void,
) -> *mut Object {
    let next = next(c"SSL_CTX_new_ex", caller);
    let ctx = call!(
        next,
        fn(*mut Object, *const c_char, *const Object) -> *mut Object,
        (library, properties, method),
        ptr::null_mut()
    );
    // A program that selects its own implementations (FIPS) uses them for sessions and certificates
    // too.
    remember_new(ctx, next.is_served && library.is_null() && properties.is_null())
}

fn remember_new(ctx: *mut Object, is_served: bool) -> *mut Object {
    if is_served && !ctx.is_null() {
        guard(|api| state::remember(api, ctx));
    }
    ctx
}

extern "C" fn connect(ssl: *mut Object, caller: *const c_void) -> c_int {
    handshake(c"SSL_connect", Role::Client, ssl, caller)
}

extern "C" fn do_handshake(ssl: *mut Object, caller: *const c_void) -> c_int {
    handshake(c"SSL_do_handshake", Role::AsSet, ssl, caller)
}

fn handshake(name: &CStr, role: Role, ssl: *mut Object, caller: *const c_void) -> c_int {
    let next = next(name, caller);
    if next.is_served {
        guard(|api| rules::before_handshake(api, ssl, role, Roots::Later));
    }
    let done = call!(next, fn(*mut Object) -> c_int, (ssl), -1);
    if next.is_served { after_handshake(ssl, done) } else { done }
}

extern "C" fn set_connect_state(ssl: *mut Object, caller: *const c_void) {
    let next = next(c"SSL_set_connect_state", caller);
    call!(next, fn(*mut Object) -> (), (ssl), ());
    if next.is_served {
        guard(|api| rules::arm(api, ssl));
    }
}

/// A session that has gone to the agent, or came from it, is no longer the program's: the call has
/// no effect.
extern "C" fn set_session(ssl: *mut Object, session: *mut Object, caller: *const c_void) -> c_int {
    let next = next(c"SSL_set_session", caller);
    let is_spent = next.is_served
        && !session.is_null()
        && guard(|api| Some(state::is_spent(api, session))).unwrap_or_default();
    let session = if is_spent { ptr::null_mut() } else { session };
    let done = call!(next, fn(*mut Object, *mut Object) -> c_int, (ssl, session), 0);
    note(next.is_served && !session.is_null(), |api| {
        let connection = connection(api, ssl)?;
        connection.left_alone.set(true);
        connection.visit.take();
        Some(())
    });
    done
}

/// If our callback is set, it stays in front.
extern "C" fn set_new_cb(ctx: *mut Object, callback: Option<NewSession>, caller: *const c_void) {
    let next = next(c"SSL_CTX_sess_set_new_cb", caller);
    let kept = next.is_served
        && guard(|api| {
            // SAFETY: the caller's context.
            let set = unsafe { (api.SSL_CTX_sess_get_new_cb)(ctx) };
            rules::is_ours(set).then(|| context(api, ctx))??.set_original(callback);
            Some(())
        })
        .is_some();
    if !kept {
        call!(next, fn(*mut Object, Option<NewSession>) -> (), (ctx, callback), ());
    }
}

/// Returns the program's own callback, which it may set again later.
extern "C" fn get_new_cb(ctx: *mut Object, caller: *const c_void) -> Option<NewSession> {
    let next = next(c"SSL_CTX_sess_get_new_cb", caller);
    let set = call!(next, fn(*mut Object) -> Option<NewSession>, (ctx), None);
    if next.is_served && rules::is_ours(set) {
        guard(|api| context(api, ctx)?.original())
    } else {
        set
    }
}

/// If our callback is set, it stays in front: it may have to verify the offered session.
extern "C" fn set_info(ssl: *mut Object, callback: Option<Info>, caller: *const c_void) {
    let next = next(c"SSL_set_info_callback", caller);
    let kept = next.is_served
        && guard(|api| {
            // SAFETY: the caller's connection.
            let set = unsafe { (api.SSL_get_info_callback)(ssl) };
            rules::is_on_info(set).then(|| state::known(api, ssl))??.info.set(callback);
            Some(())
        })
        .is_some();
    if !kept {
        call!(next, fn(*mut Object, Option<Info>) -> (), (ssl, callback), ());
    }
}

/// Returns the program's own callback.
extern "C" fn get_info(ssl: *const Object, caller: *const c_void) -> Option<Info> {
    let next = next(c"SSL_get_info_callback", caller);
    let set = call!(next, fn(*const Object) -> Option<Info>, (ssl), None);
    if next.is_served && rules::is_on_info(set) {
        guard(|api| state::known(api, ssl)?.info.get())
    } else {
        set
    }
}

/// Defines functions that set a callback of the program; with one, its object is left alone.
macro_rules! set_callbacks {
    ($($ours:ident, $name:literal, ($($arg:ident: $type:ty),*), $leave_alone:ident;)*) => { $(
        extern "C" fn $ours(
            object: *mut Object,
            callback: Callback,
            $($arg: $type,)*
            caller: *const c_void,
        ) {
            let next = next($name, caller);
            call!(
                next,
                fn(*mut Object, Callback $(, $type)*) -> (),
                (object, callback $(, $arg)*),
                ()
            );
            $leave_alone(object, next.is_served && !callback.is_null());
        }
    )* };
}

set_callbacks! {
    ctx_verification, c"SSL_CTX_set_cert_verify_callback", (arg: *mut c_void), leave_context_alone;
    ctx_cert_cb, c"SSL_CTX_set_cert_cb", (arg: *mut c_void), leave_context_alone;
    ssl_cert_cb, c"SSL_set_cert_cb", (arg: *mut c_void), leave_alone;
    ctx_psk, c"SSL_CTX_set_psk_use_session_callback", (), leave_context_alone;
    ssl_psk, c"SSL_set_psk_use_session_callback", (), leave_alone;
    ctx_psk_client, c"SSL_CTX_set_psk_client_callback", (), leave_context_alone;
    ssl_psk_client, c"SSL_set_psk_client_callback", (), leave_alone;
}

extern "C" fn ctx_engine(ctx: *mut Object, engine: *mut Object, caller: *const c_void) -> c_int {
    let next = next(c"SSL_CTX_set_client_cert_engine", caller);
    let done = call!(next, fn(*mut Object, *mut Object) -> c_int, (ctx, engine), 0);
    leave_context_alone(ctx, next.is_served && !engine.is_null());
    done
}

/// Permanent: a connection may have been made from it meanwhile.
fn leave_context_alone(ctx: *mut Object, does: bool) {
    note(does, |api| state::change(api, ctx, |settings| settings.left_alone = true));
}

fn leave_alone(ssl: *mut Object, does: bool) {
    note(does, |api| {
        connection(api, ssl)?.left_alone.set(true);
        Some(())
    });
}

extern "C" fn ctx_alpn(
    ctx: *mut Object,
    list: *const c_uchar,
    length: c_uint,
    caller: *const c_void,
) -> c_int {
    let next = next(c"SSL_CTX_set_alpn_protos", caller);
    let done =
        call!(next, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ctx, list, length), 1);
    // 0 is success here.
    note(next.is_served && done == 0, |api| {
        // SAFETY: the caller's list is valid for its length.
        let list = unsafe { state::bytes(list, length) };
        state::change(api, ctx, |settings| settings.alpn = list)
    });
    done
}

extern "C" fn ssl_alpn(
    ssl: *mut Object,
    list: *const c_uchar,
    length: c_uint,
    caller: *const c_void,
) -> c_int {
    let next = next(c"SSL_set_alpn_protos", caller);
    let done =
        call!(next, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ssl, list, length), 1);
    note(next.is_served && done == 0, |api| {
        // SAFETY: as above.
        connection(api, ssl)?.alpn.replace(Some(unsafe { state::bytes(list, length) }));
        Some(())
    });
    done
}

extern "C" fn ctx_id(
    ctx: *mut Object,
    id: *const c_uchar,
    length: c_uint,
    caller: *const c_void,
) -> c_int {
    let next = next(c"SSL_CTX_set_session_id_context", caller);
    let done = call!(next, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ctx, id, length), 0);
    note(next.is_served && done == 1, |api| {
        // SAFETY: the caller's bytes are valid for their length.
        let id = unsafe { state::bytes(id, length) };
        state::change(api, ctx, |settings| settings.id = id)
    });
    done
}

extern "C" fn ssl_id(
    ssl: *mut Object,
    id: *const c_uchar,
    length: c_uint,
    caller: *const c_void,
) -> c_int {
    let next = next(c"SSL_set_session_id_context", caller);
    let done = call!(next, fn(*mut Object, *const c_uchar, c_uint) -> c_int, (ssl, id, length), 0);
    note(next.is_served && done == 1, |api| {
        // SAFETY: as above.
        connection(api, ssl)?.id.replace(Some(unsafe { state::bytes(id, length) }));
        Some(())
    });
    done
}
