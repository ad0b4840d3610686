//! headstart net

mod relay;

pub use relay::{
    COPY_BUFFER, PIPE_CAPACITY, PIPES_IN_USE, RelayCounts, RelayEnd, RelayLimits, RelayReason, SPLICE_AFTER, Side, relay,
};
