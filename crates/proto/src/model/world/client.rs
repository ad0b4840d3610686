//! The driver of the client, and its application.

use super::{CLIENT, Claim, Datagram, End, Segment, World};
use crate::limits::{EARLY_DATA_LIFE, JOIN_ANSWER_LIFE, JOIN_MARGIN, SESSION_LIFE};
use crate::model::network::{Network, WRITES};
use crate::{ClientEvent, ResetReason};

impl World {
    /// Does all that the client and the application ask for; returns true if there was anything.
    pub(super) fn drive_client(&mut self, model: &Network) -> bool {
        let mut busy = false;
        while let Some(bytes) = self.client.poll_datagram() {
            self.claim(Claim::Order, self.tcp.connected.is_none());
            self.up.push(Datagram { bytes: bytes.into(), copies: 1 });
            busy = true;
        }
        while let Some(bytes) = self.client.poll_tcp() {
            self.claim(Claim::Order, self.tcp.connected.is_some() && !self.tcp.up_finished);
            self.tcp.up.push_back(Segment::Bytes(bytes));
            busy = true;
        }
        while let Some(bytes) = self.client.poll_app() {
            self.take_server_bytes(model, &bytes);
            busy = true;
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::JoinSent { server_offset, .. } => self.committed |= server_offset > 0,
                ClientEvent::Reset(reason) => self.reset(model, reason),
                _ => {}
            }
        }
        if self.client.wants_tcp_finish() && !self.tcp.up_finished {
            self.tcp.up_finished = true;
            self.tcp.up.push_back(Segment::Finished);
        }
        if self.client.is_app_finished() {
            self.end.get_or_insert(End::Finished);
        }
        if self.end.is_none() && self.received >= WRITES[1] && !self.has_requested {
            self.has_requested = true;
            self.client.handle_app_data(self.now, &model.streams.client[model.hello..]);
            busy = true;
        }
        if self.end.is_none() && self.received >= WRITES[2] && !self.has_finished {
            self.has_finished = true;
            self.client.handle_app_finished(self.now);
            busy = true;
        }
        busy
    }

    fn take_server_bytes(&mut self, model: &Network, bytes: &[u8]) {
        let range = self.received..self.received + bytes.len();
        let has = |origin: &usize| {
            let carried = range.end <= self.origins[*origin].written();
            carried && model.streams.server[*origin].get(range.clone()) == Some(bytes)
        };
        self.source = match self.source {
            Some(origin) => Some(origin).filter(has),
            None => (0..self.origins.len()).find(has),
        };
        self.claim(Claim::ServerStream, self.source.is_some() && self.end.is_none());
        self.claim(Claim::Order, self.tcp.connected.is_some());
        self.received = range.end;
    }

    /// Judges a reset for which the client decided.
    fn reset(&mut self, model: &Network, reason: ResetReason) {
        self.end = Some(End::Reset);
        let stalled = !self.tcp.up.is_empty() || !self.tcp.down.is_empty();
        // The answer to the join comes before the timer that waits no longer for it.
        let late = self.now >= self.tcp.connected_at + JOIN_ANSWER_LIFE;
        // W-STATE-3: who connects later relies on nothing.
        let in_time = self.tcp.connected_at.since_epoch() + JOIN_MARGIN < SESSION_LIFE;
        let expired = self.origins.iter().any(|origin| origin.expired);
        let forgotten = expired && (in_time || model.client.early_data);
        let restarted = self.left.restarts < model.harm.restarts;
        let apart = model.edges > 1 && !model.fleet;
        let unforwarded = self.left.forward_fails < model.harm.forward_fails;
        let source = self.tcp.connected.map(|(_, peer)| peer);
        let unproven = model.same_address && source != Some(CLIENT);
        let lost = forgotten || restarted || apart || unforwarded || unproven;
        let allowed = match reason {
            ResetReason::CommittedRefusal | ResetReason::Refused => self.committed && lost,
            ResetReason::JoinLost => self.tcp.broken || stalled || late,
            ResetReason::EarlyDataTooOld => self.now.since_epoch() >= EARLY_DATA_LIFE,
            ResetReason::Protocol => self.tcp.broken,
        };
        self.claim(Claim::Reset, allowed);
        self.close_connection();
        self.tcp.broken = true;
        self.tcp.up.clear();
        self.tcp.down.clear();
    }
}
