//! Transfers of requests and responses.

use std::time::Duration;

use super::super::events::{Instant, nanos};
use super::Delivery;
use super::client::{Event, Request, Run};

/// Bytes of a request whose size was not recorded.
const REQUEST: u64 = 400;

impl Run<'_> {
    pub(super) fn ask(&mut self, id: u32, connection: u32) {
        let request = Request { id, made: false, answered: false };
        let carrier = &mut self.connections[connection as usize];
        carrier.requests.push_back(request);
        self.servers[carrier.server].is_asked = true;
        self.load.resources[id as usize].sent = Duration::from_nanos(self.now);
        let left = self.up.wait(self.now, self.request(id)) + self.extension();
        let again = if self.is_lost() { self.probe() } else { 0 };
        self.events.at(left + again + self.rtt / 2, Event::Asked(id, connection));
    }

    /// Returns the bytes of the request for a resource.
    pub(super) fn request(&self, id: u32) -> u64 {
        match self.page.resources()[id as usize].request_bytes {
            0 => REQUEST,
            bytes => bytes,
        }
    }

    /// Returns the time that an end waits for the acknowledgement of a single packet (RFC 8985
    /// section 7.2, as in Linux).
    fn probe(&self) -> Instant {
        2 * self.rtt + nanos(self.settings.timers.probe)
    }

    pub(super) fn asked(&mut self, id: u32, connection: u32) {
        let resource = &self.page.resources()[id as usize];
        self.events.at(self.now + nanos(resource.server_time), Event::Made(id, connection));
        if self.techniques.early_hints && id as usize == self.page.redirects() {
            let at = self.now + self.rtt - self.rtt / 2;
            self.events.at(at, Event::Head);
            // For a modified browser: others use a hint only when the document names the resource.
            let told = if self.settings.delivery == Delivery::Start {
                self.triggers.by_resource(id as usize)
            } else {
                &[]
            };
            for trigger in told {
                self.events.at(at, Event::Needed(trigger.id));
            }
        }
    }

    /// Handles a response being ready at its server. On HTTP/1.1 it waits for those before it.
    pub(super) fn made(&mut self, id: u32, connection: u32) {
        let resources = self.page.resources();
        let carrier = &mut self.connections[connection as usize];
        if self.servers[carrier.server].http2 {
            carrier.sender.respond(id, resources[id as usize].response_bytes);
        } else {
            for request in carrier.requests.iter_mut().filter(|request| request.id == id) {
                request.made = true;
            }
            for request in carrier.requests.iter_mut().take_while(|request| request.made) {
                if !std::mem::replace(&mut request.answered, true) {
                    let bytes = resources[request.id as usize].response_bytes;
                    carrier.sender.respond(request.id, bytes);
                }
            }
        }
        self.pump(connection);
    }

    /// Sends what the window allows.
    pub(super) fn pump(&mut self, connection: u32) {
        while let Some((number, bytes)) =
            self.connections[connection as usize].sender.next(self.now)
        {
            self.transmit(connection, number, bytes);
        }
    }

    pub(super) fn send_again(&mut self, connection: u32, number: u32) {
        let sender = &mut self.connections[connection as usize].sender;
        sender.lost(number);
        let bytes = sender.again(number, self.now);
        self.transmit(connection, number, bytes);
    }

    fn transmit(&mut self, connection: u32, number: u32, bytes: u64) {
        let waiting = self.down.waiting(self.now);
        let left = self.down.pass(self.now, bytes).filter(|_| !self.is_lost());
        let Some(left) = left else {
            // Detected by what follows it through the same queue or, if nothing does, by a probe
            // (RFC 8985 section 7).
            let sender = &self.connections[connection as usize].sender;
            let seen = match sender.in_flight() {
                _ if sender.is_waiting() => self.rtt,
                0 | 1 => self.probe(),
                _ => 2 * self.rtt,
            };
            self.events.at(self.now + waiting + seen, Event::Lost(connection, number));
            return;
        };
        let arrived = left + self.rtt / 2;
        self.events.at(arrived, Event::Arrived(connection, number));
        if self.connections[connection as usize].sender.is_datagram(number) {
            return;
        }
        let acknowledged = arrived + self.rtt - self.rtt / 2;
        self.events.at(acknowledged, Event::Acknowledged(connection, self.now));
    }

    pub(super) fn arrived(&mut self, connection: u32, number: u32) {
        self.connections[connection as usize].sender.arrived(number);
        while let Some(segment) = self.connections[connection as usize].sender.read() {
            self.read(segment.resource, segment.bytes, connection);
        }
    }
}
