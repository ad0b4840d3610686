use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use crate::hello::ClientHello;
use crate::id::SessionId;
use crate::wire::Status;

/// Event of a connection at the client, for its timeline, metrics and path memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A datagram with `bytes` of the client stream from `offset` on was queued.
    FlightSent {
        /// Sequence number.
        seq: u8,
        /// Place of the payload in the client stream.
        offset: u32,
        /// Length of the payload.
        bytes: usize,
    },
    /// A slot was queued, which repeats a piece of the ClientHello.
    SlotSent {
        /// Sequence number.
        seq: u8,
    },
    /// A datagram of the edge arrived.
    DatagramReceived {
        /// The sequence number it answers.
        seq: u8,
        /// Client bytes that the edge has, counted from the start.
        ack: u32,
        /// Place of the payload in the server stream.
        offset: u32,
        /// Length of the payload; 0 in a pure acknowledgement.
        bytes: usize,
    },
    /// A datagram arrived that cannot be used: forged, repeated, or disagreeing.
    DatagramIgnored,
    /// The network said that nobody listens there (ICMP).
    Unreachable,
    /// TCP is connected.
    TcpConnected,
    /// From here on the connection is ordinary TLS over TCP.
    Plain(PlainReason),
    /// The flight is given up, but early data went with it: a join has to follow.
    GivenUp(PlainReason),
    /// The join was sent on TCP.
    JoinSent {
        /// The TCP stream starts at this offset of the client stream.
        client_offset: u32,
        /// The server is asked to go on from here.
        server_offset: u32,
    },
    /// The edge answered the join.
    JoinAnswered(Status),
    /// The first server bytes reached the application.
    FirstServerBytes {
        /// True if they came over UDP.
        udp: bool,
    },
    /// A datagram came after the fallback to plain: the grace was too short, or the path is slow.
    LateDatagram,
    /// The application's connection ends here.
    Reset(ResetReason),
}

/// Reason why a connection is plain TLS over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlainReason {
    /// Nobody asked for more: no edge is known there, or it was switched off.
    NotOffered,
    /// The application does not speak TLS.
    NotTls,
    /// The ClientHello cannot be read or is too large.
    Hello,
    /// TCP connected before the ClientHello was there: nothing is left to save.
    TcpFirst,
    /// No datagram came within the grace.
    Silence,
    /// The network refused UDP (ICMP).
    Unreachable,
    /// TCP reached another address than the datagrams.
    OtherAddress,
    /// The server spoke first on TCP, or closed it, which no edge does.
    ServerFirst,
    /// TCP took so long that the edge may have forgotten the session.
    TcpLate,
}

impl PlainReason {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::NotTls => "not_tls",
            Self::Hello => "client_hello",
            Self::TcpFirst => "tcp_first",
            Self::Silence => "silence",
            Self::Unreachable => "unreachable",
            Self::OtherAddress => "other_address",
            Self::ServerFirst => "server_first",
            Self::TcpLate => "tcp_late",
        }
    }
}

impl fmt::Display for PlainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOffered => "the server offers nothing more",
            Self::NotTls => "the application does not speak TLS",
            Self::Hello => "the ClientHello cannot be read or is too large",
            Self::TcpFirst => "TCP connected before the ClientHello was there",
            Self::Silence => "no datagram came back within the grace",
            Self::Unreachable => "the network refused UDP",
            Self::OtherAddress => "TCP reached another address than UDP",
            Self::ServerFirst => "the server spoke first on TCP, or closed it",
            Self::TcpLate => "TCP connected too late for the session at the edge",
        })
    }
}

/// Reason why the application's connection was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetReason {
    /// The edge refused the join after server bytes were delivered: the committed case.
    CommittedRefusal,
    /// The edge refused the join; nothing had been delivered.
    Refused,
    /// TCP broke or stayed silent while the join was on its way: the network's doing, or the
    /// edge's.
    JoinLost,
    /// The bytes on TCP are no answer to a join.
    Protocol,
    /// TCP connected so late that nobody can say any more whether early data was acted on.
    EarlyDataTooOld,
}

impl ResetReason {
    /// A short stable name, for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommittedRefusal => "committed_refusal",
            Self::Refused => "refused",
            Self::JoinLost => "join_lost",
            Self::Protocol => "protocol",
            Self::EarlyDataTooOld => "early_data_too_old",
        }
    }
}

/// Request of a [`Server`](crate::Server) to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A session starts: open a stream to the origin and write `bytes` to it.
    Started {
        /// The session.
        id: SessionId,
        /// Where its datagrams come from; unproven until the join.
        peer: SocketAddr,
        /// The ClientHello, parsed, so that nobody reads it again.
        hello: Box<ClientHello>,
        /// The ClientHello, and early data behind it where that is allowed.
        bytes: Vec<u8>,
    },
    /// More client bytes for the origin: early data.
    ClientBytes {
        /// The session.
        id: SessionId,
        /// In stream order, after everything handed out before.
        bytes: Vec<u8>,
    },
    /// Nobody joined in time: close the origin's stream.
    Expired {
        /// The session.
        id: SessionId,
    },
}
