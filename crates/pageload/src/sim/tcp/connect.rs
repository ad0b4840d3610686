//! Opens connections: how each is opened, and when it accepts its first request.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::events::{Instant, nanos};
use super::client::{Connection, Event, Run};
use super::sender::{self, Sender};
use headstart_proto::{Carrier, Opening, Session};

/// Maximum bytes that a SYN carries (a segment less room for options): more waits for the
/// handshake.
const SYN_DATA_MAX: u64 = 1_420;

/// Maximum bytes that a SYN with a private cookie carries, so that it passes any IPv6 path
/// (docs/fop.md).
const PRIVATE_SYN_DATA_MAX: u64 = 1_180;

/// Bytes that a record adds to early data.
const RECORD: u64 = 22;

/// Maximum bytes of a handshake: ten times what post-quantum certificates need.
const FLIGHT_MAX: u64 = 200_000;

/// Time that a TurboTLS client waits for UDP once TCP is connected: a quarter of a round trip
/// within these bounds.
const GRACE: [Instant; 2] = [2_000_000, 25_000_000];

/// Maximum losses of one packet in a row: Linux's `tcp_syn_retries`.
const LOSSES_MAX: u32 = 6;

impl Run<'_> {
    /// Adds a connection that was opened before.
    pub(super) fn add_warm(&mut self, server: usize) {
        let id = self.add(server, false, 0);
        self.connections[id as usize].ready = true;
    }

    pub(super) fn open(&mut self, server: usize) {
        let Opening { carrier, session } = self.way(server);
        let tls = &self.settings.tls;
        let (flight, crypto) = match session {
            Session::Clear => (0, Duration::ZERO),
            Session::Fresh => (tls.full_flight, tls.full),
            Session::Resumed | Session::EarlyData => (tls.resumed_flight, tls.resumed),
        };
        let early = session.round_trips() == 0;
        let id = self.add(server, early, flight.min(FLIGHT_MAX));
        self.servers[server].opening += 1;
        self.load.connections += 1;
        self.load.handshakes += u32::from(session != Session::Clear);
        self.load.resumptions += u32::from(flight > 0 && session != Session::Fresh);
        self.load.round_trips += self.connecting(carrier) + session.round_trips();

        let begin = self.resolve(server) + self.agent();
        let hello = begin + self.before_hello(carrier);
        if early {
            self.events.at(hello + nanos(crypto), Event::Ready(id));
            if carrier == Carrier::TurboTls && hello == begin {
                // The client joins TCP with its Finished, a round trip after it began.
                let tcp_from = begin + self.rtt + self.rtt / 2 + nanos(crypto);
                self.connections[id as usize].sender.by_datagrams_until(tcp_from);
                self.events.at(tcp_from, Event::Joined(id));
            }
        }
        if session != Session::Clear {
            let mut at_server = hello + self.rtt / 2 + nanos(crypto);
            if matches!(carrier, Carrier::Tcp | Carrier::Spare) {
                at_server += self.lost_trip(self.settings.timers.probe);
            }
            self.events.at(at_server, Event::Flight(id));
        }
        // The kernel has the cookie of RFC 7413 once TCP is connected, for the next connection.
        let own = &mut self.servers[server];
        own.cookie = Some(own.cookie.map_or(begin + self.rtt, |at| at.min(begin + self.rtt)));
    }

    fn add(&mut self, server: usize, early: bool, flight: u64) -> u32 {
        let id = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        self.servers[server].connections.push(id);
        let idle = nanos(self.settings.timers.idle);
        self.connections.push(Connection {
            server,
            ready: false,
            early,
            flight,
            requests: VecDeque::new(),
            sender: Sender::new(self.rtt + idle, self.servers[server].http2),
        });
        id
    }

    /// Returns the fastest opening that the client's state allows.
    fn way(&self, server: usize) -> Opening {
        let own = &self.servers[server];
        let techniques = &self.techniques;
        let [has_session, has_private_cookie, has_cookie] =
            [own.session, own.private_cookie, own.cookie]
                .map(|what| what.is_some_and(|from| from <= self.now));
        let early = techniques.zero_rtt && own.takes_part;
        let resumes = techniques.resumption || techniques.session_sharing || early;
        let session = match (own.tls, has_session && resumes) {
            (false, _) => Session::Clear,
            (true, false) => Session::Fresh,
            (true, true) if early => Session::EarlyData,
            (true, true) => Session::Resumed,
        };
        let first = self.first_flight(server, session);
        let carrier = if techniques.http3 && own.tls {
            Carrier::Quic
        } else if techniques.turbo_tls && own.takes_part && own.tls {
            Carrier::TurboTls
        } else if techniques.fast_open_privacy
            && own.takes_part
            && own.tls
            && first <= PRIVATE_SYN_DATA_MAX
            && has_private_cookie
        {
            Carrier::Fop
        } else if techniques.fast_open && own.takes_part && first <= SYN_DATA_MAX && has_cookie {
            Carrier::FastOpen
        } else if self.has_spare(server) && own.tls && session != Session::EarlyData {
            Carrier::Spare
        } else {
            Carrier::Tcp
        };
        Opening { carrier, session }
    }

    /// Returns true if a spare connection to a server waits: no other was opened yet, and the page
    /// did not begin there.
    fn has_spare(&self, server: usize) -> bool {
        let begins_here = self.connections.is_empty();
        self.techniques.spares && !begins_here && self.servers[server].connections.is_empty()
    }

    /// Returns the bytes that a client sends before it hears from the server. Early data that does
    /// not fit a SYN follows the TCP handshake, as without Fast Open.
    fn first_flight(&self, server: usize, session: Session) -> u64 {
        let request = self.servers[server].queue.front().map_or(0, |id| self.request(*id));
        let tls = &self.settings.tls;
        match session {
            Session::Clear => request,
            Session::Fresh => tls.client_hello,
            Session::Resumed => tls.resumed_hello,
            Session::EarlyData => tls.resumed_hello + RECORD + request,
        }
    }

    /// Returns the time at which the address of a server is known.
    fn resolve(&mut self, server: usize) -> Instant {
        let own = &self.servers[server];
        let resolved = self.now + own.resolution;
        (*self.resolved[own.host].get_or_insert(resolved)).max(self.now)
    }

    /// Returns the number of TCP's round trips that are waited for.
    fn connecting(&self, carrier: Carrier) -> u32 {
        if self.techniques.optimistic_data { 0 } else { carrier.round_trips() }
    }

    /// Returns the time from the address until TLS, or the request, leaves.
    fn before_hello(&mut self, carrier: Carrier) -> Instant {
        let timers = self.settings.timers;
        let connecting = u64::from(self.connecting(carrier)) * self.rtt;
        match carrier {
            Carrier::Tcp | Carrier::Proxy { .. } => self.lost_trip(timers.syn) + connecting,
            Carrier::Spare => 0,
            Carrier::FastOpen | Carrier::Quic => self.lost_trip(timers.syn),
            Carrier::Fop => {
                let fallback = timers.fallback.max(self.settings.link.rtt.saturating_mul(2));
                self.lost_trip(fallback.min(timers.syn))
            }
            Carrier::TurboTls => {
                // Without its datagrams it continues over TCP, a round trip and a grace later.
                let is_late = self.is_lost() || self.is_lost();
                let grace = (self.rtt / 4).clamp(GRACE[0], GRACE[1]);
                self.lost_trip(timers.syn).max(if is_late { self.rtt + grace } else { 0 })
            }
        }
    }

    /// Returns the extra time of a round trip of two packets if one is lost, and retransmitted
    /// after `timeout`.
    fn lost_trip(&mut self, timeout: Duration) -> Instant {
        let timeout = nanos(timeout).max(2 * self.rtt);
        let lost = (0..LOSSES_MAX).take_while(|_| self.is_lost() || self.is_lost()).count();
        (0..lost).map(|again| timeout << again).sum()
    }

    /// Handles a server's answer in a handshake.
    pub(super) fn answer(&mut self, connection: u32) {
        let Connection { flight, early, .. } = self.connections[connection as usize];
        let left = self.down.wait(self.now, flight);
        // Bytes beyond the first window need further round trips.
        let further = u64::from(sender::further_flights(flight));
        if !early {
            let at = left + self.rtt - self.rtt / 2 + further * self.rtt;
            self.events.at(at, Event::Ready(connection));
        }
    }

    pub(super) fn ready(&mut self, connection: u32) {
        let Connection { server, early, .. } = self.connections[connection as usize];
        self.connections[connection as usize].ready = true;
        // Tickets and private cookies come a round trip after the client's last flight, which with
        // early data is yet to leave.
        let at = self.now + if early { 2 * self.rtt } else { self.rtt };
        let own = &mut self.servers[server];
        own.opening -= 1;
        own.session = Some(own.session.map_or(at, |from| from.min(at)));
        own.private_cookie = Some(own.private_cookie.map_or(at, |from| from.min(at)));
        self.dispatch(server);
    }
}
