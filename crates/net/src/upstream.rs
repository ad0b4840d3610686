//! Connections through a SOCKS5 proxy (RFC 1928, RFC 1929), with optimistic data: method
//! negotiation, user name and password, the request and the application's first flight leave
//! together, and the proxy's replies are read afterwards, in order.
//!
//! * `Exchange` is the proxy protocol without IO.
//! * A `Lane` is one connection to the proxy that speaks this protocol.
//! * An `Opening` decides which lane carries the stream, and what may be sent on it and when.
//! * `Standings` remembers which proxies support bytes ahead of their replies.
//!
//! **Nothing is lost or doubled.** The only bytes that may be sent to a proxy twice are a whole
//! ClientHello: all it does to a server is elicit an answer, and one of the two answers is
//! discarded unread. Each byte of early data behind it, of a request without TLS or of half a
//! ClientHello is given to one lane, once. Such bytes therefore go ahead of the replies only to a
//! proxy known to support that. docs/optimistic.md has the whole argument.

mod error;
mod exchange;
mod lane;
mod opening;
mod standing;
#[cfg(test)]
#[cfg(feature = "dns")]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headstart_sessions::Context;
use zeroize::Zeroizing;

pub use crate::report::{Objection, UpstreamEvent};
pub use error::{Step, UpstreamError};
pub(crate) use opening::Opening;
pub(crate) use standing::Standings;

/// Bytes of the application that are kept until the proxy has connected: room for a ClientHello and
/// a few requests as early data. Anything more waits in the application.
const FLIGHT_MAX: usize = 16 * 1024;

/// Time that a proxy not known to support early bytes may be silent before a second connection goes
/// step by step. Its first replies come immediately, and its final reply takes one round trip plus
/// the origin's connection: on Tor circuits about 1 s on most days. Too short costs a connection to
/// the proxy; too long keeps the user waiting once.
pub const SILENCE_TIME: Duration = Duration::from_secs(3);

/// Time from connecting to the proxy to its first reply, which needs no lookup.
pub const NEGOTIATION_TIME: Duration = Duration::from_secs(10);

/// Time that a proxy may take to connect to the target. Tor's limit (its option SocksTimeout) is
/// the same.
pub const REPLY_TIME: Duration = Duration::from_secs(120);

/// Time without early bytes after a proxy objected to them. Proxies are seldom replaced, and
/// another try costs an application [`SILENCE_TIME`].
const OBJECTION_MEMORY: Duration = Duration::from_secs(60 * 60);

/// Time that a proxy is trusted to support early bytes since it last did. Another proxy may replace
/// it behind the same address, and proving support costs nothing where it still holds.
const TRUST_MEMORY: Duration = Duration::from_secs(10 * 60);

/// A SOCKS5 proxy that all connections go through.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Name, which is resolved on this machine, or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Login for the proxy.
    pub login: Login,
    /// Policy for sending bytes ahead of its replies.
    pub optimistic: Optimistic,
    /// Timeouts.
    pub timeouts: Timeouts,
}

/// Policy for sending bytes ahead of a proxy's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Optimistic {
    /// Sends steps and ClientHello ahead unless the proxy has objected, and all else once it has
    /// answered those.
    #[default]
    Auto,
    /// Sends everything ahead, always: the proxy is known to support it, as Tor does.
    Always,
    /// Sends nothing ahead: goes step by step, as RFC 1928 describes it.
    Never,
}

/// Derives the login of a context; `None` if it has none.
pub type Derive = dyn Fn(&Context) -> Option<Credentials> + Send + Sync;

/// Login for a proxy.
#[derive(Clone, Default)]
pub enum Login {
    /// No login.
    #[default]
    None,
    /// These credentials, always.
    Fixed(Credentials),
    /// Credentials derived from the connection's context, so that the proxy can keep contexts
    /// apart.
    ByContext(Arc<Derive>),
}

impl Login {
    /// Returns true if the login depends on the connection's context.
    #[must_use]
    pub const fn is_by_context(&self) -> bool {
        matches!(self, Self::ByContext(_))
    }

    fn credentials_for(&self, context: &Context) -> Option<Credentials> {
        match self {
            Self::None => None,
            Self::Fixed(credentials) => Some(credentials.clone()),
            Self::ByContext(derive) => derive(context),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(..)",
            Self::ByContext(_) => "ByContext(..)",
        })
    }
}

/// User name and password (RFC 1929); wiped when dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Zeroizing<Vec<u8>>,
    password: Zeroizing<Vec<u8>>,
}

impl Credentials {
    /// Largest length in bytes of either; the smallest is 1 (RFC 1929 section 2).
    pub const LENGTH_MAX: usize = 255;

    /// Returns `None` if either is empty or too long.
    #[must_use]
    pub fn new(user: &[u8], password: &[u8]) -> Option<Self> {
        if [user, password].iter().any(|text| !(1..=Self::LENGTH_MAX).contains(&text.len())) {
            return None;
        }
        let [user, password] = [user, password].map(|text| Zeroizing::new(text.to_vec()));
        Some(Self { user, password })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Timeouts for a proxy; [`Default`] takes the constants of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// See [`SILENCE_TIME`].
    pub silence: Duration,
    /// See [`NEGOTIATION_TIME`].
    pub negotiation: Duration,
    /// See [`REPLY_TIME`].
    pub reply: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { silence: SILENCE_TIME, negotiation: NEGOTIATION_TIME, reply: REPLY_TIME }
    }
}
