//! TLS by OpenSSL without IO, and the keys that all servers of a site share.
//!
//! * [`keyring`] holds the secrets that tickets and cookies are made with.

pub mod keyring;
