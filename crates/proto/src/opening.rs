//! The ways to open a connection, which everything that counts, compares or simulates them shares.

use core::fmt;
use core::str::FromStr;

/// Transport of the first flight of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// TCP, after its handshake.
    #[default]
    Tcp,
    /// TCP, over a connection that was opened before it was needed (`docs/spares.md`).
    Spare,
    /// The SYN, by the kernel's cookie (RFC 7413). A third party can link the cookies.
    FastOpen,
    /// The SYN, by a private cookie (Sy et al. 2020, `docs/fop.md`).
    Fop,
    /// UDP while TCP connects (draft-joseph-tls-turbotls-00, `docs/draft-headstart-turbotls.md`).
    TurboTls,
    /// QUIC (RFC 9000), as a baseline.
    Quic,
    /// A SOCKS5 proxy.
    Proxy {
        /// True if the first flight leaves before the proxy has replied (`docs/optimistic.md`).
        optimistic: bool,
    },
}

/// Use of TLS by an opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Session {
    /// No TLS: the first flight is the request.
    Clear,
    /// A full handshake.
    #[default]
    Fresh,
    /// A resumed session; the request waits for the server's Finished.
    Resumed,
    /// A resumed session; the request leaves as early data (RFC 8446 section 2.3).
    EarlyData,
}

/// A way to open a connection.
///
/// Its name is that of the carrier and, unless the handshake is a full one, that of the session
/// behind a hyphen: `turbo`, `plain-resumed`, `fop-0rtt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opening {
    /// Transport of the first flight.
    pub carrier: Carrier,
    /// Use of TLS.
    pub session: Session,
}

/// A name that no carrier, session or opening has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOpening;

impl Carrier {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Spare,
        Self::FastOpen,
        Self::Fop,
        Self::TurboTls,
        Self::Quic,
        Self::Proxy { optimistic: false },
        Self::Proxy { optimistic: true },
    ];

    /// Stable name, for metrics, results and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "plain",
            Self::Spare => "spare",
            Self::FastOpen => "tfo",
            Self::Fop => "fop",
            Self::TurboTls => "turbo",
            Self::Quic => "quic",
            Self::Proxy { optimistic: false } => "upstream",
            Self::Proxy { optimistic: true } => "optimistic",
        }
    }

    /// Round trips before the first flight leaves: to the server, or with a proxy to the proxy.
    ///
    /// A proxy that is waited for costs one for TCP, one for its method, and one for its reply,
    /// which also takes what the proxy needs to connect.
    #[must_use]
    pub const fn round_trips(self) -> u32 {
        match self {
            Self::Spare | Self::FastOpen | Self::Fop | Self::TurboTls | Self::Quic => 0,
            Self::Tcp | Self::Proxy { optimistic: true } => 1,
            Self::Proxy { optimistic: false } => 3,
        }
    }

    /// Returns true if the first flight leaves with the SYN.
    #[must_use]
    pub const fn is_in_syn(self) -> bool {
        matches!(self, Self::FastOpen | Self::Fop)
    }
}

impl Session {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clear, Self::Fresh, Self::Resumed, Self::EarlyData];

    /// Stable name; that of a full handshake is empty.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Fresh => "",
            Self::Resumed => "resumed",
            Self::EarlyData => "0rtt",
        }
    }

    /// Round trips from the first flight until the first byte of the request leaves.
    #[must_use]
    pub const fn round_trips(self) -> u32 {
        match self {
            Self::Fresh | Self::Resumed => 1,
            Self::Clear | Self::EarlyData => 0,
        }
    }

    /// Returns true if a session of an earlier connection is used.
    #[must_use]
    pub const fn is_resumed(self) -> bool {
        matches!(self, Self::Resumed | Self::EarlyData)
    }
}

impl Opening {
    /// An opening by `carrier` with `session`.
    #[must_use]
    pub const fn new(carrier: Carrier, session: Session) -> Self {
        Self { carrier, session }
    }

    /// All combinations.
    pub fn all() -> impl Iterator<Item = Self> {
        Carrier::ALL.into_iter().flat_map(|carrier| {
            Session::ALL.into_iter().map(move |session| Self::new(carrier, session))
        })
    }

    /// Round trips before the first byte of the request leaves.
    ///
    /// ```
    /// use headstart_proto::{Carrier, Opening, Session};
    ///
    /// assert_eq!(Opening::default().round_trips(), 2); // TLS 1.3 over TCP
    /// assert_eq!(Opening::new(Carrier::TurboTls, Session::Fresh).round_trips(), 1);
    /// assert_eq!(Opening::new(Carrier::Fop, Session::EarlyData).round_trips(), 0);
    /// ```
    #[must_use]
    pub const fn round_trips(self) -> u32 {
        self.carrier.round_trips() + self.session.round_trips()
    }
}

impl FromStr for Carrier {
    type Err = UnknownOpening;

    fn from_str(text: &str) -> Result<Self, UnknownOpening> {
        Self::ALL.into_iter().find(|carrier| carrier.name() == text).ok_or(UnknownOpening)
    }
}

impl FromStr for Session {
    type Err = UnknownOpening;

    fn from_str(text: &str) -> Result<Self, UnknownOpening> {
        Self::ALL.into_iter().find(|session| session.name() == text).ok_or(UnknownOpening)
    }
}

impl FromStr for Opening {
    type Err = UnknownOpening;

    fn from_str(text: &str) -> Result<Self, UnknownOpening> {
        match text.split_once('-') {
            None => Ok(Self::new(text.parse()?, Session::Fresh)),
            Some((_, "")) => Err(UnknownOpening),
            Some((carrier, session)) => Ok(Self::new(carrier.parse()?, session.parse()?)),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.carrier.name())?;
        match self.session {
            Session::Fresh => Ok(()),
            session => write!(f, "-{}", session.name()),
        }
    }
}

impl fmt::Display for UnknownOpening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown opening")
    }
}

impl core::error::Error for UnknownOpening {}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_are_unique_and_parse() {
        let names: BTreeSet<_> = Opening::all().map(|opening| opening.to_string()).collect();
        assert_eq!(names.len(), Carrier::ALL.len() * Session::ALL.len());
        for opening in Opening::all() {
            assert_eq!(opening.to_string().parse(), Ok(opening));
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        for wrong in ["", "tcp", "turbo-", "turbo-fresh", "-0rtt", "turbo-0rtt-", "Turbo"] {
            assert_eq!(wrong.parse::<Opening>(), Err(UnknownOpening), "{wrong}");
        }
    }

    #[test]
    fn round_trips_before_the_request() {
        for (name, trips) in [
            ("plain", 2),
            ("plain-clear", 1),
            ("plain-0rtt", 1),
            ("spare", 1),
            ("turbo", 1),
            ("tfo-0rtt", 0),
            ("quic-resumed", 1),
            ("upstream", 4),
            ("optimistic", 2),
        ] {
            assert_eq!(name.parse().map(Opening::round_trips), Ok(trips), "{name}");
        }
    }

    #[test]
    fn openings_in_a_syn_and_resumed_ones_are_told_from_others() {
        let in_syn = Carrier::ALL.into_iter().filter(|carrier| carrier.is_in_syn());
        assert!(in_syn.eq([Carrier::FastOpen, Carrier::Fop]));
        let resumed = Session::ALL.into_iter().filter(|session| session.is_resumed());
        assert!(resumed.eq([Session::Resumed, Session::EarlyData]));
    }

    #[test]
    fn carriers_and_errors_are_shown_in_words() {
        assert!(Carrier::ALL.into_iter().all(|carrier| carrier.to_string() == carrier.name()));
        assert_eq!(UnknownOpening.to_string(), "unknown opening");
    }
}
