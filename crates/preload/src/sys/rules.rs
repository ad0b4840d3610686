//! Rules for taking and leaving sessions: those at the head of the crate.

use std::ffi::{CStr, CString, c_int, c_long, c_uint};
use std::ptr;

use super::api::{Api, Info, NewSession, Object, api};
use super::chain::{self, Judge, Offered};
use super::clock::now;
use super::environment::{Environment, copy, environment};
use super::guard;
use super::settle::settle;
use super::socket::Socket;
use super::state::{
    self, ConnectionState, ContextState, Settings, Visit, connection, context, is_sharing_disabled,
    known,
};
use crate::link;
use crate::query::Query;

// From openssl/ssl.h, tls1.h and x509_vfy.h.
const VERIFY_PEER: c_int = 1;
const NAME_HOST: c_int = 0;
const GET_MAX_VERSION: c_int = 131;
const GET_STATUS_TYPE: c_int = 127;
const GET_CACHE_MODE: c_int = 45;
const SET_CACHE_MODE: c_int = 44;
const CACHE_CLIENT: c_long = 0x001;
const NO_INTERNAL_STORE: c_long = 0x200;
const NO_TLS_1_3: u64 = 1 << 29;
/// First byte of TLS versions.
const TLS: c_int = 3;
const TLS_1_3: c_int = 0x0304;
const HANDSHAKE_START: c_int = 0x10;
const HANDSHAKE_DONE: c_int = 0x20;
const VERIFIED: c_long = 0;

/// Evidence that a connection is a client's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// `SSL_connect` was called: until then OpenSSL takes a connection that can be both for a
    /// server's.
    Client,
    /// The connection's own state.
    AsSet,
}

/// Time when the roots of a connection must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Roots {
    Now,
    /// At the end of the handshake, when the caller settles it.
    Later,
}

/// Takes a session from the agent for a connection, if the rules allow it.
pub(super) fn before_handshake(
    api: &'static Api,
    ssl: *mut Object,
    role: Role,
    roots: Roots,
) -> Option<()> {
    let environment = environment()?;
    begin_anew(api, ssl);
    // A connection that offers a session stays watched, since the session may still have to be
    // verified: a program that started with a handshake may end it by writing.
    if known(api, ssl).is_some_and(|connection| connection.offers.get()) {
        return None;
    }
    disarm(api, ssl);
    if is_sharing_disabled() || !is_beginning(api, ssl, role) {
        return None;
    }
    let connection = connection(api, ssl)?;
    if connection.left_alone.get() || connection.begun.replace(true) {
        return None;
    }
    // SAFETY: the caller's connection.
    let ctx = unsafe { (api.SSL_get_SSL_CTX)(ssl) };
    let context_state = context(api, ctx)?;
    let settings = context_state.settings()?;
    let server = eligible(api, ssl, ctx, &settings)?;
    let alpn = connection.alpn.borrow().clone().unwrap_or(settings.alpn);
    let id = connection.id.borrow().clone().unwrap_or(settings.id);
    let query = query(api, ssl, &server, alpn, environment);
    let began = now()?;
    let answer = link::take(&mut Socket::connect(environment)?, &query)?;
    watch(api, ctx, context_state);
    let verified = began.saturating_sub(answer.age);
    let offered = if answer.status == 200 {
        offer(api, ssl, &answer.body, &server, &id, roots)
    } else {
        None
    };
    let chain = offered.map_or_else(Vec::new, |(chain, is_verified)| {
        connection.offers.set(true);
        connection.unverified.set(!is_verified);
        listen(api, ssl, connection);
        chain
    });
    connection.visit.set(Some(Visit { query, opened: answer.opened, verified, began, chain }));
    Some(())
}

/// Resets a refused connection. It is closed; if its program reuses the object (`SSL_clear`), that
/// is a new connection without the session of the first.
fn begin_anew(api: &Api, ssl: *mut Object) {
    // SAFETY: the caller's connection, and the session that it has.
    unsafe {
        let Some(connection) = known(api, ssl).filter(|connection| connection.refused.get()) else {
            return;
        };
        if (api.SSL_in_before)(ssl) == 1 {
            let session = (api.SSL_get_session)(ssl);
            if !session.is_null() && state::is_spent(api, session) {
                (api.SSL_set_session)(ssl, ptr::null_mut());
            }
            connection.refused.set(false);
        }
    }
}

/// Returns true if nothing was sent yet, and the program offers no session.
fn is_beginning(api: &Api, ssl: *mut Object, role: Role) -> bool {
    // SAFETY: the caller's connection.
    unsafe {
        (role == Role::Client || (api.SSL_is_server)(ssl) == 0)
            && (api.SSL_in_before)(ssl) == 1
            && (api.SSL_get_session)(ssl).is_null()
    }
}

/// Returns the server's name, if the connection may share sessions.
fn eligible(api: &Api, ssl: *mut Object, ctx: *mut Object, settings: &Settings) -> Option<CString> {
    // SAFETY: the caller's connection and its context own what they return, which is copied or only
    // inspected. SSL_ctrl with these commands only reads.
    unsafe {
        let newest = (api.SSL_ctrl)(ssl, GET_MAX_VERSION, 0, ptr::null_mut());
        let shares = !settings.left_alone
            && (api.SSL_get_verify_mode)(ssl) & VERIFY_PEER != 0
            && (api.SSL_get_certificate)(ssl).is_null()
            && (api.SSL_CTX_get_client_cert_cb)(ctx).is_null()
            // Neither DTLS nor QUIC, whose sessions are of another kind.
            && (api.SSL_version)(ssl) >> 8 == TLS
            && (newest == 0 || newest >= c_long::from(TLS_1_3))
            && (api.SSL_get_options)(ssl) & NO_TLS_1_3 == 0
            && (api.SSL_ctrl)(ssl, GET_STATUS_TYPE, 0, ptr::null_mut()) == -1
            && (api.SSL_ct_is_enabled)(ssl) == 0
            // The program has switched it off: OpenSSL's default differs.
            && (api.SSL_CTX_ctrl)(ctx, GET_CACHE_MODE, 0, ptr::null_mut()) != 0;
        let server = copy((api.SSL_get_servername)(ssl, NAME_HOST))?;
        (shares && !server.is_empty()).then_some(server)
    }
}

fn query(
    api: &Api,
    ssl: *mut Object,
    server: &CStr,
    alpn: Vec<u8>,
    environment: &Environment,
) -> Query {
    // SAFETY: the caller's connection.
    let level = unsafe { (api.SSL_get_security_level)(ssl) };
    // SAFETY: it has no arguments.
    let version = unsafe { (api.OpenSSL_version_num)() };
    Query {
        server: server.to_string_lossy().to_ascii_lowercase(),
        alpn,
        settings: format!("openssl {version:x} level {level}"),
        context: environment.context.clone(),
    }
}

/// Makes OpenSSL report new sessions to our callback, which then calls the program's own.
fn watch(api: &Api, ctx: *mut Object, context_state: &ContextState) {
    // SAFETY: the caller's context. The callback has the required signature, and its library stays
    // loaded.
    unsafe {
        let set = (api.SSL_CTX_sess_get_new_cb)(ctx);
        if !is_ours(set) {
            context_state.set_original(set);
            (api.SSL_CTX_sess_set_new_cb)(ctx, Some(new_session));
        }
        let mode = (api.SSL_CTX_ctrl)(ctx, GET_CACHE_MODE, 0, ptr::null_mut());
        if mode & CACHE_CLIENT == 0 {
            // Not into OpenSSL's own cache, which would never be searched.
            let with_clients = mode | CACHE_CLIENT | NO_INTERNAL_STORE;
            context_state.set_mode(with_clients);
            (api.SSL_CTX_ctrl)(ctx, SET_CACHE_MODE, with_clients, ptr::null_mut());
        }
    }
}

/// Returns true if a callback for new sessions is the one here.
pub(super) fn is_ours(callback: Option<NewSession>) -> bool {
    callback.is_some_and(|callback| callback as usize == new_session as *const () as usize)
}

/// Makes a connection offer a session, if the session passes all checks, since it was in others'
/// hands. Returns the chain that came with it, and whether that is fully verified, including roots.
fn offer(
    api: &Api,
    ssl: *mut Object,
    bytes: &[u8],
    server: &CStr,
    id: &[u8],
    roots: Roots,
) -> Option<(Vec<u8>, bool)> {
    let offered = Offered::read(api, bytes)?;
    let (session, chain) = (offered.session.get(), offered.chain.get());
    // SAFETY: the session is ours until it is freed; the connection takes a reference of its own.
    unsafe {
        if !is_good(api, session, server) {
            return None;
        }
        // First without the program's callbacks: they must not see a failure that the handshake may
        // not have. A program with callbacks may continue without roots.
        let is_verified = chain::verifies(api, ssl, session, chain, Judge::OpenSsl);
        let holds = is_verified
            || roots == Roots::Later
                && !chain::has_callbacks(api, ssl)
                && chain::has_no_roots(api, ssl)
                && chain::verifies(api, ssl, session, chain, Judge::AllButRoots);
        if !holds {
            return None;
        }
        state::mark_spent(api, session)?;
        let length = c_uint::try_from(id.len()).ok()?;
        // A client whose id context differs from its session's aborts the handshake.
        let fits = (api.SSL_SESSION_set1_id_context)(session, id.as_ptr(), length) == 1
            && (api.SSL_set_session_id_context)(ssl, id.as_ptr(), length) == 1
            // Early data can be replayed, and is left to programs that manage sessions themselves.
            && (api.SSL_SESSION_set_max_early_data)(session, 0) == 1;
        let before = (api.SSL_get_verify_result)(ssl);
        if !fits || (api.SSL_set_session)(ssl, session) != 1 {
            return None;
        }
        let holds = (api.SSL_get_verify_result)(ssl) == VERIFIED
            && (!is_verified
                || !chain::has_callbacks(api, ssl)
                || chain::verifies(api, ssl, session, chain, Judge::Program));
        if !holds {
            (api.SSL_set_session)(ssl, ptr::null_mut());
            (api.SSL_set_verify_result)(ssl, before);
            return None;
        }
        Some((offered.encoded.to_vec(), is_verified))
    }
}

/// Returns true if a session is of TLS 1.3, and its certificate and its name are those of the
/// server.
///
/// # Safety
/// The session must be valid.
unsafe fn is_good(api: &Api, session: *mut Object, server: &CStr) -> bool {
    // SAFETY: the caller's duty; the session owns what it returns.
    unsafe {
        let peer = (api.SSL_SESSION_get0_peer)(session);
        // Servers need not echo the name that they accepted (RFC 6066 section 3).
        let name = copy((api.SSL_SESSION_get0_hostname)(session));
        (api.SSL_SESSION_get_protocol_version)(session) == TLS_1_3
            && (api.SSL_SESSION_is_resumable)(session) == 1
            && name.is_none_or(|name| name.to_bytes().eq_ignore_ascii_case(server.to_bytes()))
            && !peer.is_null()
            && (api.X509_check_host)(
                peer,
                server.as_ptr(),
                server.count_bytes(),
                0,
                ptr::null_mut(),
            ) == 1
    }
}

/// Makes OpenSSL report the start of the handshake, for programs that begin by writing or reading.
pub(super) fn arm(api: &Api, ssl: *mut Object) -> Option<()> {
    if is_sharing_disabled() || !is_beginning(api, ssl, Role::AsSet) {
        return None;
    }
    let connection = connection(api, ssl)?;
    if !connection.begun.get() {
        listen(api, ssl, connection);
    }
    Some(())
}

fn listen(api: &Api, ssl: *mut Object, connection: &ConnectionState) {
    // SAFETY: the caller's connection. The callback has the required signature, and its library
    // stays loaded.
    unsafe {
        let set = (api.SSL_get_info_callback)(ssl);
        if !is_on_info(set) {
            connection.info.set(set);
            (api.SSL_set_info_callback)(ssl, Some(on_info));
        }
    }
}

fn disarm(api: &Api, ssl: *mut Object) {
    // SAFETY: the caller's connection, and the program's own callback.
    unsafe {
        if is_on_info((api.SSL_get_info_callback)(ssl)) {
            (api.SSL_set_info_callback)(
                ssl,
                known(api, ssl).and_then(|connection| connection.info.get()),
            );
        }
    }
}

pub(super) fn is_on_info(callback: Option<Info>) -> bool {
    callback.is_some_and(|callback| callback as usize == on_info as *const () as usize)
}

/// Handles an event of a connection; also calls the program's own callback.
unsafe extern "C" fn on_info(ssl: *const Object, kind: c_int, value: c_int) {
    if kind & HANDSHAKE_START != 0 {
        guard(|api| before_handshake(api, ssl.cast_mut(), Role::AsSet, Roots::Now));
    }
    if kind & HANDSHAKE_DONE != 0 {
        guard(|api| {
            disarm(api, ssl.cast_mut());
            settle(api, ssl.cast_mut())
        });
    }
    let own = guard(|api| {
        // SAFETY: the connection for which OpenSSL calls this, and its context.
        let context_state = unsafe { (api.SSL_CTX_get_info_callback)((api.SSL_get_SSL_CTX)(ssl)) };
        known(api, ssl)?.info.get().or(context_state)
    });
    if let Some(own) = own {
        // SAFETY: the program's own callback for this connection.
        unsafe { own(ssl, kind, value) };
    }
}

/// Handles a session from the server. Returns 1 to keep it, as the program's own callback says.
pub(super) unsafe extern "C" fn new_session(ssl: *mut Object, session: *mut Object) -> c_int {
    if guard(|api| leave(api, ssl, session)).is_some() {
        return 0;
    }
    let own = api().and_then(|api| {
        // SAFETY: the connection for which OpenSSL calls this, and its context.
        let (ctx, is_client) =
            unsafe { ((api.SSL_get_SSL_CTX)(ssl), (api.SSL_is_server)(ssl) == 0) };
        let mode = unsafe { (api.SSL_CTX_ctrl)(ctx, GET_CACHE_MODE, 0, ptr::null_mut()) };
        let context_state = context(api, ctx)?;
        // For a client it would not have been called without our mode.
        context_state.original().filter(|_| !is_client || context_state.mode() != Some(mode))
    });
    // SAFETY: the program's own callback for this context, called as it would have been.
    own.map_or(0, |own| unsafe { own(ssl, session) })
}

/// Leaves the first session of a connection with the agent; does nothing if the program uses its
/// own.
fn leave(api: &Api, ssl: *mut Object, session: *mut Object) -> Option<()> {
    let environment = environment().filter(|_| !is_sharing_disabled())?;
    let visit = known(api, ssl)?.visit.take()?;
    let server = CString::new(visit.query.server.as_bytes()).ok()?;
    // SAFETY: the connection and session for which OpenSSL calls this.
    let (resumed, lifetime) = unsafe {
        let holds = (api.SSL_get_verify_mode)(ssl) & VERIFY_PEER != 0
            && (api.SSL_get_verify_result)(ssl) == VERIFIED
            && (api.SSL_get_certificate)(ssl).is_null()
            && is_good(api, session, &server);
        if !holds {
            return None;
        }
        ((api.SSL_session_reused)(ssl) == 1, (api.SSL_SESSION_get_ticket_lifetime_hint)(session))
    };
    // A resumed session was verified when it was offered.
    let chain = if resumed { visit.chain } else { checked(api, ssl, session)? };
    let verified = if resumed { visit.verified } else { visit.began };
    let age = now()?.saturating_sub(verified);
    let more = format!("&lifetime={lifetime}&age_ms={age}&opened={}", visit.opened);
    let bytes = chain::with_chain(api, session, &chain)?;
    state::mark_spent(api, session)?;
    let made = state::outdate(api, session);
    let mut agent = Socket::connect(environment);
    let left = agent.as_mut().is_some_and(|agent| link::put(agent, &visit.query, &more, &bytes));
    if !left {
        state::restore(api, session, made);
    }
    left.then_some(())
}

/// Returns the chain of a full handshake, if it is valid without the program's callbacks, which may
/// accept anything.
fn checked(api: &Api, ssl: *mut Object, session: *mut Object) -> Option<Vec<u8>> {
    // SAFETY: the caller's connection, whose chain is only read.
    let chain = unsafe { (api.SSL_get_peer_cert_chain)(ssl) };
    let good = !chain::has_callbacks(api, ssl)
        || chain::verifies(api, ssl, session, chain, Judge::OpenSsl);
    if good { chain::sent(api, ssl) } else { None }
}
