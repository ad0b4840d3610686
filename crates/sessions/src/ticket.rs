use std::fmt;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::context::Context;
use crate::origin::{Key, Server};

/// A session that a server has handed out, with what decides about its use.
///
/// Who has the session can be the server to its client and read its early data. So it is wiped when
/// it is dropped, cannot be copied, and does not show itself in logs.
pub struct Ticket {
    /// Bytes that the engine makes a session of; nobody looks into them here.
    pub session: Zeroizing<Vec<u8>>,
    /// The application protocol that was agreed on, of which early data has to be; one of those
    /// offered.
    pub alpn: Option<Vec<u8>>,
    /// Early data that it allows, in bytes; 0 allows none.
    pub early_data_max: u32,
    /// Time that it may be offered from `received` on. Zero says nothing in TLS 1.2 (RFC 5077
    /// section 3.3), and in 1.3 that it must not be used (RFC 8446 section 4.6.1).
    pub lifetime: Duration,
    /// When it came.
    pub received: Instant,
    /// When the server has last proven who it is: in the handshake of the same connection, or if
    /// that was a resumption, [`Taken::verified`] of the session that it resumed.
    pub verified: Instant,
    /// [`SessionStore::stamp`](crate::SessionStore::stamp), from when the connection began.
    pub opened: Stamp,
    /// True if the client could have shown a certificate: then nobody else must use it.
    pub client_certificate: bool,
    /// True if it may be offered more than once: sessions of TLS 1.2 may, tickets of TLS 1.3 may
    /// not, because the connections that show the same ticket can be linked (RFC 8446 appendix
    /// C.4).
    pub reusable: bool,
}

impl Ticket {
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.session.capacity() + self.alpn.as_ref().map_or(0, Vec::capacity)
    }

    /// Another of the same; for those that may be offered more than once.
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

/// A moment in the life of a store: what was forgotten after it, nothing from before it brings
/// back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// As a number, for a program that brings it back; it says how much has happened in the store.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Makes a stamp of what [`number`](Self::number) gave. One from the future would outlive what
    /// is yet to be forgotten: compare it with [`SessionStore::stamp`](crate::SessionStore::stamp).
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A ticket on the shelf.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) ticket: Ticket,
    /// When it is over, by what the server said and the policy.
    pub(crate) end: Instant,
    /// When it was put here.
    pub(crate) put: Stamp,
}

/// A session to be offered to one server by one connection.
///
/// If the handshake never began, it can be [given back](crate::SessionStore::give_back); if the
/// server did not take it, [that is worth knowing](crate::SessionStore::refused); and else it is
/// spent.
pub struct Taken {
    pub(crate) key: Key,
    pub(crate) kept: Kept,
    pub(crate) early_data_max: u32,
    pub(crate) at: Stamp,
}

impl Taken {
    /// Returns the bytes that the engine makes a session of.
    #[must_use]
    pub fn session(&self) -> &[u8] {
        &self.kept.ticket.session
    }

    /// The application protocol that was agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.kept.ticket.alpn.as_deref()
    }

    /// Early data that server and policy allow, in bytes; 0 allows none.
    #[must_use]
    pub const fn early_data_max(&self) -> u32 {
        self.early_data_max
    }

    /// When the server has last proven who it is, for the tickets of a connection that resumes this
    /// session.
    #[must_use]
    pub const fn verified(&self) -> Instant {
        self.kept.ticket.verified
    }

    /// Whom it may be offered to.
    #[must_use]
    pub fn server(&self) -> Server<'_> {
        self.key.server()
    }

    /// Returns the owner.
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

/// Number of tickets that a client should ask for: the ticket_request of its ClientHello (RFC 9149
/// section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketsWanted {
    /// If there is a full handshake.
    pub new_session: u8,
    /// If a session is resumed.
    pub resumption: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_do_not_show_themselves() {
        let now = Instant::now();
        let ticket = Ticket {
            session: Zeroizing::new(b"SECRET".to_vec()),
            alpn: None,
            early_data_max: 0,
            lifetime: Duration::from_secs(1),
            received: now,
            verified: now,
            opened: Stamp(0),
            client_certificate: false,
            reusable: false,
        };
        let as_numbers = "83, 69, 67";
        assert!(
            format!("{:?}", ticket.session.to_vec()).contains(as_numbers),
            "what is looked for"
        );
        let shown = format!("{:?}", Kept { ticket, end: now, put: Stamp(0) });
        assert!(!shown.contains("SECRET") && !shown.contains(as_numbers), "{shown}");
    }
}
