//! The sharing audit: full TLS handshakes in recorded traffic, and those that shared sessions would
//! have saved (Hiller et al. 2019, *The Case for Session Sharing*).
//!
//! Recordings are packet captures (pcap, pcapng) or HAR files. Connections are grouped as the paper
//! does: by address and name for a store shared by the programs of one machine, by autonomous
//! system and name for servers that share their keys as well. The first of a group cannot resume;
//! of the others all could.
//!
//! ```
//! use headstart_pageload::sharing::Audit;
//!
//! let mut audit = Audit::new();
//! audit.read("empty.har", br#"{"log": {"entries": []}}"#.as_slice())?;
//! assert_eq!(audit.report(None).connections, 0);
//! # Ok::<(), headstart_pageload::sharing::ReadError>(())
//! ```

mod audit;
mod capture;
mod client_hello;
mod connection;
mod cost;
mod counts;
mod error;
mod fields;
mod flow;
mod flow_table;
mod har;
pub mod limits;
mod packet;
mod report;
mod seen;
mod server_flight;
mod stream;
mod systems;
mod tally;

pub use audit::Audit;
pub use cost::{CostModel, PAPER_APPS, PAPER_WEB, PaperColumn};
pub use error::{AsError, ReadError};
pub use limits::Limits;
pub use report::{
    Arm, ArmShares, Grouping, Lifetime, Recording, RecordingKind, Report, Revisits, Service, Span,
    TicketSizes, Tickets, Versions,
};
pub use seen::Seen;
pub use server_flight::resumes;
pub use systems::AsTable;
