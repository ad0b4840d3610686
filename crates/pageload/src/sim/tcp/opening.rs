//! The round-trip ledger: what comes before the first request leaves.

/// How a connection is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Opening {
    /// TCP, then TLS.
    #[default]
    Plain,
    /// TCP Fast Open (RFC 7413), where the client has the server's cookie.
    FastOpen,
    /// Fast Open with private cookies (Sy et al. 2019), where the client has one.
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
    /// Whole round trips before the first request byte leaves.
    pub(super) fn round_trips(self, session: Session, has_cookie: bool) -> u32 {
        let tls = match session {
            Session::None | Session::Resumed => 1,
            Session::NoTls | Session::EarlyData => 0,
        };
        let tcp = match self {
            Self::Plain => 1,
            Self::FastOpen | Self::FastOpenPrivacy => u32::from(!has_cookie),
            // Its first flight needs no state; without TLS there is nothing to send beside TCP.
            Self::TurboTls => u32::from(session == Session::NoTls),
            Self::Quic => 0,
        };
        tcp + tls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger() {
        use Opening::{FastOpen, FastOpenPrivacy, Plain, Quic, TurboTls};
        use Session::{EarlyData, NoTls, None, Resumed};
        let ledger = [
            (Plain, None, false, 2),
            (Plain, Resumed, true, 2),
            (Plain, EarlyData, false, 1),
            (Plain, NoTls, true, 1),
            (FastOpen, NoTls, true, 0),
            (FastOpen, None, false, 2),
            (FastOpenPrivacy, None, true, 1),
            (FastOpenPrivacy, EarlyData, true, 0),
            (FastOpenPrivacy, EarlyData, false, 1),
            (TurboTls, None, false, 1),
            (TurboTls, EarlyData, false, 0),
            (TurboTls, NoTls, false, 1),
            (Quic, None, false, 1),
            (Quic, EarlyData, false, 0),
        ];
        for (opening, session, has_cookie, round_trips) in ledger {
            let said = opening.round_trips(session, has_cookie);
            assert_eq!(said, round_trips, "{opening:?}, {session:?}, cookie: {has_cookie}");
        }
    }
}
