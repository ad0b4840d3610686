//! Chromium, driven through DevTools: its process, its TLS settings, and page loads in it.

pub(crate) mod devtools;
pub(crate) mod load;
pub(crate) mod process;
pub(crate) mod session;
pub(crate) mod tls;

pub(crate) use tls::BrowserTls;

/// Keeps Chromium from using the environment's or the system's proxy, which could not reach the
/// servers of the emulated network.
pub(crate) const DIRECT: &str = "--no-proxy-server";

/// Returns the argument that makes Chromium trust certificates of the authority with this key, and
/// of no other unknown authority.
pub(crate) fn trusting(fingerprint: &str) -> String {
    format!("--ignore-certificate-errors-spki-list={fingerprint}")
}
