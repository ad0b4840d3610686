//! The round-trip ledger: what comes before the first request leaves.

/// How a connection is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Opening {
    /// TCP, then TLS.
    #[default]
    Plain,
    /// TCP Fast Open (RFC 7413) with the server's cookie.
    FastOpen,
    /// Fast Open with a private cookie (Sy et al. 2019).
    FastOpenPrivacy,
    /// TurboTLS (Aguilar-Melchor et al. 2023).
    TurboTls,
    /// QUIC (RFC 9000), as a baseline.
    Quic,
}

/// What of TLS is known from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// The server does not speak TLS.
    NoTls,
    /// A full handshake.
    None,
    /// Resumed; the request waits for the server's Finished.
    Resumed,
    /// Resumed; the request leaves as early data.
    EarlyData,
}

impl Opening {
    /// Round trips before the first byte of TLS, or of the request where there is no TLS, leaves.
    #[must_use]
    pub fn round_trips(self) -> u32 {
        u32::from(self == Self::Plain)
    }
}

impl Session {
    /// Round trips from then until the first byte of the request leaves.
    #[must_use]
    pub fn round_trips(self) -> u32 {
        match self {
            Self::None | Self::Resumed => 1,
            Self::NoTls | Self::EarlyData => 0,
        }
    }
}
