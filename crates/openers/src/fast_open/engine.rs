//! The contexts of both sides, as the other arms have them: TLS 1.3, one group, certificates of the
//! lab.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::limits::{REPLAY_ENTRIES, REPLAY_LIFE};
use headstart_tls::{
    CertifiedKey, ClientConfig, ClientContext, CookiePolicy, MemoryFilter, ServerConfig,
    ServerContext, SharedRing, Trust, Version,
};
use openssl::x509::X509;

use crate::arm::{Arm, Suite};
use crate::error::PeerError;
use crate::identity::Identity;

/// Early data that the server takes of one connection, in bytes, as in the other arms.
pub(crate) const EARLY_DATA_MAX: u32 = 16 * 1024;

/// A server's context, and the keys of its cookies and tickets.
pub(super) struct Served {
    pub(super) tls: Arc<ServerContext>,
    pub(super) keys: Arc<SharedRing>,
    pub(super) cookie_life: Duration,
}

/// Makes the context of a server; with this lifetime of cookies, if the arm has cookies of its own.
pub(super) fn server(
    arm: Arm,
    suite: Suite,
    identity: &Identity,
    cookie_life: Option<Duration>,
) -> Result<Served, PeerError> {
    let mut chain = Vec::new();
    for certificate in &identity.certificates {
        chain.extend(certificate.to_pem()?);
    }
    let key = identity.key.private_key_to_pem_pkcs8()?;
    let certified = CertifiedKey::from_pem(&chain, &key).map_err(unusable)?;
    let ring = KeyRing::generate(now(), PERIOD).map_err(unusable)?;
    let keys = Arc::new(SharedRing::new(ring));
    let mut config = ServerConfig::new(vec![certified], Arc::clone(&keys));
    config.groups = Some(suite.group().to_owned());
    config.min_version = Version::Tls13;
    if arm.sends_early_data() {
        config.early_data_max = EARLY_DATA_MAX;
        config.replay = Arc::new(filter()?);
    }
    let mut policy = CookiePolicy::default();
    if let Some(life) = cookie_life {
        policy.life = life;
    }
    config.cookies = arm.has_private_cookies().then_some(policy);
    let tls = Arc::new(ServerContext::new(&config).map_err(unusable)?);
    Ok(Served { tls, keys, cookie_life: policy.life })
}

/// A filter that takes early data from the start: it has its own tickets only, and none of them is
/// older than itself. The usual one waits for twenty seconds, in which a run would measure nothing.
pub(crate) fn filter() -> Result<MemoryFilter, PeerError> {
    let start = Instant::now();
    MemoryFilter::with_clock(REPLAY_ENTRIES, move || start.elapsed() + REPLAY_LIFE)
        .map_err(unusable)
}

pub(super) fn client(suite: Suite, roots: &[X509]) -> Result<ClientContext, PeerError> {
    let mut pem = Vec::new();
    for root in roots {
        pem.extend(root.to_pem()?);
    }
    let mut config = ClientConfig::new(Trust::Roots(pem));
    config.groups = Some(suite.group().to_owned());
    config.min_version = Version::Tls13;
    ClientContext::new(&config).map_err(unusable)
}

/// The time of day, by which cookies and tickets expire.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.unwrap_or_default().as_secs())
}

pub(crate) fn unusable(error: impl std::fmt::Display) -> PeerError {
    PeerError::new(format!("cannot use the engine of headstart: {error}"))
}
