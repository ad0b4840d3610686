//! OpenSSL on both sides: TLS 1.3, one group and one cipher, so that nothing is left to negotiate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslSession, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;

use crate::arm::Suite;
use crate::identity::Identity;
use crate::kept::Kept;
use crate::sys;

/// Early data that the server takes of one connection, in bytes: OpenSSL's own default to receive.
const EARLY_DATA_MAX: u32 = 16 * 1024;

/// TLS states that are made ahead: more connections than that do not begin at once in any
/// experiment that looks at single ones. Some 20 kB each.
const READY: usize = 16;

const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// The context of a server; with `early`, tickets allow early data, and each is good once.
pub(crate) fn server(
    suite: Suite,
    identity: &Identity,
    early: bool,
) -> Result<SslContext, ErrorStack> {
    Ok(server_builder(suite, identity, early)?.build())
}

/// The same with early data, which takes the external keys that `find` knows.
pub(crate) fn server_with_keys(
    suite: Suite,
    identity: &Identity,
    find: sys::FindKey,
) -> Result<SslContext, ErrorStack> {
    let mut tls = server_builder(suite, identity, true)?;
    sys::find_keys(&mut tls, EARLY_DATA_MAX, find)?;
    Ok(tls.build())
}

fn server_builder(
    suite: Suite,
    identity: &Identity,
    early: bool,
) -> Result<SslContextBuilder, ErrorStack> {
    let mut tls = context(SslMethod::tls_server(), suite)?;
    let mut certificates = identity.certificates.iter();
    if let Some(own) = certificates.next() {
        tls.set_certificate(own)?;
    }
    for issuer in certificates {
        tls.add_extra_chain_cert(issuer.clone())?;
    }
    tls.set_private_key(&identity.key)?;
    tls.set_session_id_context(b"headstart lab")?;
    if early {
        tls.set_max_early_data(EARLY_DATA_MAX)?;
    }
    Ok(tls)
}

fn context(method: SslMethod, suite: Suite) -> Result<SslContextBuilder, ErrorStack> {
    let mut tls = SslContext::builder(method)?;
    tls.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    tls.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    tls.set_ciphersuites(CIPHER)?;
    tls.set_groups_list(suite.group())?;
    tls.set_mode(SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::ENABLE_PARTIAL_WRITE);
    Ok(tls)
}

/// TLS states made before their connections come. A ClientHello over TCP comes after its
/// connection, so that the state is there in any case; over UDP it is the first thing to come, and
/// would wait for it.
pub(crate) struct Prepared {
    context: SslContext,
    ready: Mutex<Vec<Ssl>>,
}

impl Prepared {
    pub(crate) fn new(context: SslContext) -> Result<Self, ErrorStack> {
        let prepared = Self { context, ready: Mutex::default() };
        (0..READY).try_for_each(|_| prepared.refill())?;
        Ok(prepared)
    }

    pub(crate) fn take(&self) -> Result<Ssl, ErrorStack> {
        let ready = self.lock().pop();
        ready.map_or_else(|| self.make(), Ok)
    }

    /// Prepares the next connection, after one has ended.
    pub(crate) fn refill(&self) -> Result<(), ErrorStack> {
        if self.lock().len() < READY {
            let made = self.make()?;
            self.lock().push(made);
        }
        Ok(())
    }

    fn make(&self) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_accept_state();
        Ok(ssl)
    }

    /// No call can leave the list half changed.
    fn lock(&self) -> MutexGuard<'_, Vec<Ssl>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's side: its context, and the sessions of earlier connections.
#[derive(Debug)]
pub(crate) struct Tls {
    context: SslContext,
    name: String,
    sessions: Option<Arc<Kept<SslSession>>>,
}

/// A client's TLS state of one connection, and the session it offers.
pub(crate) struct Connection {
    pub(crate) ssl: Ssl,
    pub(crate) session: Option<SslSession>,
}

impl Connection {
    /// Offers an external key instead of a session, and allows early data with it.
    pub(crate) fn offer_key(&mut self, identity: &[u8], secret: &[u8]) -> Result<(), ErrorStack> {
        let session = sys::key_session(&self.ssl, secret, EARLY_DATA_MAX)?;
        sys::offer_key(&mut self.ssl, identity, session.clone())?;
        self.session = Some(session);
        Ok(())
    }
}

impl Tls {
    /// Trusts `roots` for `name`; with `resumes`, sessions are kept and each is used once.
    pub(crate) fn client(
        suite: Suite,
        roots: Vec<X509>,
        name: &str,
        resumes: bool,
    ) -> Result<Self, ErrorStack> {
        let mut tls = context(SslMethod::tls_client(), suite)?;
        let mut store = X509StoreBuilder::new()?;
        for root in roots {
            store.add_cert(root)?;
        }
        tls.set_cert_store(store.build());
        tls.set_verify(SslVerifyMode::PEER);
        let sessions = resumes.then(|| {
            let sessions = Arc::<Kept<_>>::default();
            let kept = Arc::clone(&sessions);
            tls.set_session_cache_mode(
                SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL,
            );
            tls.set_new_session_callback(move |_, session| {
                if let Some(copy) = sys::copy_session(&session) {
                    kept.put(copy);
                }
            });
            sessions
        });
        Ok(Self { context: tls.build(), name: name.to_owned(), sessions })
    }

    /// A new connection, and what it resumes.
    pub(crate) fn connection(&self) -> Result<Connection, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_hostname(&self.name)?;
        ssl.param_mut().set_host(&self.name)?;
        let session = self.sessions.as_ref().and_then(|sessions| sessions.take());
        if let Some(session) = &session {
            sys::set_session(&mut ssl, session)?;
        }
        ssl.set_connect_state();
        Ok(Connection { ssl, session })
    }

    pub(crate) fn forget(&self) {
        if let Some(sessions) = &self.sessions {
            sessions.clear();
        }
    }
}
