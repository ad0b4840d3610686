use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openssl::ssl::{ConnectConfiguration, SslConnector, SslRef, SslSession, SslSessionCacheMode};

use super::{SMALL_GROUPS, Trust, builder, configuration, sys};
use crate::base::failure::Failure;

/// State shared by two connections to one server: the session that the first leaves is the
/// second's.
///
/// Its ClientHellos are small enough for a SYN, with a ticket too.
pub struct Resumption {
    connector: SslConnector,
    session: Arc<Mutex<Option<SslSession>>>,
}

impl Resumption {
    /// # Errors
    /// A file of certificates that cannot be read.
    pub fn new(trust: &Trust) -> Result<Self, Failure> {
        let session = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&session);
        let mut builder = builder(trust, SMALL_GROUPS)?;
        let cache = SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL;
        builder.set_session_cache_mode(cache);
        // A server issues several; the last one will do.
        builder.set_new_session_callback(move |_, session| *lock(&kept) = Some(session));
        Ok(Self { connector: builder.build(), session })
    }

    /// # Errors
    /// Want of memory.
    pub fn configuration(&self) -> Result<ConnectConfiguration, Failure> {
        configuration(&self.connector)
    }

    /// Lets `ssl` resume what was left, if anything was; it is taken with that.
    ///
    /// # Errors
    /// Want of memory.
    pub fn resume(&self, ssl: &mut SslRef) -> Result<(), Failure> {
        let Some(session) = lock(&self.session).take() else { return Ok(()) };
        sys::set_session(ssl, &session)
            .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))
    }

    /// Returns true if a session was left.
    pub fn has_session(&self) -> bool {
        lock(&self.session).is_some()
    }
}

impl fmt::Debug for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumption").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
