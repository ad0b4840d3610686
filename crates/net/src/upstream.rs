//! Through a SOCKS5 proxy (RFC 1928, RFC 1929), with optimistic data: method negotiation, user name and password, the
//! request and the application's first flight leave together, and the proxy's replies are read afterwards, in order.
//!
//! * `Exchange` is the proxy protocol without IO.
//! * A `Lane` is one connection to the proxy on which it is spoken.
//! * `Opening` decides: which lane carries the stream, what may be sent on it and when.
//! * `Standings` remembers which proxies bear bytes ahead of their replies.
//!
//! **Nothing is lost or doubled.** What may be sent to a proxy twice is a whole ClientHello and nothing else: it has no
//! effect on a server but an answer, and the answer to one of them is thrown away unread. Early data behind it, a
//! request without TLS, half a ClientHello: of these each byte is given to one lane, once. So they go ahead of the
//! replies only to a proxy that is known to bear it. docs/optimistic.md has the whole argument.

mod error;
mod exchange;
mod lane;
mod opening;
mod standing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headstart_sessions::Context;
use zeroize::Zeroizing;

pub use error::{Step, UpstreamError};
pub(crate) use opening::Opening;
pub(crate) use standing::Standings;

/// Bytes of the application that are kept until the proxy has connected: a ClientHello and a few requests as early data.
/// What is more waits in the application.
pub const FLIGHT_MAX: usize = 16 * 1024;

/// How long a proxy may be silent, that is not yet known to bear early bytes, before a second connection asks it step by
/// step. Its replies to the first steps come at once, and its answer after one round trip and the origin's connection: Tor's
/// circuits have 1 s on most days. Too short costs a connection to the proxy; too long keeps the user waiting once.
pub const SILENCE_TIME: Duration = Duration::from_secs(3);

/// How long a proxy may take from being connected to its first reply, for which it has nothing to find out.
pub const NEGOTIATION_TIME: Duration = Duration::from_secs(10);

/// How long a proxy may take to connect to the target. Tor gives up after as long (its option SocksTimeout).
pub const REPLY_TIME: Duration = Duration::from_secs(120);

/// How long a proxy that objected to early bytes gets none. Proxies are seldom replaced, and asking costs an application
/// [`SILENCE_TIME`].
pub const OBJECTION_MEMORY: Duration = Duration::from_secs(60 * 60);

/// How long a proxy is trusted to bear early bytes since it was last seen to. Behind the same address there may then be
/// another one, and proving it costs nothing where it still holds.
pub const TRUST_MEMORY: Duration = Duration::from_secs(10 * 60);

/// A SOCKS5 proxy that all connections go through.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name, which is looked up on this machine, or address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// How to log in.
    pub login: Login,
    /// When bytes are sent ahead of its replies.
    pub optimistic: Optimistic,
    /// How long it may take.
    pub patience: Patience,
}

/// When bytes are sent ahead of a proxy's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Optimistic {
    /// Steps and ClientHello to any proxy that has not objected; all else to one that has answered that.
    #[default]
    Auto,
    /// Everything, always: the proxy is known to bear it, as Tor does.
    Always,
    /// Never: step by step, as RFC 1928 describes it.
    Never,
}

/// Makes the login of a context, or none where it has none.
pub type Derive = dyn Fn(&Context) -> Option<Credentials> + Send + Sync;

/// How to log in to a proxy.
#[derive(Clone, Default)]
pub enum Login {
    /// Not at all.
    #[default]
    None,
    /// With these, always.
    Fixed(Credentials),
    /// With those of the connection's context, so that the proxy can keep contexts apart.
    ByContext(Arc<Derive>),
}

impl Login {
    /// Whether it matters whose a connection is.
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

/// A user name and a password of RFC 1929; wiped when dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Zeroizing<Vec<u8>>,
    password: Zeroizing<Vec<u8>>,
}

impl Credentials {
    /// Bytes of either at most, and at least one (RFC 1929 section 2).
    pub const LENGTH_MAX: usize = 255;

    /// None if either is empty or too long.
    #[must_use]
    pub fn new(user: &[u8], password: &[u8]) -> Option<Self> {
        let fits = |text: &[u8]| (1..=Self::LENGTH_MAX).contains(&text.len());
        let owned = |text: &[u8]| Zeroizing::new(text.to_vec());
        (fits(user) && fits(password))
            .then(|| Self { user: owned(user), password: owned(password) })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// How long a proxy may take; [`Default`] is what the constants of this module say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// As [`SILENCE_TIME`].
    pub silence: Duration,
    /// As [`NEGOTIATION_TIME`].
    pub negotiation: Duration,
    /// As [`REPLY_TIME`].
    pub reply: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence: SILENCE_TIME, negotiation: NEGOTIATION_TIME, reply: REPLY_TIME }
    }
}

/// What happened on the way through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// The proxy was connected to.
    Connected,
    /// So many bytes of the application were sent ahead of the proxy's word that it has connected.
    SentEarly(usize),
    /// The proxy has connected to the target.
    Granted,
    /// The target has answered what was sent early.
    Answered,
    /// A second connection asks step by step.
    FellBack(Objection),
}

/// Why the proxy is asked again, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// It closed or reset the connection.
    Closed,
    /// It said something that is no reply.
    Garbage,
    /// It refused what it accepts of those who wait, maybe.
    Refused,
    /// It said nothing more.
    Silence,
}

impl Objection {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Garbage => "garbage",
            Self::Refused => "refused",
            Self::Silence => "silence",
        }
    }
}
