//! Random operations: every bound holds after each, and nothing is left at the end.

use std::collections::BTreeMap as Map;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    /// A piece of the ClientHello of a session, from one of its two addresses.
    Piece {
        number: u64,
        seq: u8,
        from: usize,
        to: usize,
        stranger: bool,
        size: usize,
    },
    Noise(Vec<u8>),
    OriginData(u64, usize),
    OriginFinished(u64),
    OriginLost(u64),
    Join {
        number: u64,
        client: u32,
        server: u32,
        stranger: bool,
        /// The join carries the tag of another start of the edge.
        earlier: bool,
    },
    Plain(u64, bool),
    Pause(bool),
    GiveWay,
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    // A few numbers, so that operations collide, and many, so that limits are reached.
    let number = prop_oneof![3 => 0..6_u64, 1 => 0..3000_u64];
    let piece =
        (number.clone(), 0..16_u8, 0..130_usize, 0..160_usize, any::<bool>(), 0..1300_usize);
    prop_oneof![
        8 => piece.prop_map(|(number, seq, from, to, stranger, size)| Operation::Piece {
            number, seq, from: from.saturating_sub(100), to, stranger: stranger && seq == 3, size,
        }),
        1 => prop::collection::vec(any::<u8>(), 0..600).prop_map(Operation::Noise),
        3 => (number.clone(), 0..9000_usize).prop_map(|(n, bytes)| Operation::OriginData(n, bytes)),
        1 => number.clone().prop_map(Operation::OriginFinished),
        1 => number.clone().prop_map(Operation::OriginLost),
        2 => (
            number.clone(),
            0..170_u32,
            prop_oneof![Just(0), 0..3000_u32],
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(number, client, server, stranger, earlier)| Operation::Join {
                number, client: client.saturating_sub(60), server, stranger, earlier,
            }),
        1 => (number, any::<bool>()).prop_map(|(n, stranger)| Operation::Plain(n, stranger)),
        1 => any::<bool>().prop_map(Operation::Pause),
        1 => Just(Operation::GiveWay),
        2 => prop_oneof![0..3000_u64, Just(10_000)].prop_map(Operation::Wait),
    ]
}

/// A server under random operations, and its model.
struct Trial {
    server: Server,
    now: u64,
    asked: Map<(SocketAddr, SessionId, u8), usize>,
    /// Bytes sent to and received from each address.
    traffic: Map<SocketAddr, (usize, usize)>,
    running: Map<SessionId, Vec<u8>>,
    started: usize,
    responses: usize,
}

/// Returns the address of a session's client, or of a stranger next to it. High numbers share four
/// hosts, so that those get crowded.
fn address(number: u64, stranger: bool) -> SocketAddr {
    let host = if number < 6 { number } else { 20 + number % 4 };
    peer(host + u64::from(stranger))
}

impl Trial {
    fn new(config: ServerConfig) -> Self {
        Self {
            server: Server::new(config),
            now: 0,
            asked: Map::new(),
            traffic: Map::new(),
            running: Map::new(),
            started: 0,
            responses: 0,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        let now = at(self.now);
        match operation {
            Operation::Piece { number, seq, from, to, stranger, size } => {
                let stream = [hello(*number, 100), vec![23; 60]].concat();
                let payload = stream.get(*from..*to).unwrap_or_default();
                let mut datagram = request(*number, *seq, *from, payload);
                datagram.resize(datagram.len().max(*size).min(DATAGRAM_MAX), 0);
                let sender = address(*number, *stranger);
                self.asked.entry((sender, id(*number), *seq)).or_insert(datagram.len());
                self.traffic.entry(sender).or_default().1 += datagram.len();
                let _ = self.server.handle_datagram(now, sender, None, &datagram);
            }
            Operation::Noise(bytes) => {
                let _ = self.server.handle_datagram(now, peer(7), None, bytes);
            }
            Operation::OriginData(number, bytes) => {
                let taken = self.server.handle_origin_data(id(*number), &vec![1; *bytes]);
                assert!(taken <= *bytes);
            }
            Operation::OriginFinished(number) => self.server.handle_origin_finished(id(*number)),
            Operation::OriginLost(number) => {
                self.server.handle_origin_lost(now, id(*number));
                if !self.server.sessions.contains_key(&id(*number)) {
                    self.running.remove(&id(*number));
                }
            }
            Operation::Join { number, client, server, stranger, earlier } => {
                let from = address(*number, *stranger);
                let tag = if *earlier { RouteTag([9; 4]) } else { RouteTag::default() };
                let join = Join { tag, ..join(*number, *client, *server) };
                match self.server.handle_join(now, from, &join) {
                    JoinOutcome::Joined(handover) => {
                        assert!(!earlier, "the client may hold bytes of another handshake");
                        self.collect();
                        self.hand_over(*number, *client as usize, &handover);
                    }
                    // One that a late copy of the flight started stays.
                    JoinOutcome::Fresh if self.server.sessions.contains_key(&id(*number)) => {
                        assert!(earlier);
                    }
                    JoinOutcome::Fresh => {
                        let again = self.server.handle_join(now, from, &join);
                        assert_eq!(again, JoinOutcome::Refused, "a key works once");
                    }
                    JoinOutcome::Refused => {}
                    JoinOutcome::Elsewhere(edge) => panic!("edge {edge} without a fleet"),
                }
            }
            Operation::Plain(number, stranger) => {
                let from = address(*number, *stranger);
                let attachment = self.server.handle_plain(now, from, &hello(*number, 100));
                if let Attachment::Attached(handover) = attachment {
                    self.collect();
                    self.hand_over(*number, 0, &handover);
                }
            }
            Operation::Pause(paused) => self.server.pause(*paused),
            Operation::GiveWay => {
                let spared = self.server.spared.len();
                assert_eq!(self.server.give_way(now), spared > 0);
            }
            Operation::Wait(millis) => {
                self.now += millis;
                self.server.handle_timeout(at(self.now));
            }
        }
        self.collect();
        self.check();
    }

    /// Checks that the origin gets exactly the client stream, whatever the join says.
    fn hand_over(&mut self, number: u64, client_offset: usize, handover: &Handover) {
        let mut got = self.running.remove(&handover.id).expect("the session was started");
        got.extend_from_slice(&handover.client_bytes);
        let stream = [hello(number, 100), vec![23; 60]].concat();
        got.extend_from_slice(&stream[client_offset + handover.skip..]);
        assert_eq!(got, stream);
    }

    fn collect(&mut self) {
        for event in self.server.happened() {
            match event {
                ServerEvent::Started { id, bytes, .. } => {
                    assert!(self.running.insert(id, bytes).is_none(), "started once");
                    self.started += 1;
                }
                ServerEvent::ClientBytes { id, bytes } => {
                    self.running.get_mut(&id).expect("the session runs").extend(bytes);
                }
                ServerEvent::Expired { id } => {
                    self.running.remove(&id).expect("the session ran");
                }
            }
        }
        while let Some(transmit) = self.server.poll_transmit() {
            let response = Response::parse(&transmit.bytes).expect("well-formed");
            let asked = self.asked[&(transmit.to, response.id, response.seq)];
            assert!(transmit.bytes.len() <= DATAGRAM_MAX.min(asked * AMPLIFICATION));
            self.traffic.entry(transmit.to).or_default().0 += transmit.bytes.len();
            self.responses += 1;
        }
        assert!(self.traffic.values().all(|(out, back)| *out <= AMPLIFICATION * back));
    }

    fn check(&self) {
        let server = &self.server;
        let limit = SESSIONS.min(server.config.origin_streams / UNPROVEN_SHARE);
        assert!(server.unproven() <= limit && server.gathering.len() <= SESSIONS_GATHERING);
        let running = server.running.len() + server.spared.len();
        let stages = [
            (Stage::Gathering, &server.gathering),
            (Stage::Running, &server.running),
            (Stage::Spared, &server.spared),
        ];
        for (stage, ends) in stages {
            let admitted = server.admission.all().filter(|(_, at)| *at == stage);
            let mut admitted: Vec<_> = admitted.map(|(id, _)| id).collect();
            let mut ending: Vec<_> = ends.iter().map(|(_, id)| *id).collect();
            admitted.sort_unstable();
            ending.sort_unstable();
            assert_eq!(admitted, ending, "{stage:?}");
        }
        assert_eq!(server.gathering.len() + running, server.sessions.len());
        assert_eq!(running, self.running.len());
        assert!(server.spared.len() <= limit / 2);
        let allocated = server.sessions.values().map(Session::allocated);
        assert!(allocated.max().unwrap_or_default() <= CLIENT_BYTES + SERVER_BYTES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_operations_keep_every_limit_and_leak_nothing(
        operations in prop::collection::vec(operation(), 1..200),
        early_data in any::<bool>(),
        same_address in any::<bool>(),
        origin_streams in prop_oneof![0..40_usize, Just(SESSIONS * UNPROVEN_SHARE)],
    ) {
        let config =
            ServerConfig { origin_streams, early_data, same_address, ..ServerConfig::default() };
        let mut trial = Trial::new(config);
        operations.iter().for_each(|operation| trial.apply(operation));
        trial.apply(&Operation::Wait(120_000));
        prop_assert!(trial.server.is_empty() && trial.running.is_empty());
        prop_assert_eq!(trial.server.poll_timeout(), None);
    }

    /// Sends requests of any size, in any order, repeated, to an origin that never stops sending.
    #[test]
    fn responses_are_at_most_three_times_the_requests(
        requests in prop::collection::vec((0..16_u8, 411..1233_usize), 1..40),
        pieces in 1..6_usize,
    ) {
        let mut trial = Trial::new(ServerConfig::default());
        let mut answered = 0;
        for (index, (seq, size)) in requests.into_iter().enumerate() {
            let (from, to) = (index % pieces * 100 / pieces, (index % pieces + 1) * 100 / pieces);
            trial.apply(&Operation::Piece { number: 1, seq, from, to, stranger: false, size });
            trial.apply(&Operation::OriginData(1, 700));
            prop_assert!(trial.responses <= index + 1, "at most one response per request");
            answered = trial.responses;
        }
        prop_assert!(answered <= usize::from(SEQUENCES));
        prop_assert!(trial.started <= 1);
    }
}
