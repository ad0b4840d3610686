use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use crate::hello::ClientHello;
use crate::id::SessionId;

/// Something that happened to a connection at the client, for its timeline, metrics and path
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum ClientEvent {
    /// A datagram with `bytes` of the client stream from `offset` on was queued.
    FlightSent {
        /// Sequence number.
        seq: u8,
        /// Offset of the payload in the client stream.
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
        /// Offset of the payload in the server stream.
        offset: u32,
        /// Length of the payload; 0 in a pure acknowledgement.
        bytes: usize,
    },
    /// An unusable datagram arrived: forged, repeated, or inconsistent.
    DatagramIgnored,
    /// The network reported that no process listens there (ICMP).
    Unreachable,
    /// TCP is connected.
    TcpConnected,
    /// From here on the connection is ordinary TLS over TCP.
    Plain(PlainReason),
    /// The client gave the flight up, but early data went with it: a join has to follow.
    GivenUp(PlainReason),
    /// The join was sent on TCP.
    JoinSent {
        /// The TCP stream starts at this offset of the client stream.
        client_offset: u32,
        /// Offset from which the server is asked to continue.
        server_offset: u32,
    },
    /// The edge accepted the join.
    JoinAccepted {
        /// Offset from which the server continues.
        server_offset: u32,
    },
    /// The first server bytes reached the application.
    FirstServerBytes {
        /// True if they came over UDP.
        udp: bool,
    },
    /// A datagram arrived after the fallback to plain: the grace was too short, or the path is
    /// slow.
    LateDatagram,
    /// The application's connection ends here.
    Reset(ResetReason),
}

/// Reason why a connection is plain TLS over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlainReason {
    /// TurboTLS was not requested: the client knows of no edge there, or it is switched off.
    NotOffered,
    /// The application does not speak TLS.
    NotTls,
    /// The ClientHello cannot be read or is too large.
    Hello,
    /// TCP connected before the ClientHello was ready: nothing is left to save.
    TcpFirst,
    /// The edge answered, and no server bytes came in time: they come over TCP.
    NoServerBytes,
    /// The edge answered; its server bytes are taken over TCP alone ([hold]).
    ///
    /// [hold]: crate::ClientConfig::hold
    Held,
    /// No datagram came within the grace.
    Silence,
    /// TCP connected before the answer was due, and the wait for it promised too little.
    NotAwaited,
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
    /// Short stable name for counters and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::NotTls => "not_tls",
            Self::Hello => "client_hello",
            Self::TcpFirst => "tcp_first",
            Self::NoServerBytes => "no_server_bytes",
            Self::Held => "held",
            Self::Silence => "silence",
            Self::NotAwaited => "not_awaited",
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
            Self::NoServerBytes => "the edge answered, and no server bytes came in time",
            Self::Held => "server bytes are taken over TCP alone",
            Self::Silence => "no datagram came back within the grace",
            Self::NotAwaited => "the ClientHello left too late for its answer to be waited for",
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
    /// TCP broke or stayed silent while the join was in flight: the network's doing, or the edge's.
    JoinLost,
    /// The TCP stream does not begin with an answer to the join.
    Protocol,
    /// TCP connected so late that the server may no longer know if early data was acted on.
    EarlyDataTooOld,
}

impl ResetReason {
    /// Short stable name for counters and scripts.
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

/// Something a [`Server`](crate::Server) asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum ServerEvent {
    /// A session starts: open a stream to the origin and write `bytes` to it.
    Started {
        /// The session.
        id: SessionId,
        /// The source address of its datagrams; unproven until the join.
        peer: SocketAddr,
        /// The ClientHello, parsed, so that nobody reads it again.
        hello: Box<ClientHello>,
        /// The ClientHello, and early data after it where allowed.
        bytes: Vec<u8>,
    },
    /// More client bytes for the origin: early data.
    ClientBytes {
        /// The session.
        id: SessionId,
        /// Bytes in stream order, after everything handed out before.
        bytes: Vec<u8>,
    },
    /// No join came in time: close the stream to the origin.
    Expired {
        /// The session.
        id: SessionId,
    },
}
