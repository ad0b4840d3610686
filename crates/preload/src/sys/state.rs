//! State kept beside OpenSSL's own objects, and freed with them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long, c_uchar, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::api::{Api, Dup, Free, Info, NewSession, Object};
use super::once::Published;
use crate::query::Query;

/// State of a context, which threads share.
#[derive(Default)]
pub(super) struct ContextState {
    /// The program's own callback for new sessions: it must be called whatever else fails.
    original: AtomicPtr<c_void>,
    /// The cache mode that we set, so that clients' sessions are reported; 0 if the mode is the
    /// program's.
    mode: AtomicI64,
    settings: Mutex<Settings>,
}

#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) alpn: Vec<u8>,
    pub(super) id: Vec<u8>,
    pub(super) left_alone: bool,
}

impl ContextState {
    pub(super) fn settings(&self) -> Option<Settings> {
        locked(&self.settings).map(|settings| settings.clone())
    }

    pub(super) fn set_original(&self, callback: Option<NewSession>) {
        self.original.store(
            callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void),
            Ordering::Release,
        );
    }

    pub(super) fn original(&self) -> Option<NewSession> {
        let callback = self.original.load(Ordering::Acquire);
        // SAFETY: null is `None`, and only functions of this type are stored.
        unsafe { std::mem::transmute::<*mut c_void, Option<NewSession>>(callback) }
    }

    pub(super) fn set_mode(&self, mode: c_long) {
        self.mode.store(mode, Ordering::Release);
    }

    pub(super) fn mode(&self) -> Option<c_long> {
        Some(self.mode.load(Ordering::Acquire)).filter(|mode| *mode != 0)
    }
}

/// True once a setting could not be recorded that may rule out sharing: all connections are left
/// alone from then on.
static SHARING_DISABLED: AtomicBool = AtomicBool::new(false);

pub(super) fn disable_sharing() {
    SHARING_DISABLED.store(true, Ordering::Release);
}

pub(super) fn is_sharing_disabled() -> bool {
    SHARING_DISABLED.load(Ordering::Acquire)
}

/// Number of attempts to lock. The lock is held for a few instructions; in the child of a fork it
/// may be held forever.
const TRIES: usize = 1000;

fn locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(_) => std::thread::yield_now(),
        }
    }
    disable_sharing();
    None
}

/// State of a connection, which one thread uses at a time. A callback of the program may reenter:
/// nothing is borrowed while one runs.
#[derive(Default)]
pub(super) struct ConnectionState {
    /// True if the program offers its own session or certificate.
    pub(super) left_alone: Cell<bool>,
    pub(super) alpn: RefCell<Option<Vec<u8>>>,
    pub(super) id: RefCell<Option<Vec<u8>>>,
    /// True once the handshake has begun.
    pub(super) begun: Cell<bool>,
    /// The program's own info callback, while ours is set.
    pub(super) info: Cell<Option<Info>>,
    /// True if one of the agent's sessions is offered.
    pub(super) offers: Cell<bool>,
    /// True if the offered session was verified except for its root: that follows when it is
    /// resumed.
    pub(super) unverified: Cell<bool>,
    /// True if the connection resumed a session that it then found invalid: it is closed.
    pub(super) refused: Cell<bool>,
    /// Set once the agent has answered.
    pub(super) visit: Cell<Option<Visit>>,
}

/// Data with which the first ticket of a connection is left.
pub(super) struct Visit {
    pub(super) query: Query,
    pub(super) opened: String,
    /// Time when the server last proved its identity, if it resumes the session taken; milliseconds
    /// since boot.
    pub(super) verified: u64,
    /// Time when the connection began, by the same clock.
    pub(super) began: u64,
    /// The server's chain as received with the session taken.
    pub(super) chain: Vec<u8>,
}

/// Indices under which OpenSSL keeps our data.
struct Indices {
    connection: c_int,
    context: c_int,
    session: c_int,
}

/// From openssl/crypto.h.
const CLASS_SSL: c_int = 0;
const CLASS_SSL_CTX: c_int = 1;
const CLASS_SSL_SESSION: c_int = 2;

fn indices(api: &Api) -> Option<&'static Indices> {
    static INDICES: Published<Option<Indices>> = Published::nothing();
    let all = INDICES.get_or(|| {
        Some(Indices {
            connection: new_index(
                api,
                CLASS_SSL,
                dup_left_alone,
                Some(drop_state::<ConnectionState>),
            )?,
            context: new_index(api, CLASS_SSL_CTX, dup_as_none, Some(drop_state::<ContextState>))?,
            session: new_index(api, CLASS_SSL_SESSION, dup_as_none, None)?,
        })
    });
    all.as_ref()
}

fn new_index(api: &Api, class: c_int, dup: Dup, free: Option<Free>) -> Option<c_int> {
    let (none, zero) = (ptr::null_mut(), 0);
    // SAFETY: the callbacks have the signatures of CRYPTO_EX_dup and _free, and this library is
    // never unloaded.
    let index = unsafe { (api.CRYPTO_get_ex_new_index)(class, zero, none, none, Some(dup), free) };
    (index > 0).then_some(index)
}

/// Marks a copy of a connection (SSL_dup), which has the callbacks of the first, as left alone.
unsafe extern "C" fn dup_left_alone(
    _: *mut Object,
    _: *const Object,
    ours: *mut *mut c_void,
    _: c_int,
    _: c_long,
    _: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL's slot for the copy's data, which holds the original's.
    if let Some(ours) = unsafe { ours.as_mut() }.filter(|ours| !ours.is_null()) {
        let copy = ConnectionState { left_alone: Cell::new(true), ..ConnectionState::default() };
        *ours = Box::into_raw(Box::new(copy)).cast();
    }
    1
}

/// Gives a copy of another object (the session of the next ticket) no data of ours: each box is
/// dropped once.
unsafe extern "C" fn dup_as_none(
    _: *mut Object,
    _: *const Object,
    ours: *mut *mut c_void,
    _: c_int,
    _: c_long,
    _: *mut c_void,
) -> c_int {
    if !ours.is_null() {
        // SAFETY: OpenSSL's slot for the copy's data.
        unsafe { *ours = ptr::null_mut() };
    }
    1
}

unsafe extern "C" fn drop_state<T>(
    _: *mut Object,
    ours: *mut c_void,
    _: *mut Object,
    _: c_int,
    _: c_long,
    _: *mut c_void,
) {
    if !ours.is_null() {
        // SAFETY: a box of this type was stored there, and the object that it belongs to ends now.
        drop(unsafe { Box::from_raw(ours.cast::<T>()) });
    }
}

/// Returns the state of a connection, if it has any.
pub(super) fn known(api: &Api, ssl: *const Object) -> Option<&'static ConnectionState> {
    let index = indices(api)?.connection;
    // SAFETY: the caller's connection, which outlives the call that uses this reference, and which
    // no other thread uses meanwhile (openssl-threads(7)).
    unsafe { (api.SSL_get_ex_data)(ssl, index).cast::<ConnectionState>().as_ref() }
}

/// Returns the state of a connection; creates it if there is none.
pub(super) fn connection(api: &Api, ssl: *mut Object) -> Option<&'static ConnectionState> {
    if let Some(found) = known(api, ssl) {
        return Some(found);
    }
    let index = indices(api)?.connection;
    let fresh = Box::into_raw(Box::<ConnectionState>::default());
    // SAFETY: as above; a rejected box is freed here, a stored one with the connection.
    unsafe {
        if (api.SSL_set_ex_data)(ssl, index, fresh.cast()) != 1 {
            drop(Box::from_raw(fresh));
            return None;
        }
        Some(&*fresh)
    }
}

/// Creates state for a context that was just made, which no other thread knows yet: later this
/// would race with them. Contexts without state are left alone.
pub(super) fn remember(api: &Api, ctx: *mut Object) -> Option<()> {
    // SSL_CTX_new calls SSL_CTX_new_ex, by its name in some builds.
    if context(api, ctx).is_some() {
        return Some(());
    }
    let index = indices(api)?.context;
    let fresh = Box::into_raw(Box::<ContextState>::default());
    // SAFETY: the caller's context; a rejected box is freed here, a stored one with the context.
    unsafe {
        if (api.SSL_CTX_set_ex_data)(ctx, index, fresh.cast()) != 1 {
            drop(Box::from_raw(fresh));
            return None;
        }
    }
    Some(())
}

pub(super) fn context(api: &Api, ctx: *mut Object) -> Option<&'static ContextState> {
    let index = indices(api)?.context;
    // SAFETY: the caller's context, which outlives the call that uses this reference; the state's
    // own lock serves threads.
    unsafe { (api.SSL_CTX_get_ex_data)(ctx, index).cast::<ContextState>().as_ref() }
}

/// Records a setting of a context, unless it is left alone anyway.
pub(super) fn change(
    api: &Api,
    ctx: *mut Object,
    change: impl FnOnce(&mut Settings),
) -> Option<()> {
    let Some(context) = context(api, ctx) else { return Some(()) };
    change(&mut *locked(&context.settings)?);
    Some(())
}

/// Marks a session as the agent's, present or past: the program no longer has it.
pub(super) fn mark_spent(api: &Api, session: *mut Object) -> Option<()> {
    mark(api, session, SPENT)
}

fn mark(api: &Api, session: *mut Object, number: usize) -> Option<()> {
    let index = indices(api)?.session;
    // SAFETY: the caller's session; a number is stored, not a pointer.
    let done = unsafe {
        (api.SSL_SESSION_set_ex_data)(session, index, ptr::without_provenance_mut(number))
    };
    (done == 1).then_some(())
}

const SPENT: usize = 1;

/// Creation time, in seconds, of a session that must not be offered again. OpenSSL offers no ticket
/// beyond its lifetime, and copies inherit the time: Python gives programs copies. Zero would mean
/// no time.
const LONG_AGO: c_long = 1;

/// Marks a session as spent in a way that its copies inherit. Returns its creation time, which
/// [`unmark`] restores.
pub(super) fn outdate(api: &Api, session: *mut Object) -> c_long {
    // SAFETY: the caller's session.
    unsafe {
        let made = (api.SSL_SESSION_get_time)(session);
        (api.SSL_SESSION_set_time)(session, LONG_AGO);
        made
    }
}

/// Returns a session to the program.
pub(super) fn restore(api: &Api, session: *mut Object, made: c_long) {
    // SAFETY: the caller's session.
    unsafe { (api.SSL_SESSION_set_time)(session, made) };
    let _ = mark(api, session, 0);
}

pub(super) fn is_spent(api: &Api, session: *const Object) -> bool {
    // SAFETY: the caller's session.
    unsafe {
        indices(api).is_some_and(|indices| {
            (api.SSL_SESSION_get_ex_data)(session, indices.session).addr() == SPENT
        }) || (api.SSL_SESSION_get_time)(session) == LONG_AGO
    }
}

/// Copies a caller's bytes.
///
/// # Safety
/// `start` must be null or valid for `length` bytes.
pub(super) unsafe fn bytes(start: *const c_uchar, length: c_uint) -> Vec<u8> {
    match usize::try_from(length) {
        // SAFETY: the caller's duty.
        Ok(length) if !start.is_null() => {
            unsafe { std::slice::from_raw_parts(start, length) }.to_vec()
        }
        _ => Vec::new(),
    }
}
