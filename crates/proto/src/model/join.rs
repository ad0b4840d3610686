//! The join without bytes: one client, one edge that may restart, one request that may be doubled.
//!
//! Read it beside "Client States" and "Edge Behavior" of docs/draft-headstart-turbotls.md. Both
//! streams of a connection to the origin are a number here: the client must not get bytes of two of
//! them. An answer either acknowledges or carries server bytes; lost is what never arrives.

use std::vec::Vec;

use stateright::{Checker, Model, Property};

/// Number of a start of the edge, which is its route tag.
type Tag = u8;
/// Number of a connection to the origin, in the order of their beginning.
type Origin = u8;

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Client {
    Connecting { late: bool },
    Waiting,
    Plain,
    Joining,
    Open,
    Reset,
}

/// The one message on TCP.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Tcp {
    Plain,
    Join { tag: Tag },
    Continues { origin: Origin },
    Refused,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct State {
    client: Client,
    /// Tag of the first answer, and the origin whose bytes came over UDP.
    tag: Option<Tag>,
    stored: Option<Origin>,
    /// The origin whose bytes the application has.
    delivered: Option<Origin>,
    mixed: bool,
    /// Copies of the request, and answers on their way.
    requests: u8,
    answers: Vec<(Tag, Option<Origin>)>,
    tcp: Option<Tcp>,
    /// The edge: its start, its session, and whether it has seen the ClientHello.
    start: Tag,
    session: Option<Origin>,
    written: bool,
    seen: bool,
    expired: bool,
    /// Which start of the edge gave the ClientHello to each origin.
    origins: Vec<Tag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    RequestArrives,
    OriginWrites,
    AnswerArrives(usize),
    /// The client's clock passes `SESSION_LIFE` less `JOIN_MARGIN` before TCP connects.
    GetsLate,
    TcpConnects,
    /// The grace is over, or all answers are there.
    Decides,
    TcpArrivesAtEdge,
    TcpArrivesAtClient,
    Restarts,
    SessionExpires,
}

struct Join {
    restarts: Tag,
}

impl State {
    fn begins(&mut self) -> Origin {
        self.seen = true;
        self.origins.push(self.start);
        u8::try_from(self.origins.len() - 1).expect("few origins")
    }

    fn deliver(&mut self, origin: Option<Origin>) {
        self.mixed |= self.delivered.is_some() && self.delivered != origin;
        self.delivered = origin;
    }

    fn at_edge(&mut self, message: Tcp) {
        let taken = self.session.take();
        self.tcp = Some(match (message, taken) {
            // A join of this start's session, or a plain stream whose ClientHello runs.
            (Tcp::Join { tag }, Some(origin)) if tag == self.start => Tcp::Continues { origin },
            (Tcp::Plain, Some(origin)) => Tcp::Continues { origin },
            (Tcp::Plain, None) => Tcp::Continues { origin: self.begins() },
            // Another tag: the session stays.
            (_, other) => {
                self.session = other;
                Tcp::Refused
            }
        });
    }

    fn at_client(&mut self, message: Tcp) {
        match message {
            Tcp::Continues { origin } => {
                self.client = Client::Open;
                self.deliver(Some(origin));
            }
            _ => self.client = Client::Reset,
        }
    }

    fn take_answer(&mut self, number: usize) {
        let (tag, origin) = self.answers.remove(number);
        let listens =
            matches!(self.client, Client::Connecting { .. } | Client::Waiting | Client::Joining);
        if !listens || self.tag.is_some_and(|first| first != tag) {
            return;
        }
        self.tag = Some(tag);
        self.stored = self.stored.or(origin);
        if self.client == Client::Waiting && self.stored.is_some() {
            self.deliver(self.stored);
        }
    }
}

impl Model for Join {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client::Connecting { late: false };
        let (tag, stored, delivered, tcp, session) = (None, None, None, None, None);
        let (answers, origins) = (Vec::new(), Vec::new());
        let (mixed, written, seen, expired, requests, start) = (false, false, false, false, 2, 1);
        [State {
            client,
            tag,
            stored,
            delivered,
            mixed,
            requests,
            answers,
            tcp,
            start,
            session,
            written,
            seen,
            expired,
            origins,
        }]
        .into()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let to_edge = matches!(state.tcp, Some(Tcp::Plain | Tcp::Join { .. }));
        let late = matches!(state.client, Client::Connecting { late: true });
        let connecting = matches!(state.client, Client::Connecting { .. });
        let offers = [
            (state.requests > 0, Action::RequestArrives),
            (state.session.is_some() && !state.written, Action::OriginWrites),
            (connecting && !late, Action::GetsLate),
            (connecting, Action::TcpConnects),
            (state.client == Client::Waiting, Action::Decides),
            (to_edge, Action::TcpArrivesAtEdge),
            (state.tcp.is_some() && !to_edge, Action::TcpArrivesAtClient),
            (state.start <= self.restarts, Action::Restarts),
            // The promise: not before 10 s have passed, when the client has given it up.
            (state.session.is_some() && late, Action::SessionExpires),
        ];
        actions.extend(offers.into_iter().filter(|(offered, _)| *offered).map(|(_, it)| it));
        actions.extend((0..state.answers.len()).map(Action::AnswerArrives));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::RequestArrives => {
                next.requests -= 1;
                if !next.seen {
                    (next.session, next.written) = (Some(next.begins()), false);
                    next.answers.push((next.start, None));
                }
            }
            Action::OriginWrites => {
                next.written = true;
                next.answers.push((next.start, next.session));
            }
            Action::AnswerArrives(number) => next.take_answer(number),
            Action::GetsLate => next.client = Client::Connecting { late: true },
            Action::TcpConnects if next.client == (Client::Connecting { late: true }) => {
                (next.client, next.tcp) = (Client::Plain, Some(Tcp::Plain));
            }
            Action::TcpConnects => {
                next.client = Client::Waiting;
                next.deliver(next.stored);
            }
            Action::Decides => {
                let tag = next.tag.filter(|_| next.delivered.is_some());
                (next.client, next.tcp) = match tag {
                    Some(tag) => (Client::Joining, Some(Tcp::Join { tag })),
                    None => (Client::Plain, Some(Tcp::Plain)),
                };
            }
            Action::TcpArrivesAtEdge => next.at_edge(next.tcp?),
            Action::TcpArrivesAtClient => {
                let message = next.tcp.take()?;
                next.at_client(message);
            }
            // TCP itself survives here; where it does not, plain TLS breaks as well.
            Action::Restarts => {
                next.start += 1;
                (next.session, next.seen) = (None, false);
            }
            Action::SessionExpires => (next.session, next.expired) = (None, true),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        [
            Property::always("no bytes of two handshakes", |_, state: &State| !state.mixed),
            Property::always("one ClientHello runs once", |_, state: &State| {
                let twice = |start: &Tag| state.origins.iter().filter(|it| *it == start).count();
                state.expired || state.origins.iter().all(|start| twice(start) == 1)
            }),
            Property::always("a reset needs a commitment and a restart", |_, state: &State| {
                state.client != Client::Reset || (state.delivered.is_some() && state.start > 1)
            }),
            Property::always("something is always to come", |_, state: &State| {
                !matches!(state.client, Client::Plain | Client::Joining) || state.tcp.is_some()
            }),
            Property::sometimes("a round trip is saved", |_, state: &State| {
                state.client == Client::Open && state.stored.is_some()
            }),
            Property::sometimes("a committed client is reset", |_, state: &State| {
                state.client == Client::Reset
            }),
        ]
        .into()
    }
}

#[test]
fn the_join_holds_without_bytes() {
    let checker = Join { restarts: 2 }.checker().spawn_bfs().join();
    std::println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}
