//! The end of a handshake whose session could not be verified at its beginning for lack of roots:
//! curl loads them after its ClientHello has left.

use std::ffi::{c_int, c_long};

use super::api::{Api, Object, raise};
use super::chain::{self, Chain, Judge};
use super::guard;
use super::state::{self, ConnectionState, known};

// From openssl/ssl.h, sslerr.h, err.h and x509_vfy.h.
const BOTH_SHUT_DOWN: c_int = 3;
const LIB_SSL: c_int = 20;
const CERTIFICATE_VERIFY_FAILED: c_int = 134;
const UNTRUSTED: c_long = 27;

/// Settles the result of a handshake, with what was found at its end.
pub(super) fn after_handshake(ssl: *mut Object, done: c_int) -> c_int {
    if done != 1 {
        return done;
    }
    let refused = guard(|api| {
        settle(api, ssl);
        known(api, ssl)?.refused.get().then_some(api)
    });
    let Some(api) = refused else { return done };
    raise(api, LIB_SSL, CERTIFICATE_VERIFY_FAILED);
    -1
}

/// Settles a session of the agent's that has been offered: it is verified, if that could not be
/// done before, and it is of no use any more.
pub(super) fn settle(api: &Api, ssl: *mut Object) -> Option<()> {
    let connection = known(api, ssl).filter(|connection| connection.offers.replace(false))?;
    let is_unverified = connection.unverified.replace(false);
    // SAFETY: the caller's connection.
    if unsafe { (api.SSL_session_reused)(ssl) } != 1 {
        return None;
    }
    if is_unverified {
        verify(api, ssl, connection);
    }
    // SAFETY: as above; its session is the one that was resumed.
    let session = unsafe { (api.SSL_get_session)(ssl) };
    if !session.is_null() && state::is_spent(api, session) {
        state::outdate(api, session);
    }
    Some(())
}

/// Verifies the session. A failure acts like an invalid certificate in a handshake: nothing is sent
/// or received from then on.
fn verify(api: &Api, ssl: *mut Object, connection: &ConnectionState) {
    // Refused until proven valid, whatever happens here.
    connection.refused.set(true);
    let visit = connection.visit.take();
    if visit.as_ref().is_some_and(|visit| is_good(api, ssl, &visit.chain)) {
        connection.refused.set(false);
        connection.visit.set(visit);
    } else {
        close(api, ssl);
    }
}

fn is_good(api: &Api, ssl: *mut Object, encoded: &[u8]) -> bool {
    // SAFETY: the caller's connection, which owns the session.
    let session = unsafe { (api.SSL_get_session)(ssl) };
    let Some(chain) = Chain::read(api, encoded).filter(|_| !session.is_null()) else {
        return false;
    };
    chain::verifies(api, ssl, session, chain.get(), Judge::OpenSsl)
        && (!chain::has_callbacks(api, ssl)
            || chain::verifies(api, ssl, session, chain.get(), Judge::Program))
}

/// Closes a connection, also for a program that goes on by writing: its output is discarded.
fn close(api: &Api, ssl: *mut Object) {
    // SAFETY: the caller's connection. The program may use its BIO without a reference of its own,
    // so this leaves one reference too many.
    unsafe {
        (api.SSL_set_verify_result)(ssl, UNTRUSTED);
        (api.SSL_set_shutdown)(ssl, BOTH_SHUT_DOWN);
        let (own, nowhere) = ((api.SSL_get_wbio)(ssl), (api.BIO_new)((api.BIO_s_null)()));
        if !own.is_null() && !nowhere.is_null() && (api.BIO_up_ref)(own) == 1 {
            (api.SSL_set0_wbio)(ssl, nowhere);
        }
    }
}
