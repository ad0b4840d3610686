//! The properties of every state.

use super::moves::may_write;
use super::{End, World};
use crate::limits::{CLIENT_BYTES, SERVER_BYTES};
use crate::model::network::{Network, WRITES};

/// A property of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Claim {
    /// The application receives a prefix of one origin's stream.
    ServerStream,
    /// Each origin receives a prefix of the client stream.
    ClientStream,
    /// One ClientHello is given to origins once, but for the cases of KNOWN-LIMITS.md.
    HelloOnce,
    /// The application is reset in the committed cases of docs/draft-headstart-turbotls.md
    /// (#failure-handling) alone.
    Reset,
    /// A request is answered at most once, to the address it came from.
    OneAnswer,
    /// An answer is at most three times as long as its request.
    ThreeTimes,
    /// Whatever happened to datagrams, both streams end once nothing is left to wait for.
    Finishes,
    /// Sessions hold no more than `limits` says, and none outlives its time.
    Limits,
    /// A running session is not given up within `SESSION_LIFE`.
    Promise,
    /// No datagram leaves once TCP is connected, and nothing is written to TCP before.
    Order,
}

impl World {
    pub(in crate::model) fn holds(&self, claim: Claim) -> bool {
        self.broken & (1 << claim as u16) == 0
    }

    pub(super) fn claim(&mut self, claim: Claim, holds: bool) {
        self.broken |= u16::from(!holds) << claim as u16;
    }

    /// Returns true if both sides got everything over one origin, over UDP and TCP.
    pub(in crate::model) fn is_joined(&self, model: &Network) -> bool {
        self.committed && self.end == Some(End::Finished) && self.is_complete(model)
    }

    fn is_complete(&self, model: &Network) -> bool {
        let origin = self.source.and_then(|source| self.origins.get(source));
        let whole = origin.is_some_and(|origin| origin.received == model.streams.client.len());
        whole && self.received == WRITES[2]
    }

    /// Judges a state in which all is done that was asked for.
    pub(super) fn judge(&mut self, model: &Network) {
        let waits = self.client_timer(model).is_some()
            || self.tcp.connected.is_none()
            || !self.tcp.up.is_empty()
            || !self.tcp.down.is_empty()
            || self.origins.iter().any(|origin| !origin.closed && may_write(model, origin));
        let lost = self.tcp.broken || self.origins.iter().any(|origin| origin.lost);
        let done = match self.end {
            None => false,
            Some(End::Finished) => self.is_complete(model) || lost,
            Some(End::Reset) => true,
        };
        self.claim(Claim::Finishes, waits || done);
        for edge in 0..model.edges {
            let (sessions, bytes) = self.edges[usize::from(edge)].server.holds();
            let ends = sessions == 0 || self.edge_timer(model, edge).is_some();
            let bounded = sessions <= 1 && bytes <= sessions * (CLIENT_BYTES + SERVER_BYTES);
            self.claim(Claim::Limits, ends && bounded);
        }
    }
}
