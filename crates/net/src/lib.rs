//! headstart net

mod acceptor;
mod bridge;
mod clock;
mod connector;
mod race;
mod redirect;
mod relay;
mod udp;

pub use acceptor::{Acceptor, AcceptorConfig, Arrival, Opening, ServerStream};
pub use bridge::{Handoff, bridge};
pub use connector::{
    ClientStream, Connector, ConnectorConfig, Edge, Moment, NotUsed, OpenedBy, OpeningPolicy, Report, Target, What,
};
pub use race::{ATTEMPT_DELAY, Attempt, MAX_ADDRESSES, Outcome, Race, RaceError, RaceFailure, Won};
pub use redirect::original_destination;
pub use relay::{
    COPY_BUFFER, PIPE_CAPACITY, PIPES_IN_USE, RelayCounts, RelayEnd, RelayLimits, RelayReason, SPLICE_AFTER, Side, relay,
};
pub use udp::{
    Datagram, LISTEN_BUFFER, Received, RecvBuffers, RecvError, UdpPort, is_unreachable, with_thread_buffers,
};
pub mod advert;
pub mod dns;
pub mod path;
