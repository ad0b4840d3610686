//! headstart net

mod race;
mod relay;

pub use race::{ATTEMPT_DELAY, Attempt, MAX_ADDRESSES, Outcome, Race, RaceError, RaceFailure, Won};
pub use relay::{
    COPY_BUFFER, PIPE_CAPACITY, PIPES_IN_USE, RelayCounts, RelayEnd, RelayLimits, RelayReason, SPLICE_AFTER, Side, relay,
};
pub mod advert;
pub mod dns;
pub mod path;
