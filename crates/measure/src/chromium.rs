//! Chromium, driven through DevTools: its process, its TLS settings, and page loads in it.

pub(crate) mod devtools;
pub(crate) mod load;
pub(crate) mod process;
pub(crate) mod session;
pub(crate) mod tls;

pub(crate) use tls::BrowserTls;

/// Has Chromium ask no proxy of the environment's or the system's: none finds what is served here.
pub(crate) const DIRECT: &str = "--no-proxy-server";

/// The argument that makes Chromium trust certificates by the authority with this key, and no
/// others beside.
pub(crate) fn trusting(fingerprint: &str) -> String {
    format!("--ignore-certificate-errors-spki-list={fingerprint}")
}
