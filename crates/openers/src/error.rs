use std::fmt;

use openssl::error::ErrorStack;

/// Reason why a client or server cannot run, with a hint.
///
/// A connection that fails is no such error: it is a [`Trial`](crate::Trial) that is not ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerError {
    text: String,
    hint: Option<String>,
}

impl PeerError {
    /// Without a hint.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Returns advice for the user, where there is any.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for PeerError {}

impl From<ErrorStack> for PeerError {
    fn from(error: ErrorStack) -> Self {
        Self::new(format!("cannot use OpenSSL: {error}"))
    }
}

impl From<rcgen::Error> for PeerError {
    fn from(error: rcgen::Error) -> Self {
        Self::new(format!("cannot make a certificate: {error}"))
    }
}

impl From<rustls::Error> for PeerError {
    fn from(error: rustls::Error) -> Self {
        Self::new(format!("cannot use rustls: {error}"))
    }
}
