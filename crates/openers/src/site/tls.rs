//! TLS of sites: a certificate for each host, tickets, and early data.

use std::sync::Arc;

use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::{CertifiedKey, ServerConfig, ServerContext, SharedRing};

use super::authority::Authority;
use super::description::Site;
use crate::error::PeerError;
use crate::fast_open::engine::{EARLY_DATA_MAX, filter, now, unusable};

/// Protocol that [`super::http2`] serves, in ALPN (RFC 7301).
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Makes the context of all hosts. It takes early data, as bodies are the same for everybody; other
/// names get the certificate of the first host.
pub(super) fn context(
    sites: &[Site],
    authority: &Authority,
    http1_only: bool,
) -> Result<ServerContext, PeerError> {
    let hosts = sites.iter().flat_map(Site::hosts);
    let certificates = hosts.map(|host| certified(authority, &host.name));
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    let ring = KeyRing::generate(now(), PERIOD).map_err(unusable)?;
    let mut config = ServerConfig::new(certificates, Arc::new(SharedRing::new(ring)));
    let protocols = [HTTP_2, HTTP_1_1].into_iter().skip(usize::from(http1_only));
    config.alpn = protocols.map(<[u8]>::to_vec).collect();
    config.early_data_max = EARLY_DATA_MAX;
    config.replay = Arc::new(filter()?);
    ServerContext::new(&config).map_err(unusable)
}

fn certified(authority: &Authority, host: &str) -> Result<CertifiedKey, PeerError> {
    let [chain, key] = authority.issue(host)?.to_pem(authority)?;
    CertifiedKey::from_pem(&chain, &key).map_err(unusable)
}
