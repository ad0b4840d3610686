use std::fmt;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::context::Context;
use crate::origin::{Key, Server};

/// A session from a server, with the data that governs its use.
///
/// A holder of the session can pose as the server to its client and read its early data. So it is
/// wiped on drop, cannot be copied, and does not appear in logs.
pub struct Ticket {
    /// The engine's serialized session; opaque here.
    pub session: Zeroizing<Vec<u8>>,
    /// The negotiated application protocol, which early data has to use; one of those offered.
    pub alpn: Option<Vec<u8>>,
    /// Early data it allows, in bytes; 0 allows none.
    pub early_data_max: u32,
    /// Time from `received` during which it may be offered. Zero means unknown in TLS 1.2 (RFC 5077
    /// section 3.3), and unusable in 1.3 (RFC 8446 section 4.6.1).
    pub lifetime: Duration,
    /// Time at which it arrived.
    pub received: Instant,
    /// Time at which the server last proved its identity: in the handshake of the same connection,
    /// or if that was a resumption, [`Taken::verified`] of the resumed session.
    pub verified: Instant,
    /// Value of [`SessionStore::stamp`](crate::SessionStore::stamp) when the connection began.
    pub opened: Stamp,
    /// True if it may be offered more than once: sessions of TLS 1.2 may, tickets of TLS 1.3 may
    /// not, because connections that show the same ticket can be linked (RFC 8446 appendix C.4).
    pub reusable: bool,
}

impl Ticket {
    /// Returns the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.session.capacity() + self.alpn.as_ref().map_or(0, Vec::capacity)
    }

    /// Returns a copy, for a reusable ticket.
    pub(crate) fn copy(&self) -> Self {
        Self { session: self.session.clone(), alpn: self.alpn.clone(), ..*self }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("bytes", &self.session.len())
            .field("early_data_max", &self.early_data_max)
            .field("lifetime", &self.lifetime)
            .field("reusable", &self.reusable)
            .finish_non_exhaustive()
    }
}

/// A moment in the life of a store: nothing opened before it brings back what was forgotten after
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// Returns a number that a program can hand back; it counts the events in the store.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Restores a stamp from its [`number`](Self::number). One from the future would survive later
    /// forgetting: compare it with [`SessionStore::stamp`](crate::SessionStore::stamp).
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A ticket in the store.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) ticket: Ticket,
    /// End of its use, by the server's lifetime and the policy.
    pub(crate) end: Instant,
    /// Time at which it was put.
    pub(crate) put: Stamp,
}

/// A session for one connection to offer to one server.
///
/// If the handshake never began, [give it back](crate::SessionStore::give_back); if the server did
/// not resume it, [report that](crate::SessionStore::refused); otherwise it is spent.
pub struct Taken {
    pub(crate) key: Key,
    pub(crate) kept: Kept,
    pub(crate) early_data_max: u32,
    pub(crate) at: Stamp,
}

impl Taken {
    /// Returns the engine's serialized session.
    #[must_use]
    pub fn session(&self) -> &[u8] {
        &self.kept.ticket.session
    }

    /// Returns the negotiated application protocol.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.kept.ticket.alpn.as_deref()
    }

    /// Returns the early data that server and policy allow, in bytes; 0 allows none.
    #[must_use]
    pub const fn early_data_max(&self) -> u32 {
        self.early_data_max
    }

    /// Returns the time at which the server last proved its identity, for the tickets of a
    /// connection that resumes this session.
    #[must_use]
    pub const fn verified(&self) -> Instant {
        self.kept.ticket.verified
    }

    /// Returns the server it may be offered to.
    #[must_use]
    pub fn server(&self) -> Server<'_> {
        self.key.server()
    }

    /// Returns its owner.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.key.context
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("server", &self.key.server())
            .field("ticket", &self.kept.ticket)
            .finish_non_exhaustive()
    }
}

/// Number of tickets a client should ask for: the ticket_request of its ClientHello (RFC 9149
/// section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketsWanted {
    /// Number after a full handshake.
    pub new_session: u8,
    /// Number after a resumption.
    pub resumption: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_tickets() {
        let now = Instant::now();
        let ticket = Ticket {
            session: Zeroizing::new(b"SECRET".to_vec()),
            alpn: None,
            early_data_max: 0,
            lifetime: Duration::from_secs(1),
            received: now,
            verified: now,
            opened: Stamp(0),
            reusable: false,
        };
        let as_numbers = "83, 69, 67";
        assert!(
            format!("{:?}", ticket.session.to_vec()).contains(as_numbers),
            "the secret in numbers"
        );
        let shown = format!("{:?}", Kept { ticket, end: now, put: Stamp(0) });
        assert!(!shown.contains("SECRET") && !shown.contains(as_numbers), "{shown}");
    }
}
