//! QUIC on the same UDP port: datagrams of HTTP/3 clients, passed to a server that speaks it.
//!
//! First bytes tell the protocols apart (RFC 9443, docs/draft-headstart-turbotls.md#frames). Each
//! client has a flow with a socket of its own to the server, as behind a NAT: QUIC needs nothing
//! else, and takes a flow that was forgotten for a client that has moved (RFC 9000 section 9.3).
//!
//! To the server all clients have the edge's address, which so proves nothing to it: a flow passes
//! three times the bytes that came (RFC 9000 section 8.1) until its client has shown the connection
//! id that the server chose, which nobody with a forged address can know.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use headstart_proto::host;
use headstart_proto::limits::AMPLIFICATION;
use headstart_proto::wire::Request;
use metrics::Counter;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::udp::{Datagram, Received, RecvError, UdpPort, with_thread_buffers};

/// Time without datagrams after which the flow of a proven client is forgotten; RFC 4787 (REQ-5)
/// wants two minutes, as do mobile clients that sleep.
const IDLE: Duration = Duration::from_secs(120);

/// The same for a client that may have forged its address: about as long as its handshake may take.
const UNPROVEN_IDLE: Duration = Duration::from_secs(10);

/// Share of the flows that one IPv4 address or IPv6 /64 may have, as one part in this many.
const ADDRESS_SHARE: usize = 16;

/// Flows that may begin in a second: each costs a socket and a task, on the thread that also takes
/// the datagrams of TurboTLS.
const BEGUN_A_SECOND: u32 = 1024;

/// Least lengths of datagrams with which a flow begins: a client's Initial packets (RFC 9000
/// section 14.1), and packets of a connection that goes on (section 10.3).
const INITIAL_MIN: usize = 1200;
const SHORT_MIN: usize = 21;

/// Longest connection id (RFC 9000 section 17.2).
const ID_MAX: usize = 20;

/// A server for the QUIC datagrams that come to an acceptor's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicServer {
    /// Where it is.
    pub address: SocketAddr,
    /// Clients at one time, each with an open file.
    pub flows: usize,
}

impl QuicServer {
    /// Returns the share of each of `ports` ports.
    pub(super) fn shared_by(self, ports: usize) -> Self {
        Self { flows: self.flows.div_ceil(ports.max(1)), ..self }
    }
}

/// Returns true if a QUIC connection may begin, or go on from another address, with a datagram (RFC
/// 9443 section 3).
fn may_begin(bytes: &[u8]) -> bool {
    match bytes.first() {
        Some(first) if first & 0x40 == 0 => false,
        Some(first) if first & 0x80 != 0 => bytes.len() >= INITIAL_MIN,
        Some(_) => bytes.len() >= SHORT_MIN,
        None => false,
    }
}

/// Returns the connection id that the sender of a long header has chosen (RFC 8999 section 5.1);
/// none of a Version Negotiation packet, which repeats one.
fn source_id(bytes: &[u8]) -> Option<&[u8]> {
    let (&[first, v1, v2, v3, v4, length], rest) = bytes.split_first_chunk()?;
    if first & 0x80 == 0 || [v1, v2, v3, v4] == [0; 4] {
        return None;
    }
    let (length, rest) = rest.get(usize::from(length)..)?.split_first()?;
    rest.get(..usize::from(*length)).filter(|id| (1..=ID_MAX).contains(&id.len()))
}

/// Returns true if a datagram is addressed to this connection id.
fn shows(bytes: &[u8], id: &[u8]) -> bool {
    match bytes.split_first() {
        Some((first, rest)) if first & 0x80 == 0 => rest.starts_with(id),
        Some((_, rest)) => {
            let length = rest.get(4).map(|length| usize::from(*length));
            length == Some(id.len()) && rest.get(5..).is_some_and(|rest| rest.starts_with(id))
        }
        None => false,
    }
}

/// A client's address, and the address here that it sends to.
type Key = (SocketAddr, IpAddr);

/// Passes datagrams between clients of one listening port and the server.
pub(super) struct QuicRelay {
    server: QuicServer,
    port: Arc<UdpPort>,
    flows: Arc<Mutex<Flows>>,
    to_server: Outcomes,
    shared: Arc<Answering>,
}

/// State that all flows share.
struct Answering {
    to_client: Outcomes,
    has_warned: AtomicBool,
}

/// Counters of datagrams in one direction.
struct Outcomes {
    sent: Counter,
    dropped: Counter,
}

#[derive(Debug)]
struct Flows {
    by_key: HashMap<Key, Flow>,
    /// Flows of each IPv4 address or IPv6 /64.
    by_host: HashMap<IpAddr, usize>,
    /// Flows that were not proven when they began, oldest first; some have ended since.
    unproven: VecDeque<(Key, u64)>,
    /// Number of the next flow.
    next: u64,
    /// Flows that have begun since this moment, less than a second ago.
    begun: (Instant, u32),
}

#[derive(Debug)]
struct Flow {
    number: u64,
    upstream: Arc<Upstream>,
    task: AbortHandle,
}

/// A client's socket to the server.
#[derive(Debug)]
struct Upstream {
    port: UdpPort,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seen: Instant,
    proof: Proof,
}

/// Proof of a client's address.
#[derive(Debug)]
enum Proof {
    /// It may be forged: only `credit` more bytes may go there. The client proves it by using `id`,
    /// which the server has chosen.
    Open { credit: usize, id: Option<Vec<u8>> },
    /// It is the client's.
    Given,
}

impl QuicRelay {
    pub(super) fn new(server: QuicServer, port: Arc<UdpPort>) -> Self {
        let to_client = Outcomes::new("to_client");
        Self {
            server,
            port,
            flows: Arc::default(),
            to_server: Outcomes::new("to_server"),
            shared: Arc::new(Answering { to_client, has_warned: AtomicBool::new(false) }),
        }
    }

    /// Passes a client's datagram on if it is one of QUIC, and returns true; within the runtime
    /// that waits for the port.
    ///
    /// A client that has a flow may grease the bit that tells QUIC (RFC 9287).
    pub(super) fn takes(&self, datagram: &Received<'_>) -> bool {
        let (key, bytes) = ((datagram.from, datagram.to), datagram.bytes);
        if is_turbotls(bytes) {
            return false;
        }
        let known = lock(&self.flows).by_key.get(&key).map(|flow| Arc::clone(&flow.upstream));
        if known.is_none() && !may_begin(bytes) {
            return false;
        }
        let sent = known.or_else(|| self.begin(key)).is_some_and(|upstream| {
            lock(&upstream.state).note_client(bytes);
            let datagram = Datagram { to: self.server.address, from: None, bytes };
            upstream.port.try_send(&datagram).is_ok()
        });
        self.to_server.count(sent);
        true
    }

    /// Begins the flow of a client if there is room.
    fn begin(&self, key: Key) -> Option<Arc<Upstream>> {
        let mut flows = lock(&self.flows);
        if !flows.make_room(key, self.server.flows) {
            count_flow("refused");
            return None;
        }
        let upstream = match Upstream::connect(self.server.address) {
            Ok(upstream) => Arc::new(upstream),
            Err(error) => {
                tracing::debug!(%error, "no socket to the QUIC server");
                count_flow("failed");
                return None;
            }
        };
        let number = flows.next;
        let answering = answer(
            Arc::clone(&upstream),
            (Arc::clone(&self.port), Arc::clone(&self.shared)),
            (key, number),
            Arc::clone(&self.flows),
        );
        let task = tokio::spawn(answering).abort_handle();
        flows.insert(key, Flow { number, upstream: Arc::clone(&upstream), task });
        count_flow("begun");
        Some(upstream)
    }
}

impl Outcomes {
    fn new(direction: &'static str) -> Self {
        let counter = |outcome| {
            let labels = [("direction", direction), ("outcome", outcome)];
            metrics::counter!("headstart_quic_datagrams_total", &labels)
        };
        Self { sent: counter("sent"), dropped: counter("dropped") }
    }

    fn count(&self, sent: bool) {
        if sent { &self.sent } else { &self.dropped }.increment(1);
    }
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            by_host: HashMap::new(),
            unproven: VecDeque::new(),
            next: 0,
            begun: (Instant::now(), 0),
        }
    }
}

impl Flows {
    /// Makes room for one more flow of `key`, at the expense of the oldest that is not proven;
    /// false if there is none.
    fn make_room(&mut self, key: Key, most: usize) -> bool {
        let now = Instant::now();
        let (since, begun) = &mut self.begun;
        if now - *since >= Duration::from_secs(1) {
            (*since, *begun) = (now, 0);
        }
        let of_host = self.by_host.get(&host(key.0.ip())).copied().unwrap_or_default();
        if *begun >= BEGUN_A_SECOND || of_host >= (most / ADDRESS_SHARE).max(1) {
            return false;
        }
        *begun += 1;
        while self.by_key.len() >= most {
            let Some((oldest, number)) = self.unproven.pop_front() else { return false };
            let is_it = |flow: &Flow| flow.number == number && !flow.upstream.is_proven();
            if self.by_key.get(&oldest).is_some_and(is_it) {
                self.remove(oldest, number);
                count_flow("displaced");
            }
        }
        true
    }

    fn insert(&mut self, key: Key, flow: Flow) {
        self.unproven.push_back((key, flow.number));
        self.next += 1;
        self.by_key.insert(key, flow);
        *self.by_host.entry(host(key.0.ip())).or_default() += 1;
        if self.unproven.len() > 2 * self.by_key.len() {
            let (by_key, unproven) = (&self.by_key, &mut self.unproven);
            unproven
                .retain(|(key, number)| by_key.get(key).is_some_and(|flow| flow.number == *number));
        }
        metrics::gauge!("headstart_quic_flows").increment(1);
    }

    fn remove(&mut self, key: Key, number: u64) {
        if self.by_key.get(&key).is_none_or(|flow| flow.number != number) {
            return;
        }
        let Some(flow) = self.by_key.remove(&key) else { return };
        flow.task.abort();
        if let Some(count) = self.by_host.get_mut(&host(key.0.ip())) {
            *count -= 1;
            if *count == 0 {
                self.by_host.remove(&host(key.0.ip()));
            }
        }
        metrics::gauge!("headstart_quic_flows").decrement(1);
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for (key, number) in
            self.by_key.iter().map(|(key, flow)| (*key, flow.number)).collect::<Vec<_>>()
        {
            self.remove(key, number);
        }
    }
}

impl State {
    /// Takes note of a client's datagram.
    fn note_client(&mut self, bytes: &[u8]) {
        self.seen = Instant::now();
        let Proof::Open { credit, id } = &mut self.proof else { return };
        *credit = credit.saturating_add(AMPLIFICATION * bytes.len());
        if id.as_ref().is_some_and(|id| shows(bytes, id)) {
            self.proof = Proof::Given;
        }
    }

    /// Takes note of a server's datagram; false if it must not be passed on.
    fn may_answer(&mut self, bytes: &[u8]) -> bool {
        self.seen = Instant::now();
        let Proof::Open { credit, id } = &mut self.proof else { return true };
        if let Some(source) = source_id(bytes) {
            *id = Some(source.to_vec());
        }
        let rest = credit.checked_sub(bytes.len());
        *credit = rest.unwrap_or(*credit);
        rest.is_some()
    }
}

impl Upstream {
    fn connect(server: SocketAddr) -> io::Result<Self> {
        let proof = Proof::Open { credit: 0, id: None };
        let state = Mutex::new(State { seen: Instant::now(), proof });
        Ok(Self { port: UdpPort::connect(server, None)?, state })
    }

    fn is_proven(&self) -> bool {
        matches!(lock(&self.state).proof, Proof::Given)
    }

    /// Returns when the flow ends unless a datagram comes before.
    fn end(&self) -> Instant {
        let state = lock(&self.state);
        let is_proven = matches!(state.proof, Proof::Given);
        state.seen + if is_proven { IDLE } else { UNPROVEN_IDLE }
    }

    /// Waits for datagrams of the server and passes them on.
    async fn receive(
        &self,
        listening: &UdpPort,
        outcomes: &Outcomes,
        (client, local): Key,
    ) -> Result<(), RecvError> {
        poll_fn(|cx| {
            with_thread_buffers(|buffers| {
                ready!(self.port.poll_recv(cx, buffers))?;
                for Received { bytes, .. } in buffers.datagrams() {
                    let answer = Datagram { to: client, from: Some(local), bytes };
                    let may_go = lock(&self.state).may_answer(bytes);
                    outcomes.count(may_go && listening.try_send(&answer).is_ok());
                }
                Poll::Ready(Ok(()))
            })
        })
        .await
    }
}

/// Passes the server's datagrams to a client until the flow is idle.
async fn answer(
    upstream: Arc<Upstream>,
    (listening, shared): (Arc<UdpPort>, Arc<Answering>),
    (key, number): (Key, u64),
    flows: Arc<Mutex<Flows>>,
) {
    loop {
        let end = upstream.end();
        match timeout_at(end, upstream.receive(&listening, &shared.to_client, key)).await {
            Ok(Ok(())) => {}
            // Nobody is there, yet; the client decides how long it waits.
            Ok(Err(RecvError::Unreachable(error))) => {
                if !shared.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the QUIC server cannot be reached");
                }
            }
            // A probe was longer than the path's MTU.
            Ok(Err(RecvError::Socket(error))) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
            Ok(Err(RecvError::Socket(error))) => {
                tracing::debug!(%error, "no more datagrams from the QUIC server");
                break;
            }
            Err(_) if upstream.end() > end => {}
            Err(_) => break,
        }
    }
    count_flow("ended");
    lock(&flows).remove(key, number);
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count_flow(event: &'static str) {
    metrics::counter!("headstart_quic_flows_total", "event" => event).increment(1);
}

/// Returns true if a datagram is one of TurboTLS. Its first two bytes do not tell: a client that
/// greases the bit of QUIC has them in one packet of a hundred, if its server's id begins with the
/// version.
fn is_turbotls(datagram: &[u8]) -> bool {
    Request::parse(datagram).is_ok()
}

#[cfg(test)]
mod tests {
    use headstart_proto::JoinKey;

    use super::*;

    /// A long header of version 1 from `source` to `destination`, of 1,200 bytes.
    fn long(destination: &[u8], source: &[u8]) -> Vec<u8> {
        let lengths = [destination, source].map(|id| u8::try_from(id.len()).unwrap());
        let head = [0xc0, 0, 0, 0, 1, lengths[0]];
        let mut bytes = [&head, destination, &lengths[1..], source].concat();
        bytes.resize(INITIAL_MIN, 0);
        bytes
    }

    fn state() -> State {
        State { seen: Instant::now(), proof: Proof::Open { credit: 0, id: None } }
    }

    #[test]
    fn flows_begin_with_initials_and_with_packets_of_clients_that_moved() {
        assert!(may_begin(&long(b"to", b"from")));
        assert!(!may_begin(&long(b"to", b"from")[..INITIAL_MIN - 1]));
        assert!(may_begin(&[0x40; SHORT_MIN]) && !may_begin(&[0x40; SHORT_MIN - 1]));
        assert!(!may_begin(&[0x80; INITIAL_MIN]) && !may_begin(&[8; 411]) && !may_begin(&[]));
    }

    #[test]
    fn a_greased_packet_that_begins_like_turbotls_is_quic() {
        let id = JoinKey::new([1; 16]).session_id();
        let request = Request { id, seq: 0, offset: 0, payload: &[22; 300] }.emit();
        assert!(is_turbotls(&request));
        let mut packet = [0xff; INITIAL_MIN];
        packet[..2].copy_from_slice(&request[..2]);
        assert!(!is_turbotls(&packet));
    }

    #[test]
    fn a_client_is_proven_by_the_id_that_the_server_chose() {
        for client in [long(b"server", b"client"), [&[0x40], &b"server"[..], &[0; 30]].concat()] {
            let mut state = state();
            state.note_client(&long(b"first", b"client"));
            state.note_client(&client);
            assert!(matches!(state.proof, Proof::Open { .. }), "no answer yet");
            assert!(state.may_answer(&long(b"client", b"server")));
            state.note_client(&long(b"first", b"client"));
            assert!(matches!(state.proof, Proof::Open { .. }), "a blind sender repeats itself");
            state.note_client(&client);
            assert!(matches!(state.proof, Proof::Given));
        }
    }

    #[test]
    fn version_negotiation_and_cut_headers_have_no_id() {
        let mut negotiation = long(b"client", b"server");
        negotiation[1..5].fill(0);
        assert_eq!(source_id(&negotiation), None);
        let whole = long(b"client", b"server");
        assert_eq!(source_id(&whole), Some(&b"server"[..]));
        for cut in 0..5 + 1 + 6 + 1 + 6 {
            assert_eq!(source_id(&whole[..cut]), None, "{cut} bytes");
        }
        assert_eq!(source_id(&long(b"client", &[7; ID_MAX + 1])), None);
        assert_eq!(source_id(&long(b"client", b"")), None);
    }

    #[test]
    fn three_times_as_much_goes_to_an_address_that_may_be_forged() {
        let mut state = state();
        state.note_client(&[0; 100]);
        assert!(state.may_answer(&[0; 200]) && !state.may_answer(&[0; 101]));
        assert!(state.may_answer(&[0; 100]) && !state.may_answer(&[0; 1]));
    }
}
