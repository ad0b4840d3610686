//! Every bound of the audit in one place: recordings come from anywhere, and may be larger than
//! memory.
//!
//! Worst case together about 0.7 GB: [`FLOWS`] x 1 kB + twice [`FLOW_BYTES`] while packets are read
//! (buffers grow by doubling), [`CONNECTIONS`] x 0.15 kB + [`NAMES`] x 0.4 kB for what was found,
//! and [`CONNECTIONS`] x 250 B while it is counted or, in a HAR file, for the names of connections.
//! A table of autonomous systems comes on top: [`PREFIXES`] x 0.25 kB. Ordinary recordings need a
//! hundredth.

/// Connections followed at the same time; that which was silent for longest gives way.
///
/// Only handshakes need a place, and a handshake takes seconds: room for 10,000 new connections a
/// second.
pub const FLOWS: usize = 65_536;

/// Bytes kept of all connections together, of ClientHellos that are not whole and of segments that
/// came before their turn, with [`PIECE`] for each; the connection that was silent for longest
/// gives way.
pub const FLOW_BYTES: usize = 64 << 20;

/// Bytes that are kept of one direction of a connection while a segment before them is missing.
///
/// A first flight fits into TCP's initial window of 10 segments; captures of the sender hold
/// segments of up to 64 KiB, which the card cuts later. Room for one of these and a few small ones.
pub const BYTES_AHEAD: usize = 128 << 10;

/// Bytes of memory that a segment which came before its turn takes beside its own: its place in a
/// tree and an allocation. Else segments of one byte would take a hundred times what is counted.
pub const PIECE: usize = 128;

/// Bytes of a server's stream that are looked at.
///
/// A ServerHello comes first; in TLS 1.2 the ticket comes after the certificates, which have 2-17
/// kB.
pub const SERVER_BYTES: usize = 128 << 10;

/// Maximum bytes of a ServerHello: one record (RFC 8446 section 5.1); with X25519MLKEM768 it has
/// 1.2 kB.
pub const SERVER_HELLO_MAX: usize = 1 << 14;

/// Maximum TLS connections that are counted; further ones only count as left out.
pub const CONNECTIONS: usize = 1 << 20;

/// Maximum names of servers; connections to further ones count as left out.
pub const NAMES: usize = 1 << 18;

/// Maximum bytes of one block of a capture. Wireshark refuses larger ones, too.
pub const CAPTURE_BLOCK: usize = 16 << 20;

/// Maximum interfaces of one section of a pcapng file.
pub const INTERFACES: usize = 4096;

pub use crate::har::limits::{HAR_BYTES, HAR_DEPTH, HAR_STRING};

/// Maximum bytes remembered of a connection's name in a HAR file; real ones are numbers.
pub const CONNECTION_ID_MAX: usize = crate::har::limits::CONNECTION_MAX;

/// Maximum prefixes of the table of autonomous systems: the internet has 1.3 million (2026).
pub const PREFIXES: usize = 4_000_000;

/// Maximum bytes of a line of that table.
pub const LINE_MAX: u64 = 64 << 10;

/// Limits on what an audit keeps at the same time; [`Default`] is what this module
/// sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections whose handshakes are being read.
    pub flows: usize,
    /// Bytes kept of them.
    pub flow_bytes: usize,
    /// TLS connections found.
    pub connections: usize,
    /// Names of their servers.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: FLOWS, flow_bytes: FLOW_BYTES, connections: CONNECTIONS, names: NAMES }
    }
}
