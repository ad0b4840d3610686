//! headstart net

mod race;
mod redirect;
mod relay;
mod udp;

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
