//! The driver at the client: application, machine, UDP and TCP.

use std::collections::BTreeSet;
use std::time::Duration;

use headstart_emulation::{Link, Packet};
use headstart_proto::hello::{self, Progress};
use headstart_proto::join::Join;
use headstart_proto::limits::{DATAGRAM_MAX, REQUEST_MIN};
use headstart_proto::wire::Request;
use headstart_proto::{Client, ClientConfig, ClientEvent, Instant, JoinKey, Wait};

use super::Turn;
use super::app::App;
use super::script::Script;
use super::tcp::Segment;

/// The way a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Reset,
}

#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) app: App,
    machine: Client,
    /// True once both streams bypass the machine, as in a driver once it is transparent.
    spliced: bool,
    splice: bool,
    connected: bool,
    stream: Vec<u8>,
    request_at: usize,
    /// Bytes written to TCP.
    pub(super) tcp_bytes: Vec<u8>,
    /// Offset in the client stream at which TCP starts.
    tcp_offset: usize,
    seqs: BTreeSet<u8>,
    pub(super) first_request: Option<Duration>,
    pub(super) events: Vec<(Duration, ClientEvent)>,
}

impl ClientSide {
    pub(super) fn new(script: &Script, key: [u8; 16], splice: bool) -> Self {
        let machine = Client::new(JoinKey::new(key), ClientConfig::default());
        Self {
            app: App::new(script.clone()),
            machine,
            spliced: false,
            splice,
            connected: false,
            stream: script.client_stream(),
            request_at: script.request_at,
            tcp_bytes: Vec::new(),
            tcp_offset: 0,
            seqs: BTreeSet::new(),
            first_request: None,
            events: Vec::new(),
        }
    }

    pub(super) fn handle_offer(&mut self, config: ClientConfig) {
        self.machine.offer_udp(config);
    }

    pub(super) fn handle_connected(
        &mut self,
        now: Duration,
        same_address: bool,
        wait: Option<Wait>,
    ) {
        self.connected = true;
        self.machine.handle_tcp_connected(at(now), same_address, wait);
    }

    /// Ends the application's connection, as a driver does: without TCP there is none.
    pub(super) fn handle_refused(&mut self) {
        self.app.end = Some(End::Reset);
    }

    pub(super) fn handle_datagram(&mut self, now: Duration, bytes: &[u8]) {
        self.machine.handle_datagram(at(now), bytes);
    }

    pub(super) fn handle_unreachable(&mut self, now: Duration) {
        self.machine.handle_unreachable(at(now));
    }

    pub(super) fn handle_segment(&mut self, now: Duration, segment: Segment) {
        match segment {
            _ if self.app.end == Some(End::Reset) => {}
            Segment::Reset => self.app.end = Some(End::Reset),
            Segment::Bytes(bytes) if self.spliced => self.app.receive(now, &bytes),
            Segment::Finished if self.spliced => self.app.end = Some(End::Finished),
            Segment::Bytes(bytes) => self.machine.handle_tcp_data(at(now), &bytes),
            Segment::Finished => self.machine.handle_tcp_finished(),
        }
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        if self.app.end == Some(End::Reset) {
            return None;
        }
        self.machine.poll_timeout().map(Instant::since_epoch)
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        if self.next_due().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(at(now));
        }
    }

    /// Does all pending work. Returns true if there was any.
    pub(super) fn drive(&mut self, udp: &mut Link, turn: &mut Turn<'_>) -> bool {
        let mut busy = false;
        while self.app.end != Some(End::Reset) {
            let worked = self.take_app(turn)
                | self.take_events(turn)
                | self.send_datagrams(turn.now, udp)
                | self.send_tcp(turn)
                | self.give_app(turn);
            self.finish(turn);
            if !worked {
                break;
            }
            busy = true;
        }
        busy
    }

    fn take_app(&mut self, turn: &mut Turn<'_>) -> bool {
        let room = if self.spliced { usize::MAX } else { self.machine.app_room() };
        let bytes = self.app.write(turn.now, room);
        if let Some(bytes) = &bytes {
            turn.note("app", format_args!("writes {}", bytes.len()));
            if self.spliced {
                self.write_tcp(bytes, turn);
            } else {
                self.machine.handle_app_data(at(turn.now), bytes);
            }
        }
        let finishes = self.app.finishes();
        if finishes {
            turn.note("app", "writes no more");
            if self.spliced {
                turn.send(&Segment::Finished);
            } else {
                self.machine.handle_app_finished(at(turn.now));
            }
        }
        bytes.is_some() || finishes
    }

    fn take_events(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            match event {
                ClientEvent::FlightSent { offset, bytes, .. }
                    if offset as usize + bytes > self.request_at =>
                {
                    self.first_request.get_or_insert(turn.now);
                }
                ClientEvent::JoinSent { client_offset, .. } => {
                    self.tcp_offset = client_offset as usize
                }
                _ => {}
            }
            turn.note("client", format_args!("{event:?}"));
            self.events.push((turn.now, event));
        }
        any
    }

    fn send_datagrams(&mut self, now: Duration, udp: &mut Link) -> bool {
        let mut any = false;
        while let Some(bytes) = self.machine.poll_datagram() {
            any = true;
            assert!((REQUEST_MIN..=DATAGRAM_MAX).contains(&bytes.len()));
            let request = Request::parse(&bytes).expect("own datagrams are well-formed");
            assert!(self.seqs.insert(request.seq), "a sequence number is used once");
            let from = request.offset as usize;
            assert_eq!(request.payload, &self.stream[from..from + request.payload.len()]);
            udp.send(now, Packet::udp(bytes));
        }
        any
    }

    fn send_tcp(&mut self, turn: &mut Turn<'_>) -> bool {
        let bytes = self.machine.poll_tcp();
        if let Some(bytes) = &bytes {
            self.write_tcp(bytes, turn);
        }
        bytes.is_some()
    }

    fn write_tcp(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        assert!(self.connected, "nothing can be written before TCP is connected");
        self.tcp_bytes.extend_from_slice(bytes);
        if self.tcp_offset + self.stream_on_tcp().len() > self.request_at {
            self.first_request.get_or_insert(turn.now);
        }
        turn.send(&Segment::Bytes(bytes.to_vec()));
    }

    fn give_app(&mut self, turn: &mut Turn<'_>) -> bool {
        let bytes = self.machine.poll_app();
        if let Some(bytes) = &bytes {
            turn.note("app", format_args!("gets {}", bytes.len()));
            self.app.receive(turn.now, bytes);
        }
        bytes.is_some()
    }

    /// Passes an end on, and bypasses the machine once possible.
    fn finish(&mut self, turn: &mut Turn<'_>) {
        if self.app.end.is_none() && self.machine.is_reset() {
            self.app.end = Some(End::Reset);
            turn.send(&Segment::Reset);
            turn.note("app", "is reset");
        }
        if self.app.end.is_none() && !self.spliced && self.machine.is_app_finished() {
            self.app.end = Some(End::Finished);
            turn.note("app", "sees the end");
        }
        if self.machine.wants_tcp_finish() && !self.machine.is_reset() {
            turn.send(&Segment::Finished);
        }
        if self.splice && !self.spliced && self.machine.is_transparent() {
            self.spliced = true;
        }
    }

    /// Returns the client stream carried by TCP, from `tcp_offset` on.
    fn stream_on_tcp(&self) -> &[u8] {
        match hello::read(&self.tcp_bytes) {
            Ok(Progress::Complete(hello)) if Join::read(&hello).is_some() => {
                &self.tcp_bytes[hello.end..]
            }
            _ => &self.tcp_bytes,
        }
    }

    /// Checks that TCP carried exactly the client stream from `tcp_offset` on.
    pub(super) fn check_tcp(&self) {
        let carried = self.stream_on_tcp();
        let expected = &self.stream[self.tcp_offset..self.tcp_offset + carried.len()];
        assert!(carried == expected, "the client stream is exact on TCP");
    }
}

pub(super) fn at(now: Duration) -> Instant {
    Instant::from_epoch(now)
}
