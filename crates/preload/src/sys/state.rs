//! What is remembered beside OpenSSL's own objects, and goes with them.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use super::api::{Api, NewSession, Object};
use super::rules::setting;
use crate::query::Query;

/// Where the roots of a store come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    System,
    /// Others, or nobody knows: for good.
    Other,
}

/// Where Debian's and its relatives' programs name the system's roots themselves.
const SYSTEM: [&CStr; 4] =
    [c"/etc/ssl/certs/ca-certificates.crt", c"/etc/ssl/certs", c"/usr/lib/ssl/cert.pem", c"/usr/lib/ssl/certs"];

/// Of the files and directories that a program names; null is none.
pub(super) fn trust_of(paths: &[*const c_char]) -> Trust {
    // SAFETY: the caller's paths are strings that end with zero.
    let mut named = paths.iter().filter(|path| !path.is_null()).map(|path| unsafe { CStr::from_ptr(*path) });
    // Those that the environment names are the system's for this program, and sessions are kept by them.
    let by_environment = [setting(c"SSL_CERT_FILE"), setting(c"SSL_CERT_DIR")];
    let is_system = |path: &CStr| SYSTEM.contains(&path) || by_environment.iter().flatten().any(|own| **own == *path);
    if named.all(is_system) { Trust::System } else { Trust::Other }
}

/// Of a context, which threads share.
#[derive(Default)]
pub(super) struct OfContext {
    /// The program's own callback for new sessions: it has to be called whatever else fails.
    original: AtomicPtr<c_void>,
    settings: Mutex<Settings>,
}

#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) alpn: Vec<u8>,
    pub(super) id: Vec<u8>,
    pub(super) left_alone: bool,
}

impl OfContext {
    fn change(&self, change: impl FnOnce(&mut Settings)) -> Option<()> {
        change(&mut *locked(&self.settings)?);
        Some(())
    }

    pub(super) fn settings(&self) -> Option<Settings> {
        locked(&self.settings).map(|settings| settings.clone())
    }

    pub(super) fn set_original(&self, callback: Option<NewSession>) -> Option<()> {
        self.original.store(callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void), Ordering::Release);
        Some(())
    }

    pub(super) fn original(&self) -> Option<NewSession> {
        let callback = self.original.load(Ordering::Acquire);
        // SAFETY: null is none, and only functions of this type are stored.
        unsafe { std::mem::transmute::<*mut c_void, Option<NewSession>>(callback) }
    }

    pub(super) fn opt_out(&self) -> Option<()> {
        self.change(|settings| settings.left_alone = true)
    }

    pub(super) fn set_alpn(&self, alpn: Vec<u8>) -> Option<()> {
        self.change(|settings| settings.alpn = alpn)
    }

    pub(super) fn set_id(&self, id: Vec<u8>) -> Option<()> {
        self.change(|settings| settings.id = id)
    }
}

/// Something was not noted that may speak against sharing: all connections are left alone from now on.
pub(super) static BLIND: AtomicBool = AtomicBool::new(false);

/// How often a lock is tried. It is held for some instructions; in the child of a fork it may be held for ever.
const TRIES: usize = 1000;

fn locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(_) => std::thread::yield_now(),
        }
    }
    BLIND.store(true, Ordering::Release);
    None
}

/// Of a connection, which one thread uses at a time.
#[derive(Default)]
pub(super) struct OfConnection {
    /// The program offers a session or a certificate of its own.
    pub(super) own_session: bool,
    pub(super) alpn: Option<Vec<u8>>,
    pub(super) id: Option<Vec<u8>>,
    /// The handshake has begun.
    pub(super) begun: bool,
    /// The agent was asked, and has answered.
    pub(super) visit: Option<Visit>,
}

/// What the first ticket of a connection is left with.
pub(super) struct Visit {
    pub(super) query: Query,
    pub(super) opened: String,
    /// Milliseconds of the clock since boot: when the server last proved who it is, if it resumes what was taken.
    pub(super) verified: u64,
    /// When the connection began, by the same clock.
    pub(super) began: u64,
}

/// The numbers under which OpenSSL keeps ours.
struct Places {
    connection: c_int,
    context: c_int,
    store: c_int,
}

/// Of openssl/crypto.h.
const CLASS_SSL: c_int = 0;
const CLASS_SSL_CTX: c_int = 1;
const CLASS_X509_STORE: c_int = 4;

fn places(api: &Api) -> Option<&'static Places> {
    static PLACES: OnceLock<Option<Places>> = OnceLock::new();
    let new = |class, free| {
        let (none, zero) = (ptr::null_mut(), 0);
        // SAFETY: the callback has the signature of CRYPTO_EX_free, and this library is never unloaded.
        let place = unsafe { (api.CRYPTO_get_ex_new_index)(class, zero, none, none, Some(dup_as_none), free) };
        (place > 0).then_some(place)
    };
    let all = PLACES.get_or_init(|| {
        Some(Places {
            connection: new(CLASS_SSL, Some(drop_of::<OfConnection>))?,
            context: new(CLASS_SSL_CTX, Some(drop_of::<OfContext>))?,
            store: new(CLASS_X509_STORE, None)?,
        })
    });
    all.as_ref()
}

/// A copy of an object (SSL_dup) has nothing of ours: each box is dropped once.
unsafe extern "C" fn dup_as_none(_: *mut Object, _: *const Object, ours: *mut *mut c_void, _: c_int, _: c_long, _: *mut c_void) -> c_int {
    if !ours.is_null() {
        // SAFETY: OpenSSL's place for what the copy gets.
        unsafe { *ours = ptr::null_mut() };
    }
    1
}

unsafe extern "C" fn drop_of<T>(_: *mut Object, ours: *mut c_void, _: *mut Object, _: c_int, _: c_long, _: *mut c_void) {
    if !ours.is_null() {
        // SAFETY: a box of this type was put there, and the object it was kept beside ends now.
        drop(unsafe { Box::from_raw(ours.cast::<T>()) });
    }
}

/// What is remembered of a connection.
pub(super) fn connection(api: &Api, ssl: *mut Object) -> Option<&'static mut OfConnection> {
    let place = places(api)?.connection;
    // SAFETY: the caller's connection, which outlives the call that this reference is used in, and which no
    // other thread uses meanwhile (openssl-threads(7)).
    unsafe {
        let found = (api.SSL_get_ex_data)(ssl, place).cast::<OfConnection>();
        if !found.is_null() {
            return Some(&mut *found);
        }
        let fresh = Box::into_raw(Box::<OfConnection>::default());
        if (api.SSL_set_ex_data)(ssl, place, fresh.cast()) != 1 {
            drop(Box::from_raw(fresh));
            return None;
        }
        Some(&mut *fresh)
    }
}

/// What is remembered of a context.
pub(super) fn context(api: &Api, ctx: *mut Object) -> Option<&'static OfContext> {
    static MAKING: Mutex<()> = Mutex::new(());
    let place = places(api)?.context;
    // SAFETY: as above, but for threads, who share it by its own lock.
    let find = || unsafe { (api.SSL_CTX_get_ex_data)(ctx, place).cast::<OfContext>().as_ref() };
    if let Some(found) = find() {
        return Some(found);
    }
    // Two threads may make the first connections of a context at once.
    let _making = locked(&MAKING)?;
    if let Some(found) = find() {
        return Some(found);
    }
    // SAFETY: as above.
    unsafe {
        let fresh = Box::into_raw(Box::<OfContext>::default());
        if (api.SSL_CTX_set_ex_data)(ctx, place, fresh.cast()) != 1 {
            drop(Box::from_raw(fresh));
            return None;
        }
        Some(&*fresh)
    }
}

/// Notes what a store was given; the worst of all stays.
pub(super) fn note_trust(api: &Api, store: *mut Object, trust: Trust) -> Option<()> {
    let place = places(api)?.store;
    let value = match trust {
        Trust::Other => OTHER,
        Trust::System if trust_in(api, store) == Some(Trust::Other) => OTHER,
        Trust::System => SYSTEM_ONLY,
    };
    // SAFETY: the caller's store; numbers are kept, no pointers.
    unsafe { (api.X509_STORE_set_ex_data)(store, place, ptr::without_provenance_mut(value)) };
    Some(())
}

const SYSTEM_ONLY: usize = 1;
const OTHER: usize = 2;

/// Where the roots of a store come from, if that is known.
pub(super) fn trust_in(api: &Api, store: *mut Object) -> Option<Trust> {
    let place = places(api)?.store;
    // SAFETY: the caller's store.
    match unsafe { (api.X509_STORE_get_ex_data)(store, place) }.addr() {
        SYSTEM_ONLY => Some(Trust::System),
        OTHER => Some(Trust::Other),
        _ => None,
    }
}

/// A copy of what a caller hands over.
///
/// # Safety
/// `start` is null or valid for `length` bytes.
pub(super) unsafe fn bytes(start: *const c_uchar, length: c_uint) -> Vec<u8> {
    match usize::try_from(length) {
        // SAFETY: as the caller says.
        Ok(length) if !start.is_null() => unsafe { std::slice::from_raw_parts(start, length) }.to_vec(),
        _ => Vec::new(),
    }
}
